"""
Paths that people and models name, turned into the one place they mean, and opened without trusting the name again.

`locate` reads symbolic links once and says where the path really leads. `open_folder` and `open_file` then walk that canonical path
by descriptors and follow no link at all: if one has appeared since, somebody flipped it, and nothing is opened.
"""

import os
import stat

import msgspec

from holdfast.adapters.tools.home_guard import Guarded, guard_of
from holdfast.adapters.tools.mounts import read_mounts, within
from holdfast.ports.tools import CannotBind, InvalidArguments, Scene
from holdfast.session.plan import Reach

_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)
HARD_DENY = "hard_deny"  # whatever anybody says
_PATH_CHARS_MAX = 4096  # the kernel's own bound


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: canonical, with what the workspace and the home have to say about it."""

    path: str
    reach: Reach
    guard: Guarded | None


def check_path(path: str, field: str = "path") -> str:
    """Refuses what can't be a path before anyone is asked."""
    if not path:
        raise InvalidArguments(f"{field} is empty")
    if "\0" in path or len(path.encode()) > _PATH_CHARS_MAX:
        raise InvalidArguments(f"{field} is no path: it has a NUL or more than {_PATH_CHARS_MAX} bytes")
    return path


def locate(path: str, scene: Scene) -> Place:
    """Relative paths start at the workspace. Raises CannotBind: hard_deny for the home and for the memory of processes."""
    if scene.workspace is None and not path.startswith("/"):
        raise CannotBind(f"{path!r} is relative, and this turn has no workspace")
    workspace = None if scene.workspace is None else os.path.realpath(scene.workspace)
    real = os.path.realpath(os.path.join(workspace or "/", path))  # noqa: PTH118  joined as text, resolved at once
    guard = guard_of(scene)
    _refuse_home(real, guard)
    reach: Reach = "workspace" if workspace is not None and within(real, workspace) else "outside"
    return Place(path=real, reach=reach, guard=guard)


def open_folder(path: str, guard: Guarded | None) -> int:
    """A descriptor of a canonical path's folder; no component may be a link, and the home is refused."""
    fd = os.open("/", _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, path.split("/")):
            below = os.open(part, _O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
        if guard is not None and guard.holds(fd):
            raise home_is_out_of_reach(path)
    except OSError as exc:
        os.close(fd)
        raise CannotBind(f"{path}: {_said(exc)}") from exc
    except CannotBind:
        os.close(fd)
        raise
    return fd


def open_file(path: str, guard: Guarded | None) -> int:
    """A readable descriptor of a regular file. A FIFO or device never blocks or acts: it is refused."""
    folder, name = os.path.split(path)
    folder_fd = open_folder(folder, guard)
    try:
        fd = os.open(name or ".", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=folder_fd)
    except OSError as exc:
        raise CannotBind(f"{path}: {_said(exc)}") from exc
    finally:
        os.close(folder_fd)
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        os.close(fd)
        raise CannotBind(f"{path} is not a regular file")
    if _is_process_memory(path, facts.st_dev):
        os.close(fd)
        raise CannotBind(f"{path} tells what a process holds in memory, keys included", code=HARD_DENY)
    return fd


def home_is_out_of_reach(path: str) -> CannotBind:
    return CannotBind(f"{path} lies in the Holdfast home, which no tool may touch", code=HARD_DENY)


def _refuse_home(real: str, guard: Guarded | None) -> None:
    """By name and by identity of the nearest folder that exists: the target itself may be missing."""
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
        finally:
            os.close(fd)
        return


def _is_process_memory(path: str, device: int) -> bool:
    """Anything of a numbered folder on a proc filesystem, wherever that is mounted."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(
        mount.kind == "proc" and mount.device == number and within(path, mount.point) and path[len(mount.point) :].strip("/").split("/")[0].isdigit()
        for mount in read_mounts()
    )


def _said(exc: OSError) -> str:
    reason = exc.strerror or str(exc)
    return "a symbolic link appeared on the way" if exc.errno in _LINK_ERRNOS else reason.lower()


_LINK_ERRNOS = frozenset({40})  # ELOOP: what O_NOFOLLOW says of a link (ENOTDIR where a folder was asked for)
