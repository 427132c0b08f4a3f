"""
Resolves a path that a person or model names, once, and opens it without trusting the name again.

`locate` reads symbolic links once, for the prompt, and returns the real path. A link inside the
workspace is shown as the file it leads to. After that, the path is never resolved again.
`open_folder` and `open_file` walk the canonical path by descriptors, component by component, and
follow no link. If a link has appeared since, somebody replaced a component, and nothing is opened.
On the way down, the workspace is compared by device and inode.
"""

import errno
import os
import stat
from typing import NamedTuple

import msgspec

from holdfast.adapters.tools.files.home_links import is_linked_into
from holdfast.adapters.tools.home_guard import GuardedHome, guard_of, identities_upward
from holdfast.adapters.tools.shell.confinement.mounts import read_mounts, within
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.authority.plan import Binding, Reach

_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
HARD_DENY = "hard_deny"  # no policy or approval can allow it
_PATH_CHARS_MAX = 4096  # the kernel's own limit


class Root(NamedTuple):
    """The workspace: its canonical path and the identity of its folder ("dev:ino")."""

    path: str
    identity: str


class PathTarget(msgspec.Struct, frozen=True, kw_only=True):
    """
    The canonical target of a path, with its relation to the workspace and the home. `root` is the
    workspace, for a path inside it.
    """

    path: str
    reach: Reach
    guard: GuardedHome | None
    root: Root | None = None


def check_path(path: str, field: str = "path") -> str:
    """Refuse invalid paths before anybody is asked."""
    if not path:
        raise InvalidArguments(f"{field} is empty")
    if "\0" in path or len(path.encode()) > _PATH_CHARS_MAX:
        raise InvalidArguments(
            f"{field} is not a path: it has a NUL or more than {_PATH_CHARS_MAX} bytes"
        )
    return path


def locate(path: str, scene: Scene) -> PathTarget:
    """
    Resolve a path; a relative path starts at the workspace. Raise CannotBind, with code hard_deny
    for the home and for the memory of processes.
    """
    if scene.workspace is None and not path.startswith("/"):
        raise CannotBind(f"{path!r} is relative, and this turn has no workspace")
    try:
        root = _root_of(scene)
        real = os.path.realpath(os.path.join(root.path if root is not None else "/", path))  # noqa: PTH118  joined as text, resolved at once
    except OSError as exc:  # a link was replaced while it was read
        raise CannotBind(f"{path}: {_said(exc)}") from exc
    guard = guard_of(scene)
    _refuse_home(real, guard)
    if root is not None and within(real, root.path):
        return PathTarget(path=real, reach="workspace", guard=guard, root=root)
    return PathTarget(path=real, reach="outside", guard=guard)


def bound_place(binding: Binding, scene: Scene) -> PathTarget:
    """
    Return the bound place by its canonical path alone, without resolving again. A path in the
    workspace must still lie in it.
    """
    if binding.path is None:
        raise CannotBind("nothing says which path this is about")
    guard = guard_of(scene)
    if binding.reach != "workspace":
        return PathTarget(path=binding.path, reach=binding.reach, guard=guard)
    root = _root_of(scene)
    if root is None or not within(binding.path, root.path):
        raise CannotBind(f"{binding.path} lies no longer in the workspace")
    return PathTarget(path=binding.path, reach=binding.reach, guard=guard, root=root)


def _root_of(scene: Scene) -> Root | None:
    if scene.workspace is None:
        return None
    path = os.path.realpath(scene.workspace)
    return Root(path, scene.workspace_identity or identity_of(os.stat(path)))  # noqa: PTH116  text


def identity_of(facts: os.stat_result) -> str:
    return f"{facts.st_dev}:{facts.st_ino}"


def open_folder(path: str, guard: GuardedHome | None, root: Root | None = None) -> int:
    """
    Return a descriptor of a canonical path's folder. No component may be a link, the root must be
    the workspace itself, and the home is refused.
    """
    fd = os.open("/", _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    walked, met = "/", _is_root(fd, "/", root)
    try:
        for part in filter(None, path.split("/")):
            below = os.open(
                part, _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
            )
            os.close(fd)
            fd = below
            walked = f"{walked.rstrip('/')}/{part}"
            met = met or _is_root(fd, walked, root)
        in_home = guard is not None and guard.holds(fd)
    except OSError as exc:
        os.close(fd)
        raise CannotBind(f"{path}: {_said(exc)}") from exc
    if in_home or not met:
        os.close(fd)
        raise (
            home_is_out_of_reach(path)
            if in_home
            else CannotBind(f"{path}: another folder took the workspace's place")
        )
    return fd


def _is_root(fd: int, walked: str, root: Root | None) -> bool:
    """
    Return whether the walk has reached the workspace itself. Without a root, this is always true.
    """
    return root is None or (walked == root.path and identity_of(os.fstat(fd)) == root.identity)


def lies_below(folder_fd: int, root: Root) -> bool:
    """
    Return whether the open folder is now the workspace or below it. The walk goes upwards, because
    the folder may have been moved since it was opened.
    """
    return root.identity in {f"{device}:{inode}" for device, inode in identities_upward(folder_fd)}


def open_file(place: PathTarget) -> int:
    """
    Return a readable descriptor of a regular file. A FIFO or device is refused, so it neither
    blocks nor acts.
    """
    folder, name = os.path.split(place.path)
    folder_fd = open_folder(folder, place.guard, place.root)
    try:
        return open_below(folder_fd, name or ".", place)
    except OSError as exc:
        raise CannotBind(f"{place.path}: {_said(exc)}") from exc
    finally:
        os.close(folder_fd)


def open_below(folder_fd: int, name: str, place: PathTarget) -> int:
    """Open a regular file in an open folder for reading. Raise OSError if it cannot be opened."""
    fd = os.open(
        name,
        os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY,
        dir_fd=folder_fd,
    )
    refused = _why_not_read(os.fstat(fd), place)
    if refused is not None:
        os.close(fd)
        raise refused
    return fd


def _why_not_read(facts: os.stat_result, place: PathTarget) -> CannotBind | None:
    if not stat.S_ISREG(facts.st_mode):
        return CannotBind(f"{place.path} is not a regular file")
    if _is_process_memory(place.path, facts.st_dev):
        return CannotBind(
            f"{place.path} shows the memory of a process, keys included", code=HARD_DENY
        )
    return (
        home_is_out_of_reach(place.path)
        if place.guard is not None and is_linked_into(place.guard, facts)
        else None
    )


def home_is_out_of_reach(path: str) -> CannotBind:
    return CannotBind(f"{path} lies in the Holdfast home, which no tool may touch", code=HARD_DENY)


def _refuse_home(real: str, guard: GuardedHome | None) -> None:
    """
    Check by name, and by identity of the nearest existing folder, because the target may be
    missing.
    """
    if guard is None:
        return
    inside = any(within(real, name) for name in guard.names)
    left_open = guard.workspace_inside is not None and within(real, guard.workspace_inside)
    if inside and not left_open:
        raise home_is_out_of_reach(real)
    folder = real
    while True:
        try:
            fd = os.open(folder, _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            if folder == "/":
                return
            folder = os.path.dirname(folder)  # noqa: PTH120  text, not a Path
            continue
        try:
            if guard.holds(fd):
                raise home_is_out_of_reach(real)
        except OSError as exc:  # it may not be entered, so nobody can say what it lies in
            raise CannotBind(f"{real}: {_said(exc)}") from exc
        finally:
            os.close(fd)
        return


def _is_process_memory(path: str, device: int) -> bool:
    """
    Return whether the path lies in a numbered folder of a proc file system, wherever that is
    mounted.
    """
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(
        mount.kind == "proc"
        and mount.device == number
        and within(path, mount.point)
        and path[len(mount.point) :].strip("/").split("/")[0].isdigit()
        for mount in read_mounts()
    )


def _said(exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    return "a symbolic link appeared on the way" if exc.errno in _LINK_ERRNOS else reason.lower()


# ELOOP: O_NOFOLLOW met a link (ENOTDIR if a folder was requested). EINVAL: readlink met a file that
# is no longer a link.
_LINK_ERRNOS = frozenset({errno.ELOOP, errno.EINVAL})
