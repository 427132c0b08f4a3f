"""
Builds the kernel filter that decides which system calls a command may make.

A filter sees numbers, never paths. `common` refuses calls that bypass every path (io_uring,
keyrings, mounts, foreign ABIs) and sockets that reach services of the user. `limited` refuses those
that Landlock cannot judge by path. A refused call fails with an error number. Only a program of a
foreign ABI is killed.
"""

import platform
import struct
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from holdfast.ports.tools import CannotBind

Strictness = Literal["isolated", "limited"]

_EPERM, _EACCES, _ENOSYS, _ENETUNREACH = 1, 13, 38, 101
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _AND, _RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x54,
    0x06,
)
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _TYPE_MASK = (
    1,
    5,
    0xF,
)  # the rest of a type is flags; a datagram socket of a pair may send anywhere
_ROUTE = 0  # the one netlink protocol that ordinary programs need
_NAMESPACES = 0x7E020000  # CLONE_NEW*: user, mount, pid, net, ipc, uts, cgroup
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into a terminal


class Abi(NamedTuple):
    audit: int  # the kernel's number for it
    numbers: Mapping[str, int]


class _Machine(NamedTuple):
    audit: int
    old: Mapping[str, int]  # calls numbered before the architectures shared their numbers


def _numbered(text: str) -> Mapping[str, int]:
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


# Calls since Linux 5.0 have the same number on every architecture.
_SHARED = _numbered(
    """
    io_uring_setup 425 io_uring_enter 426 io_uring_register 427 open_tree 428 move_mount 429
    fsopen 430 fsconfig 431 fsmount 432 fspick 433 clone3 435 mount_setattr 442 fchmodat2 452
    setxattrat 463 removexattrat 466 open_tree_attr 467 file_setattr 469
    """
)
_X86_64 = _numbered(
    """
    ioctl 16 shmget 29 shmat 30 shmctl 31 socket 41 socketpair 53 clone 56 semget 64 semop 65
    semctl 66 shmdt 67 msgget 68 msgsnd 69 msgrcv 70 msgctl 71 chmod 90 chown 92 lchown 94
    syslog 103 utime 132 setpriority 141 sched_setparam 142 sched_setscheduler 144
    pivot_root 155 chroot 161 mount 165 umount2 166 setxattr 188 lsetxattr 189 removexattr 197
    lremovexattr 198 sched_setaffinity 203 semtimedop 220 utimes 235 mq_open 240 mq_unlink 241
    add_key 248 request_key 249 keyctl 250 ioprio_set 251 inotify_add_watch 254 fchownat 260
    futimesat 261 fchmodat 268 unshare 272 utimensat 280 perf_event_open 298 fanotify_init 300
    prlimit64 302 name_to_handle_at 303 open_by_handle_at 304 setns 308 sched_setattr 314
    bpf 321 userfaultfd 323
    """
)
_AARCH64 = _numbered(
    """
    setxattr 5 lsetxattr 6 removexattr 14 lremovexattr 15 inotify_add_watch 27 ioctl 29
    ioprio_set 30 umount2 39 mount 40 pivot_root 41 chroot 51 fchmodat 53 fchownat 54
    utimensat 88 unshare 97 syslog 116 sched_setparam 118 sched_setscheduler 119
    sched_setaffinity 122 setpriority 140 mq_open 180 mq_unlink 181 msgget 186 msgctl 187
    msgrcv 188 msgsnd 189 semget 190 semctl 191 semtimedop 192 semop 193 shmget 194 shmctl 195
    shmat 196 shmdt 197 socket 198 socketpair 199 add_key 217 request_key 218 keyctl 219
    clone 220 perf_event_open 241 prlimit64 261 fanotify_init 262 name_to_handle_at 264
    open_by_handle_at 265 setns 268 sched_setattr 274 bpf 280 userfaultfd 282
    """
)
_MACHINES = {"x86_64": _Machine(0xC000003E, _X86_64), "aarch64": _Machine(0xC00000B7, _AARCH64)}

_REFUSED = (
    *(
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ),  # opens and connects past every filter
    *("add_key", "request_key", "keyctl"),  # the user's keyrings
    *("mount", "umount2", "pivot_root", "chroot", "setns"),
    *(
        "open_tree",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "open_tree_attr",
    ),
    *("name_to_handle_at", "open_by_handle_at"),  # opens files by number, past all paths
    *("bpf", "perf_event_open", "userfaultfd", "syslog"),
)
# Landlock does not judge these: attributes of files by path, shared memory and queues of the user,
# notifications from other folders.
_REFUSED_IF_LIMITED = (
    *("chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "file_setattr"),
    *(
        "setxattr",
        "lsetxattr",
        "setxattrat",
        "removexattr",
        "lremovexattr",
        "removexattrat",
        "utime",
        "utimes",
        "futimesat",
    ),
    *(
        "shmget",
        "shmat",
        "shmctl",
        "shmdt",
        "semget",
        "semop",
        "semctl",
        "semtimedop",
        "msgget",
        "msgsnd",
        "msgrcv",
        "msgctl",
    ),
    *("mq_open", "mq_unlink", "inotify_add_watch", "fanotify_init"),
)
# The first argument is a process; 0 is the caller itself.
_SELF_ONLY = (
    "prlimit64",
    "sched_setparam",
    "sched_setscheduler",
    "sched_setaffinity",
    "sched_setattr",
)


def abi_of(machine: str) -> Abi | None:
    """
    Return None if no filter can be built.

    >>> abi_of("riscv64") is None
    True
    """
    found = _MACHINES.get(machine)
    return None if found is None else Abi(found.audit, {**_SHARED, **found.old})


def filter_of(strictness: Strictness, *, network: bool, machine: str | None = None) -> bytes:
    """
    Return the filter in the kernel's format. Raise CannotBind on a machine whose calls are not
    known here.
    """
    machine = machine or platform.machine()
    abi = abi_of(machine)
    if abi is None:
        raise CannotBind(
            f"commands can't be confined on {machine}: its system calls are not known",
            code="unconfined",
        )
    inet = (
        strictness == "isolated" or network
    )  # isolated and without network, the only interface is a loopback of its own
    rules = [
        _refuse(abi, _REFUSED, _EPERM),
        _refuse(abi, ("clone3",), _ENOSYS),
        *_common(abi, inet=inet),
    ]
    if strictness == "limited":
        rules += [_refuse(abi, _REFUSED_IF_LIMITED, _EPERM), *_limited(abi)]
    return b"".join([_head(abi, x32=machine == "x86_64"), *rules, _step(_RETURN, _ALLOW)])


def _head(abi: Abi, *, x32: bool) -> bytes:
    """
    Refuse other ABIs first. Their calls have other numbers, so they are never looked up in this
    table.
    """
    arch = [_step(_LOAD, _ARCH_AT), _step(_JUMP_EQUAL, abi.audit, 1, 0), _step(_RETURN, _KILL)]
    other = [_step(_LOAD, _NUMBER_AT), _step(_JUMP_AT_LEAST, _X32_BIT, 0, 1), _step(_RETURN, _KILL)]
    return b"".join(arch + (other if x32 else []))


def _common(abi: Abi, *, inet: bool) -> list[bytes]:
    verdict = _allow() if inet else _fail(_ENETUNREACH)
    families = [_step(_JUMP_EQUAL, family, 0, 1) + verdict for family in (_INET, _INET6)]
    netlink = [
        _step(_JUMP_EQUAL, _NETLINK, 0, 3),
        _argument(2),
        _step(_JUMP_EQUAL, _ROUTE, 0, 1),
        _allow(),
    ]
    pair = [
        _argument(1),
        _step(_AND, _TYPE_MASK),
        *(_step(_JUMP_EQUAL, kind, 0, 1) + _allow() for kind in (_STREAM, _SEQPACKET)),
    ]
    return [
        _rule(abi, "socket", [_argument(0), *families, *netlink, _fail(_EACCES)]),
        _rule(
            abi,
            "socketpair",
            [_argument(0), _step(_JUMP_EQUAL, _UNIX, 1, 0), _fail(_EACCES), *pair, _fail(_EACCES)],
        ),
        *(
            _rule(abi, name, [_argument(0), _step(_JUMP_ANY_BIT, _NAMESPACES, 0, 1), _fail(_EPERM)])
            for name in ("clone", "unshare")
        ),
        _rule(
            abi,
            "ioctl",
            [
                _argument(1),
                *(
                    _step(_JUMP_EQUAL, code, 0, 1) + _fail(_EPERM)
                    for code in (_TIOCSTI, _TIOCLINUX)
                ),
            ],
        ),
    ]


def _limited(abi: Abi) -> list[bytes]:
    """
    Restrict calls on other processes. `setpriority` and `ioprio_set` also take a group or a user;
    only the caller's own process or group is allowed.
    """
    own = [_argument(0), _step(_JUMP_EQUAL, 0, 1, 0), _fail(_EPERM)]
    mine = [_argument(1), _step(_JUMP_EQUAL, 0, 1, 0), _fail(_EPERM), _argument(0)]
    # By a descriptor (no path), the times of an opened file may change. A pointer has two halves.
    by_path = [
        _argument(1),
        _step(_JUMP_EQUAL, 0, 1, 0),
        _fail(_EPERM),
        _argument(1, high=True),
        _step(_JUMP_EQUAL, 0, 1, 0),
        _fail(_EPERM),
    ]
    return [
        *(_rule(abi, name, own) for name in _SELF_ONLY),
        _rule(abi, "setpriority", [*mine, _step(_JUMP_AT_LEAST, 2, 0, 1), _fail(_EPERM)]),
        _rule(abi, "ioprio_set", [*mine, _step(_JUMP_AT_LEAST, 3, 0, 1), _fail(_EPERM)]),
        _rule(abi, "utimensat", by_path),
    ]


def _refuse(abi: Abi, names: Iterable[str], error: int) -> bytes:
    known = [
        abi.numbers[name] for name in names if name in abi.numbers
    ]  # aarch64 never had chmod, utime and similar calls
    return _step(_LOAD, _NUMBER_AT) + b"".join(
        _step(_JUMP_EQUAL, number, 0, 1) + _fail(error) for number in known
    )


def _rule(abi: Abi, name: str, steps: list[bytes]) -> bytes:
    """Return a rule for one call. Steps that do not decide continue with the next rule."""
    body = b"".join(steps)
    return (
        _step(_LOAD, _NUMBER_AT) + _step(_JUMP_EQUAL, abi.numbers[name], 0, len(body) // 8) + body
    )


def _argument(index: int, *, high: bool = False) -> bytes:
    """Load one half of an argument. Both machines have the low half first."""
    return _step(_LOAD, _ARGUMENTS_AT + 8 * index + (4 if high else 0))


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _fail(error: int) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
