"""
The launcher: a process that prepares everything, waits for one byte, and then becomes the command.

It runs under a bare `python -I -S`, already compiled and with few imports, because its start is
part of every shell call. In order, it:

1. receives the call and carries its name;
2. enters the bound folder and opens the bound interpreter, each checked by identity;
3. under Landlock, gives up all other rights for good (behind bubblewrap it has no others);
4. reports that it is ready, and waits.

If the pipe closes instead, the starting process is gone, and nothing runs. A launcher without a
call can receive one only from the holder of the pipe.
"""

# The builtin halves of ctypes, os and stat: importing the rest of each takes longer than all the
# work here.
import _ctypes
import _stat as stat
import posix
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_RULE_PATH_BENEATH = 1
_FILE_RIGHTS = 0b1100_0000_0000_0111  # execute, write, read, truncate, ioctl on devices
_MAKE_DEVICES = 1 << 6 | 1 << 11  # a device made by root bypasses every path rule
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights; 16 from version 5 on
_SCOPE_ABI = 6
_SCOPES = 0b11  # no abstract sockets and no signals to processes outside
_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET, _SET_DUMPABLE, _SET_SECCOMP = 38, 24, 4, 22
_FILTER_MODE = 2
_FILTER_STEP_BYTES = 8
_NAME = b"HOLDFAST_TOOL"
# A limit that kernels since 2.4 ignore. Every process that the command starts inherits it.
_RLIMIT_LOCKS = 10
_CAPABILITIES = 64  # as many as the kernel has numbers for
_LOOKING = 0b1101  # execute, read files, read folders
_DESCRIPTORS_MAX = 65536


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  the base of ctypes.c_long
    _type_ = "l"


class _Text(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  the base of ctypes.c_char_p
    _type_ = "z"


class _Function(_ctypes.CFuncPtr):
    """
    A function of the C library. All its numbers are `long` here, because a system call takes whole
    registers.
    """

    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


def _call(name: str, *arguments: int | bytes | None) -> int:
    function = _FUNCTIONS.get(name)
    if function is None:
        function = _FUNCTIONS[name] = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type]  # None is this process
    return int(function(*[_Long(each) if isinstance(each, int) else each for each in arguments]))


_FUNCTIONS: dict[str, _Function] = {}


def _u64(*numbers: int) -> bytes:
    return b"".join([number.to_bytes(8, sys.byteorder) for number in numbers])


class NotReady(Exception):
    """Reported to the process that prepared the call; nothing ran."""


def landlock_abi() -> int:
    """Return 0 if the kernel has no Landlock or it is switched off."""
    return max(0, _call("syscall", _CREATE_RULESET, None, 0, 1)) if sys.platform == "linux" else 0


def confine(allowed: list[str]) -> None:
    """
    Restrict this process and its children to the allowed paths.

    Each path begins with `r` (may be read and run) or `w` (all rights). The folders above a path
    need no right of their own.
    """
    abi = landlock_abi()
    rights = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1
    scopes = _SCOPES if abi >= _SCOPE_ABI else 0
    size = 24 if abi >= _SCOPE_ABI else 16 if abi >= 4 else 8  # noqa: PLR2004  the struct grew with versions 4 and 6
    ruleset = _call(
        "syscall", _CREATE_RULESET, _u64(rights, 0, scopes), size, 0
    )  # files, net, scoped
    if ruleset < 0:
        raise NotReady(f"landlock_create_ruleset: {posix.strerror(_ctypes.get_errno())}")
    for each in allowed:
        _allow(ruleset, each[1:], rights & ~_MAKE_DEVICES if each[0] == "w" else _LOOKING)
    if _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise NotReady("PR_SET_NO_NEW_PRIVS failed")
    if _call("syscall", _RESTRICT_SELF, ruleset, 0) != 0:
        raise NotReady(f"landlock_restrict_self: {posix.strerror(_ctypes.get_errno())}")
    posix.close(ruleset)


def install_filter(program: bytes) -> None:
    """
    Install the filter; from now on the kernel enforces it. The struct is a count, padding, and the
    address of the steps.
    """
    count = len(program) // _FILTER_STEP_BYTES
    struct = count.to_bytes(2, sys.byteorder) + bytes(6) + bytes(_Text(program))
    if _call("prctl", _SET_SECCOMP, _FILTER_MODE, struct, 0, 0) != 0:
        raise NotReady(f"the seccomp filter was refused: {posix.strerror(_ctypes.get_errno())}")


def drop_capabilities() -> None:
    """Drop all capabilities, for root. A user who may not drop them has none."""
    for capability in range(_CAPABILITIES):
        _call("prctl", _DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow one path. A path that cannot be opened stays forbidden."""
    try:
        fd = posix.open(path, posix.O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    except OSError:
        return
    try:
        rule = _u64(
            rights if stat.S_ISDIR(posix.fstat(fd).st_mode) else rights & _FILE_RIGHTS
        ) + fd.to_bytes(4, sys.byteorder)  # packed
        _call("syscall", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        posix.close(fd)


def _opened(path: str, identity: str, flags: int) -> int:
    fd = posix.open(path, flags | posix.O_CLOEXEC)
    facts = posix.fstat(fd)
    if f"{facts.st_dev}:{facts.st_ino}" != identity:
        raise NotReady(f"{path} has changed since this was approved")
    return fd


def main(arguments: list[str]) -> None:
    """Take two descriptors and the call. With descriptors alone, the call comes down the pipe."""
    go, status = int(arguments[0]), int(arguments[1])
    _close_all_but(go, status)
    for fd in (go, status):
        posix.set_inheritable(fd, False)  # noqa: FBT003  its only parameter
    words, environment = (arguments[2:], posix.environ) if arguments[2:] else _heard(go, status)
    mode, cwd, cwd_identity, program, program_identity, steps, *rest = words
    allowed, rest = _counted(rest)
    folders, rest = _counted(rest)
    try:
        _carry_name(environment.get(_NAME, b""))
        folder = _opened(
            cwd,
            cwd_identity,
            posix.O_RDONLY | posix.O_DIRECTORY
            if not hasattr(posix, "O_PATH")
            else posix.O_PATH | posix.O_DIRECTORY,
        )
        posix.fchdir(folder)
        # Read-only opens are not kept across exec. A program that may be run but not read is run by
        # its path.
        try:
            runnable: int | str = _opened(program, program_identity, posix.O_RDONLY)
        except PermissionError:
            runnable = program
        for each in folders:
            identity, _, path = each.partition(" ")
            posix.close(
                _opened(path, identity, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW)
            )
        _restore_signals()
        if mode == "limited":
            drop_capabilities()
            confine(allowed)
            install_filter(bytes.fromhex(steps))
    except (OSError, NotReady) as exc:
        posix.write(status, f"n{exc}".encode(errors="replace"))
        posix._exit(125)  # noqa: SLF001  os._exit is this one
    posix.write(status, b"r")
    if posix.read(go, 1) != b"g":
        posix._exit(124)  # noqa: SLF001  the pipe closed: no process is left to send the go byte
    try:
        posix.execve(runnable, rest, environment)
    except OSError as exc:
        posix.write(status, f"n{exc}".encode(errors="replace"))
        posix._exit(126)  # noqa: SLF001  os._exit is this one


def _counted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return a list that stands behind its length, and the rest."""
    count = 1 + int(words[0])
    return words[1:count], words[count:]


def _close_all_but(go: int, status: int) -> None:
    """
    Close every descriptor but input, output and these two: the starting process's other files are
    not for the command.
    """
    last = 2
    for fd in sorted((go, status)):
        posix.closerange(last + 1, fd)
        last = fd
    posix.closerange(last + 1, _DESCRIPTORS_MAX)


def _heard(go: int, status: int) -> tuple[list[str], dict[bytes, bytes]]:
    """
    Return the call's (words, environment), received from the holder of the pipe.

    Until then, no other process of this user may read this process's memory or open its
    descriptors, because a message on this pipe makes it run a command. A launcher with a call may
    be read again, because recovery looks for its name there.
    """
    _may_be_looked_into(0)
    posix.write(status, b"w")
    length = int.from_bytes(_read(go, 8), sys.byteorder)
    message = _read(go, length).split(b"\0")
    _may_be_looked_into(1)
    count = 1 + int(message[0])
    encoding = sys.getfilesystemencoding()
    return [each.decode(encoding, "surrogateescape") for each in message[count:]], dict(
        [each.split(b"=", 1) for each in message[1:count]]
    )


def _may_be_looked_into(number: int) -> None:
    if sys.platform == "linux":
        _call("prctl", _SET_DUMPABLE, number, 0, 0, 0)


def _read(fd: int, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = posix.read(fd, length - len(found))
        if not piece:
            posix._exit(124)  # noqa: SLF001  the pipe closed: there will be no call for us
        found += piece
    return found


def _carry_name(call: bytes) -> None:
    """
    Write the name where recovery reads it: in place, in the environment that this process was
    started with.
    """
    place = _call("getenv", _NAME)
    room = _call("strlen", place) if place else 0
    if len(call) > room:
        raise NotReady("there is no room for the call's name")
    if room:
        _call("memmove", place, call + bytes(room - len(call)), room)
    if call and sys.platform == "linux":
        _call("setrlimit", _RLIMIT_LOCKS, _u64(mark_of(call), mark_of(call)))


def mark_of(call: bytes) -> int:
    """
    Return a number for a call. It stays with processes that clear their environment or leave their
    group and session. See `shell/processes.py`.
    """
    mark = 0xCBF29CE484222325
    for byte in call:  # FNV-1a: the mark need not be hard to guess
        mark = (mark ^ byte) * 0x100000001B3 % 2**64
    return mark >> 2 | 1


def _restore_signals() -> None:
    """
    Restore the signals that Python ignores for itself, so that the command does not inherit that.
    """
    import _signal  # type: ignore[import-not-found]  # the builtin half: `signal` would import enum

    for number in (_signal.SIGPIPE, getattr(_signal, "SIGXFSZ", _signal.SIGPIPE), _signal.SIGINT):
        _signal.signal(number, _signal.SIG_DFL)


if __name__ == "__main__":
    main(sys.argv[1:])
