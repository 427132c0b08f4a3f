"""
The file system that an isolated command sees, as bubblewrap's arguments.

The view starts empty. These are added in order:

1. the system, read-only;
2. private `/tmp`, `/run`, `/dev`, `/proc` and an empty folder of the user;
3. the interpreter of the waiting launcher;
4. the paths of `tools.shell.read`;
5. the workspace, writable;
6. covers over the Holdfast home and over the folders of Holdfast's program, if the workspace holds
   them;
7. extra binds of the call.

A later argument lies over an earlier one. The view holds nothing else of the user.
"""

import functools
import os
import pwd
import site
import stat
import sys
import sysconfig
from collections.abc import Iterable

import msgspec

from holdfast import limits
from holdfast.adapters.tools.home_guard import GuardedHome
from holdfast.adapters.tools.shell.confinement.mounts import within
from holdfast.ports.tools import CannotBind

# Stands for the number of the descriptor from which bubblewrap reads its seccomp filter.
FILTER = "{filter}"

# `/var` holds spools, logs and sockets. It is left out, except for certificates that a distribution
# keeps there.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/gnu/store", "/var/lib/ca-certificates"),
)
_PRIVATE = ("/tmp", "/run", "/var/tmp", "/dev/shm")  # noqa: S108  mounted new for each command
_APART = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
)
_NAME_SERVERS = "/etc/resolv.conf"


class Bind(msgspec.Struct, frozen=True):
    """
    One more path of the host in the view. The source may lie anywhere. Parents of the target are
    created.
    """

    source: str
    target: str
    read_only: bool = True


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """
    `folders` are writable: the workspace, and the folder of a command that a person let run outside
    it.
    """

    guard: GuardedHome | None
    folders: tuple[str, ...]
    read: tuple[str, ...] = ()
    network: bool = False
    binds: tuple[Bind, ...] = ()


def view_words(view: FileView) -> list[str]:
    """
    Return bubblewrap's arguments. All paths are canonical. The caller puts bubblewrap in front and
    `--` behind. Raise CannotBind for a path of the home.
    """
    refuse_home_paths(view)
    words = [*_APART, *(() if view.network else ("--unshare-net",)), "--seccomp", FILTER]
    for path in SYSTEM:
        words += _shared(path)
    # Read-only, because a line that root writes to the kernel's settings can run a program outside
    # of every confinement.
    words += ["--proc", "/proc", *_no_key_names(), "--remount-ro", "/proc"]
    words += ["--dev", "/dev", "--tmpfs", "/run"]
    words += ["--perms", "1777", "--tmpfs", "/tmp", "--perms", "1777", "--tmpfs", "/var/tmp"]  # noqa: S108
    words += ["--symlink", "/run", "/var/run", *_own_folder(view.folders), *_name_servers()]
    for path in (*interpreter_paths(), *view.read):
        words += ["--ro-bind", path, path]
    hidden = () if view.guard is None else view.guard.names
    covered = [name for name in hidden if _is_seen(name, view)]
    words += _covers(covered)
    for folder in sorted(view.folders, key=len):
        inside = [name for name in hidden if name != folder and within(name, folder)]
        words += ["--bind", folder, folder, *_mount_points(folder, inside), *_covers(inside)]
        covered += inside
        for own in program_folders():
            words += ["--ro-bind", own, own] if own != folder and within(own, folder) else []
    for name in dict.fromkeys(covered):
        words += ["--remount-ro", name]
    for bind in view.binds:
        words += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
    return [*words, "--remount-ro", "/"]


def refuse_home_paths(view: FileView) -> None:
    """
    Refuse a path in the home, and a home that could be written, such as a path that became a link
    after somebody named it in the settings. Covers hide a home below a path, and not one around it.
    """
    guard = view.guard
    if guard is None:
        return
    for path in (*(each for each in view.read if each not in guard.names), *view.folders):
        if guard.workspace_inside is not None and within(path, guard.workspace_inside):
            continue
        if any(within(path, name) for name in guard.names):
            raise CannotBind(f"{path} is the Holdfast home or lies in it")


def is_seen(path: str, read: Iterable[str]) -> bool:
    """Return whether the path is in the view even without any folder of the user."""
    return any(within(path, os.path.realpath(each)) for each in (*SYSTEM, *read))


@functools.cache
def program_folders() -> tuple[str, ...]:
    """
    Return the folders that Holdfast, its packages and the user's packages are loaded from. A
    command that writes there changes Holdfast's code.
    """
    named = [sys.prefix, sys.exec_prefix, sys.base_prefix, os.path.dirname(limits.__file__)]  # noqa: PTH120
    named += [*site.getsitepackages(), site.getusersitepackages()]
    named += [
        path for path in sys.path if path.rstrip("/").endswith(("site-packages", "dist-packages"))
    ]
    found = {os.path.realpath(path) for path in named if os.path.isdir(path)}  # noqa: PTH112
    return tuple(sorted(found - {"/", "/usr"}, key=len))


@functools.cache
def interpreter_paths() -> tuple[str, ...]:
    """
    Return the program and standard library of the Python that waits inside the view, unless it is
    the system's.
    """
    library = sysconfig.get_config_var("LDLIBRARY") or ""
    folder = sysconfig.get_config_var("LIBDIR") or ""
    wanted = [os.path.realpath(sys.executable), sysconfig.get_path("stdlib")]
    wanted += [
        f"{folder}/{name}"
        for name in (library, sysconfig.get_config_var("INSTSONAME") or "")
        if name
    ]
    found = {os.path.realpath(path) for path in wanted if os.path.exists(path)}  # noqa: PTH110
    return tuple(sorted(path for path in found if not is_seen(path, ())))


def _shared(path: str) -> list[str]:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return []
    if stat.S_ISLNK(mode):
        return ["--symlink", os.readlink(path), path]  # noqa: PTH115
    return ["--ro-bind", path, path]


def _own_folder(folders: Iterable[str]) -> list[str]:
    """
    Programs expect a folder of the user. They get an empty one that is discarded with the command,
    even if the real one lies in the system.
    """
    path = user_folder()
    if path is None or any(within(path, folder) for folder in folders):
        return []
    return ["--tmpfs", path]


def user_folder() -> str | None:
    """Return the user's canonical folder, or None if the user does not own it."""
    try:
        path = os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
        owner = os.stat(path).st_uid  # noqa: PTH116
    except (KeyError, OSError):
        return None
    return path if owner == os.getuid() and path not in ("/", *SYSTEM, *_PRIVATE) else None


def _no_key_names() -> list[str]:
    """The kernel's lists of the user's keys, which have no namespace."""
    return [
        word
        for path in ("/proc/keys", "/proc/key-users")
        if os.path.exists(path)  # noqa: PTH110
        for word in ("--ro-bind", "/dev/null", path)
    ]


def _name_servers() -> list[str]:
    """Bind the name servers' file, which is often a link into the private `/run`."""
    real = os.path.realpath(_NAME_SERVERS)
    return ["--ro-bind", real, real] if not within(real, "/etc") and os.path.isfile(real) else []  # noqa: PTH113


def _is_seen(name: str, view: FileView) -> bool:
    """Return whether the name is visible, also as a parent folder of a bound path."""
    return is_seen(name, (*interpreter_paths(), *view.read)) or any(
        within(path, name) for path in (*view.read, *view.folders)
    )


def _covers(names: Iterable[str]) -> list[str]:
    """
    Put an empty folder over each name. It becomes read-only once nothing more has to be created in
    it.
    """
    words: list[str] = []
    for name in names:
        words += (
            ["--perms", "0555", "--tmpfs", name]
            if os.path.isdir(name)  # noqa: PTH112
            else ["--ro-bind", "/dev/null", name]
        )
    return words


def _mount_points(folder: str, hidden: Iterable[str]) -> list[str]:
    """
    Make each folder from here to the home a mount point. Mount points cannot be renamed, so the
    home cannot be moved from under its cover.
    """
    above = set()
    for name in hidden:
        path = os.path.dirname(name)  # noqa: PTH120
        while within(path, folder) and path != folder:
            above.add(path)
            path = os.path.dirname(path)  # noqa: PTH120
    return [word for path in sorted(above) for word in ("--bind", path, path)]
