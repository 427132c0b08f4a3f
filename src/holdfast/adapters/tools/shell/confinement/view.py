"""
What an isolated command sees of the file system: bubblewrap's words for one view.

The view starts empty. In order: the system, read-only; private `/tmp`, `/run`, `/dev`, `/proc` and
an empty folder of the user; the interpreter that waits for the command's turn; the paths of
`tools.shell.read`; the workspace, writable; covers over the Holdfast home and over the folders of
our own program where the workspace holds them; extra binds of the call. A later word lies over an
earlier one. Nothing of the user is in the view that is not named here.
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
from holdfast.adapters.tools.home_guard import Guarded
from holdfast.adapters.tools.shell.confinement.mounts import within

# stands for the number of the descriptor that bubblewrap reads its seccomp filter from
FILTER = "{filter}"

# `/var` holds spools, logs and sockets, and is left out, but for certificates where a distribution
# keeps them there.
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
    One more path of the host in the view. The source may lie anywhere; parents of the target are
    made.
    """

    source: str
    target: str
    read_only: bool = True


class View(msgspec.Struct, frozen=True, kw_only=True):
    """
    `folders` are writable: the workspace, and the folder of a command that a person let run outside
    of it.
    """

    guard: Guarded | None
    folders: tuple[str, ...]
    read: tuple[str, ...] = ()
    network: bool = False
    binds: tuple[Bind, ...] = ()


def view_words(view: View) -> list[str]:
    """All paths are canonical. The caller puts bubblewrap in front and `--` behind."""
    words = [*_APART, *(() if view.network else ("--unshare-net",)), "--seccomp", FILTER]
    for path in SYSTEM:
        words += _shared(path)
    # Read-only, since a line that root writes to the kernel's settings runs a program outside of
    # everything.
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


def is_seen(path: str, read: Iterable[str]) -> bool:
    """Whether a command finds this path in its view without any folder of the user's."""
    return any(within(path, os.path.realpath(each)) for each in (*SYSTEM, *read))


@functools.cache
def program_folders() -> tuple[str, ...]:
    """
    Where Holdfast itself, its packages and the user's own packages are loaded from: a command that
    writes there writes our code.
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
    Of the Python that waits inside the view, where it is not the system's: the program and its
    standard library.
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
    Programs want a folder of the user's: an empty one, forgotten with the command. Also where the
    real one lies in the system.
    """
    path = user_folder()
    if path is None or any(within(path, folder) for folder in folders):
        return []
    return ["--tmpfs", path]


def user_folder() -> str | None:
    """The canonical folder of the user; None where it is not one of the user's own."""
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
    """Often a link into `/run`, which is private."""
    real = os.path.realpath(_NAME_SERVERS)
    return ["--ro-bind", real, real] if not within(real, "/etc") and os.path.isfile(real) else []  # noqa: PTH113


def _is_seen(name: str, view: View) -> bool:
    """Also where it would be made up as the way to something below it."""
    return is_seen(name, (*interpreter_paths(), *view.read)) or any(
        within(path, name) for path in (*view.read, *view.folders)
    )


def _covers(names: Iterable[str]) -> list[str]:
    """An empty folder over each; made read-only once nothing more is to be made in it."""
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
    Each folder from here to the home becomes a mount point: those can't be renamed, so the home is
    not moved from under its cover.
    """
    above = set()
    for name in hidden:
        path = os.path.dirname(name)  # noqa: PTH120
        while within(path, folder) and path != folder:
            above.add(path)
            path = os.path.dirname(path)  # noqa: PTH120
    return [word for path in sorted(above) for word in ("--bind", path, path)]
