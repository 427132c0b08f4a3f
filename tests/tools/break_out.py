"""
A tool's process that tries to reach the Holdfast home by every way we know. Prints the ways that worked, one per line.

Started through the shell as `python3 break_out.py HOME KEY WORKSPACE HOLDFAST_PID`. It ends nobody and touches nothing outside the test's folders.
"""

import ctypes
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HOME, WORKSPACE, PARENT = Path(sys.argv[1]), Path(sys.argv[3]), int(sys.argv[4])
KEY = b"key-material"
LIBC = ctypes.CDLL(None, use_errno=True)


def read(path: "str | Path") -> bool:
    with open(path, "rb") as file:  # noqa: PTH123
        return KEY in file.read(100)


def try_direct() -> bool:
    return read(sys.argv[2])


def try_relative() -> bool:
    return read(os.path.relpath(sys.argv[2]))


def try_listing() -> bool:
    return bool(set(os.listdir(HOME)) - {WORKSPACE.name})  # noqa: PTH208


def try_symlink() -> bool:
    link = WORKSPACE / "to-the-key"
    link.unlink(missing_ok=True)
    link.symlink_to(sys.argv[2])
    return read(link)


def try_link_made_before() -> bool:
    return read(WORKSPACE / "made-before")


def try_hard_link() -> bool:
    os.link(sys.argv[2], WORKSPACE / "hard")
    return read(WORKSPACE / "hard")


def try_write() -> bool:
    Path(sys.argv[2]).write_bytes(b"forged key-material of ours")
    return True


def try_create() -> bool:
    (HOME / "answer").write_text("approve_once")
    return True


def try_truncate() -> bool:
    os.truncate(sys.argv[2], 0)
    return True


def try_remove() -> bool:
    Path(sys.argv[2]).unlink()
    return True


def try_rename_home() -> bool:
    HOME.rename(WORKSPACE / "moved")
    return True


def try_rename_above() -> bool:
    above = HOME.parent
    while above.parent not in (Path("/"), above):
        try:
            above.rename(above.with_name(above.name + "-moved"))
        except OSError:
            above = above.parent
            continue
        above.with_name(above.name + "-moved").rename(above)
        return True
    return False


def try_processes() -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for way in ("root", "cwd"):
                if attempt(lambda entry=entry, way=way: read(f"{entry}/{way}{sys.argv[2]}")):  # type: ignore[misc]
                    # Our own relatives show the same confined view; that is no way out.
                    return True
            for name in listing(f"{entry}/fd"):
                if attempt(lambda entry=entry, name=name: read(f"{entry}/fd/{name}") and "key" in str(Path(f"{entry}/fd/{name}").readlink())):  # type: ignore[misc]
                    return True
    return False


def listing(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path) if stat.S_ISREG(os.stat(f"{path}/{name}").st_mode)]  # noqa: PTH116, PTH208
    except OSError:
        return []


def try_memory() -> bool:
    with Path(f"/proc/{PARENT}/mem").open("rb"):
        return True


def try_environment() -> bool:
    return bool(Path(f"/proc/{PARENT}/environ").read_bytes())


def try_trace() -> bool:
    if LIBC.ptrace(16, PARENT, 0, 0) != 0:  # PTRACE_ATTACH
        return False
    os.waitpid(PARENT, 0)
    LIBC.ptrace(17, PARENT, 0, 0)
    return True


def try_signal() -> bool:
    os.kill(PARENT, 0)
    return True


def try_unmount() -> bool:
    return LIBC.umount2(os.fsencode(HOME), 2) == 0 and read(sys.argv[2])


def try_mount() -> bool:
    aside = WORKSPACE / "aside"
    aside.mkdir(exist_ok=True)
    if LIBC.mount(os.fsencode(HOME.parent), os.fsencode(aside), None, 4096, None) != 0:
        return False
    try:
        return read(aside / HOME.name / "keys" / "1.key")
    finally:
        LIBC.umount2(os.fsencode(aside), 2)


def try_namespaces() -> bool:
    """A user namespace of its own has all capabilities; what it inherits stays locked."""
    script = f"umount -l '{HOME}'; mkdir -p '{WORKSPACE}/n'; mount --bind '{HOME.parent}' '{WORKSPACE}/n'; cat '{sys.argv[2]}' '{WORKSPACE}/n/{HOME.name}/keys/1.key'"
    done = subprocess.run(["unshare", "--map-root-user", "--mount", "sh", "-c", script], check=False, capture_output=True)
    return KEY in done.stdout


class Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128))


def try_handle() -> bool:
    """Opening by inode number, past all paths."""
    handle, mount = Handle(128, 0), ctypes.c_int()
    if LIBC.name_to_handle_at(-100, os.fsencode(sys.argv[2]), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        return False
    fd = LIBC.open_by_handle_at(os.open("/", os.O_RDONLY | os.O_DIRECTORY), ctypes.byref(handle), os.O_RDONLY)
    return fd >= 0 and KEY in os.read(fd, 100)


def try_disk() -> bool:
    """The raw disk knows no folders."""
    for entry in Path("/sys/class/block").iterdir():
        if attempt(lambda entry=entry: open(f"/dev/{entry.name}", "rb").close() or True):  # type: ignore[misc]  # noqa: PTH123
            return True
        major, minor = (entry / "dev").read_text().split(":")
        if attempt(lambda: made_device(int(major), int(minor))):  # noqa: B023
            return True
    return False


def try_kernel() -> bool:
    """A program named there is run by the kernel itself. Opened, never written."""
    for name in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper"):
        if attempt(lambda name=name: os.close(os.open(name, os.O_WRONLY)) is None):  # type: ignore[misc]
            return True
    return False


def made_device(major: int, minor: int) -> bool:
    path = WORKSPACE / "disk"
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
    with path.open("rb"):
        return True


def attempt(way: Callable[[], bool]) -> bool:
    try:
        return bool(way())
    except OSError:
        return False


for name, way in list(globals().items()):
    if name.startswith("try_") and attempt(way):
        print(name)  # noqa: T201
print("tried")  # noqa: T201
