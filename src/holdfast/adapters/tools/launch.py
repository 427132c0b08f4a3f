"""
The launcher: a process that gets everything ready, waits for one byte, and then becomes the command.

Run as `python -I -S launch.py ...`, alone in a file and with few imports, since its start is part of every shell call. In order: enter
the bound folder and open the bound interpreter, each checked by identity; give up the Holdfast home for good; say that it is
ready; wait. If the pipe closes instead, whoever would have started us is gone, and nothing runs.
"""

import ctypes
import os
import stat
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1
_FILE_RIGHTS = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl on devices
_MAKE_DEVICES = 1 << 6 | 1 << 11  # a device made by root is a way around every path
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights; 16 from version 5 on
_SCOPE_ABI = 6
_SCOPES = 0b11  # no abstract sockets and no signals to processes outside
_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET = 38, 24
# Raw disks, kernel memory, mounts, tracing, modules, opening by handle: capabilities of root that don't care about paths.
_DROPPED = (2, 16, 17, 19, 20, 21, 22, 27, 38, 39, 40)
_RULES_MAX = 50_000
_LOOKING = 0b1101  # execute, read files, read folders
_KERNEL = frozenset({"/proc", "/sys"})  # root may only look there: a line written to core_pattern runs a program outside of everything
_RAW_DEVICES = frozenset({"mem", "kmem", "port"})


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32))


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class NotReady(Exception):
    """Said to whoever prepared the call; nothing ran."""


def landlock_abi() -> int:
    """0 where the kernel has none, or it is switched off."""
    return max(0, _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))) if sys.platform == "linux" else 0


def confine(denied: list[str]) -> None:
    """Everything but the denied paths stays in reach; they never again, for this process and all it starts."""
    libc = _libc()
    abi = landlock_abi()
    rights = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1 if denied else 0
    scopes = _SCOPES if abi >= _SCOPE_ABI else 0
    if not rights and not scopes:
        return
    size = 24 if abi >= _SCOPE_ABI else 16 if abi >= 4 else 8  # noqa: PLR2004  the struct grew with versions 4 and 6
    attributes = _Ruleset(rights, 0, scopes)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if ruleset < 0:
        raise NotReady(f"landlock_create_ruleset: {os.strerror(ctypes.get_errno())}")
    if denied:
        _allow_all_but(ruleset, denied, rights & ~_MAKE_DEVICES)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise NotReady("PR_SET_NO_NEW_PRIVS failed")
    if libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint32(0)) != 0:
        raise NotReady(f"landlock_restrict_self: {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)


def drop_capabilities() -> None:
    """For root. Who has no right to drop them has none of them either."""
    libc = _libc()
    for capability in _DROPPED:
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _allow_all_but(ruleset: int, denied: list[str], rights: int) -> None:
    """Landlock knows no exceptions, so every sibling along the way to a denied path is allowed one by one."""
    hidden = {(facts.st_dev, facts.st_ino) for facts in map(os.stat, denied)}
    on_the_way = {"/", "/dev"}
    for path in denied:
        while path != "/":
            path = os.path.dirname(path)  # noqa: PTH120, PLW2901  climbs
            on_the_way.add(path)
    left = _RULES_MAX
    for folder in sorted(on_the_way):
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue  # can't be listed, so nothing below it is allowed
        left -= len(names)
        if left < 0:
            raise NotReady(f"{folder} has too many entries to confine a command beside the Holdfast home")
        for name in names:
            path = (folder if folder.endswith("/") else folder + "/") + name
            if path not in on_the_way and path not in denied:
                _allow(ruleset, path, rights, hidden)


def _allow(ruleset: int, path: str, rights: int, hidden: set[tuple[int, int]]) -> None:
    """What can't be allowed stays out of reach."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        facts = os.fstat(fd)
        raw = stat.S_ISBLK(facts.st_mode) or (stat.S_ISCHR(facts.st_mode) and os.path.basename(path) in _RAW_DEVICES)  # noqa: PTH119
        if raw or stat.S_ISLNK(facts.st_mode) or (facts.st_dev, facts.st_ino) in hidden:
            return
        if path in _KERNEL and os.geteuid() == 0:
            rights &= _LOOKING
        rule = _Beneath(rights if stat.S_ISDIR(facts.st_mode) else rights & _FILE_RIGHTS, fd)
        _libc().syscall(_ADD_RULE, ruleset, ctypes.c_int(_RULE_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _opened(path: str, identity: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_CLOEXEC)
    facts = os.fstat(fd)
    if f"{facts.st_dev}:{facts.st_ino}" != identity:
        raise NotReady(f"{path} is not what it was when this was approved")
    return fd


def main(arguments: list[str]) -> None:
    mode, go_fd, status_fd, cwd, cwd_identity, program, program_identity, count, *rest = arguments
    go, status = int(go_fd), int(status_fd)
    for fd in (go, status):
        os.set_inheritable(fd, False)  # noqa: FBT003  its only parameter
    try:
        folder = _opened(cwd, cwd_identity, os.O_RDONLY | os.O_DIRECTORY if not hasattr(os, "O_PATH") else os.O_PATH | os.O_DIRECTORY)
        os.fchdir(folder)
        # Read-only opens are not kept across exec; a program that may be run but not read is run by its path.
        try:
            runnable: int | str = _opened(program, program_identity, os.O_RDONLY)
        except PermissionError:
            runnable = program
        if mode != "plain":
            drop_capabilities()
        if mode in ("landlock", "scoped"):
            confine(rest[: int(count)])
        _restore_signals()
    except (OSError, NotReady) as exc:
        os.write(status, f"n{exc}".encode(errors="replace"))
        os._exit(125)
    os.write(status, b"r")
    if os.read(go, 1) != b"g":
        os._exit(124)  # the pipe closed: nobody is left who could have said go
    try:
        os.execve(runnable, rest[int(count) :], os.environ)  # noqa: S606  this is what it is for
    except OSError as exc:
        os.write(status, f"n{exc}".encode(errors="replace"))
        os._exit(126)


def _restore_signals() -> None:
    """Python ignores these for itself; the command must not inherit that."""
    import _signal  # type: ignore[import-not-found]  # the builtin half: `signal` would import enum

    for number in (_signal.SIGPIPE, getattr(_signal, "SIGXFSZ", _signal.SIGPIPE), _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)


if __name__ == "__main__":
    main(sys.argv[1:])
