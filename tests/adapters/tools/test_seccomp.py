"""
The filter of system calls: numbers as the kernel's own headers have them, and verdicts as the
kernel would reach them.
"""

import re
import struct
from pathlib import Path

import pytest

from holdfast.adapters.tools.shell.confinement.seccomp import abi_of, filter_of
from holdfast.ports.tools import CannotBind

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, KILLED = 0x7FFF0000, 0x80000000
EPERM, EACCES, ENOSYS, ENETUNREACH = 0x00050001, 0x0005000D, 0x00050026, 0x00050065
UNIX, INET, INET6, NETLINK, VSOCK = 1, 2, 10, 16, 40


def verdict(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """
    The kernel's own little machine: a register, a pointer, and the call as it is laid out in
    memory.
    """
    call = struct.pack(
        "=iIQ6Q",
        number if number < 1 << 31 else number - (1 << 32),
        arch,
        0,
        *(*arguments, *([0] * (6 - len(arguments)))),
    )
    steps = list(struct.iter_unpack("=HBBI", program))
    at, register = 0, 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                register = struct.unpack_from("=I", call, value)[0]
            case 0x15 | 0x35 | 0x45:
                hit = {
                    0x15: register == value,
                    0x35: register >= value,
                    0x45: bool(register & value),
                }[code]
                at += if_true if hit else if_false
            case 0x54:
                register &= value
            case 0x06:
                return value
            case _:
                pytest.fail(f"unknown step {code:#x}")


@pytest.mark.parametrize("machine", HEADERS)
def test_every_number_is_the_kernels(machine: str) -> None:
    header = next((Path(path) for path in HEADERS[machine] if Path(path).exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    found = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    abi = abi_of(machine)
    assert abi is not None
    assert {name: number for name, number in abi.numbers.items() if name in found} == {
        name: found[name] for name in abi.numbers if name in found
    }
    assert len(abi.numbers.keys() & found.keys()) >= 50


@pytest.mark.parametrize("machine", HEADERS)
@pytest.mark.parametrize(
    ("strictness", "network", "call", "expected"),
    [
        ("isolated", False, ("socket", UNIX, 1), EACCES),
        ("isolated", True, ("socket", UNIX, 2), EACCES),
        ("isolated", True, ("socket", VSOCK, 1), EACCES),
        ("isolated", False, ("socket", INET, 1), ALLOWED),
        ("isolated", False, ("socket", NETLINK, 3, 0), ALLOWED),
        ("isolated", False, ("socket", NETLINK, 3, 15), EACCES),
        ("limited", False, ("socket", INET, 1), ENETUNREACH),
        ("limited", False, ("socket", INET6, 1), ENETUNREACH),
        ("limited", True, ("socket", INET6, 1), ALLOWED),
        ("limited", True, ("socket", UNIX, 1), EACCES),
        # Half of an argument is all that the kernel looks at, too.
        ("isolated", True, ("socket", UNIX | 1 << 32, 1), EACCES),
        ("isolated", True, ("socketpair", UNIX, 1), ALLOWED),
        ("isolated", True, ("socketpair", UNIX, 5 | 0o2000000), ALLOWED),
        ("isolated", True, ("socketpair", UNIX, 2), EACCES),
        ("isolated", True, ("socketpair", UNIX, 3), EACCES),
        ("isolated", True, ("socketpair", INET, 1), EACCES),
        ("isolated", True, ("io_uring_setup",), EPERM),
        ("isolated", True, ("keyctl",), EPERM),
        ("isolated", True, ("clone3",), ENOSYS),
        ("isolated", True, ("clone", 0x11), ALLOWED),
        ("isolated", True, ("clone", 0x10000011), EPERM),
        ("isolated", True, ("unshare", 0x00020000), EPERM),
        ("isolated", True, ("unshare", 0x400), ALLOWED),
        ("isolated", True, ("ioctl", 0, 0x5412), EPERM),
        ("isolated", True, ("ioctl", 0, 0x5412 | 1 << 40), EPERM),
        ("isolated", True, ("ioctl", 0, 0x541C), EPERM),
        ("isolated", True, ("ioctl", 0, 0x5401), ALLOWED),
        ("isolated", True, ("fchmodat",), ALLOWED),
        ("isolated", True, ("fchmodat", 3, 0, 0o755), ALLOWED),
        ("isolated", True, ("fchmodat", 3, 0, 0o4755), EPERM),
        ("isolated", True, ("fchmodat2", 3, 0, 0o2755), EPERM),
        ("isolated", True, ("fchmod", 3, 0o1777), ALLOWED),
        ("isolated", True, ("fchmod", 3, 0o4755), EPERM),
        ("limited", True, ("fchmod", 3, 0o4755), EPERM),
        ("isolated", True, ("mknodat", 3, 0, 0o100644), ALLOWED),
        ("isolated", True, ("mknodat", 3, 0, 0o106755), EPERM),
        ("isolated", True, ("openat", 3, 0, 0o100, 0o644), ALLOWED),
        ("isolated", True, ("openat", 3, 0, 0o100, 0o4755), EPERM),
        ("limited", True, ("openat", 3, 0, 0o20200001, 0o4755), EPERM),  # a file without a name
        # A call that makes no file leaves in this place whatever was there.
        ("isolated", True, ("openat", 3, 0, 0o200000, 0o4755), ALLOWED),
        ("isolated", True, ("openat2", 3), ENOSYS),
        ("isolated", True, ("shmget",), ALLOWED),
        ("limited", True, ("fchmodat",), EPERM),
        ("limited", True, ("fchmodat2",), EPERM),
        ("limited", True, ("shmget",), EPERM),
        ("limited", True, ("prlimit64", 0), ALLOWED),
        ("limited", True, ("prlimit64", 4711), EPERM),
        ("limited", True, ("setpriority", 0, 0), ALLOWED),
        ("limited", True, ("setpriority", 2, 0), EPERM),
        ("limited", True, ("setpriority", 0, 4711), EPERM),
        ("limited", True, ("ioprio_set", 1, 0), ALLOWED),
        ("limited", True, ("ioprio_set", 3, 0), EPERM),
        ("limited", True, ("utimensat", 3, 0), ALLOWED),
        ("limited", True, ("utimensat", 3, 0x7F00), EPERM),
        ("limited", True, ("utimensat", 3, 1 << 40), EPERM),
    ],
)
def test_a_call_is_judged_by_its_numbers(
    machine: str, strictness: str, network: bool, call: tuple[str, *tuple[int, ...]], expected: int
) -> None:
    abi = abi_of(machine)
    assert abi is not None
    program = filter_of(strictness, network=network, machine=machine)  # type: ignore[arg-type]
    assert verdict(program, AUDIT[machine], abi.numbers[call[0]], *call[1:]) == expected


@pytest.mark.parametrize("strictness", ["isolated", "limited"])
def test_a_call_of_another_abi_is_never_looked_up(strictness: str) -> None:
    program = filter_of(strictness, network=True, machine="x86_64")  # type: ignore[arg-type]
    assert verdict(program, 0x40000003, 0) == KILLED  # i386
    assert verdict(program, AUDIT["x86_64"], 0x40000000 + 41, UNIX) == KILLED  # x32
    assert verdict(program, AUDIT["x86_64"], 0) == ALLOWED  # read
    assert verdict(filter_of(strictness, network=True, machine="aarch64"), 0x40000028, 0) == KILLED  # type: ignore[arg-type]  # 32-bit ARM


def test_a_machine_whose_calls_are_not_known_confines_nothing() -> None:
    with pytest.raises(CannotBind, match="riscv64"):
        filter_of("isolated", network=False, machine="riscv64")
