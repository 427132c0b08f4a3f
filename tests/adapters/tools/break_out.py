"""
A tool's process that tries to reach what it was not given, by every way we know. Prints the ways
that worked, one per line.

Started through the shell as `python3 break_out.py FACTS PID`: a JSON file that says where
everything is, and the process that started it. It ends nobody, and changes nothing outside the
test's folders. Every way returns whether it got through.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

INHERITED = set(os.listdir("/proc/self/fd")) - {"0", "1", "2", "3"}  # noqa: PTH208  3 is the listing itself
FACTS = json.loads(Path(sys.argv[1]).read_text())
HOME, WORKSPACE, USER = Path(FACTS["home"]), Path(FACTS["workspace"]), Path(FACTS["user"])
KEYS = HOME / "keys"
THEM = FACTS["bystander"]  # another program of the user
PID, HOLDFAST = THEM["pid"], int(sys.argv[2])
KEY, SECRET = b"key-material", b"one-time-code-417"
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


def has(word: bytes, path: "str | Path") -> bool:
    with open(path, "rb") as file:  # noqa: PTH123
        return word in file.read(200)


# --- the Holdfast home


def try_key() -> bool:
    return has(KEY, KEYS / "1.key")


def try_key_relative() -> bool:
    return has(KEY, os.path.relpath(KEYS / "1.key"))


def try_listing() -> bool:
    return bool(set(os.listdir(HOME)) - {WORKSPACE.name})  # noqa: PTH208


def try_key_symlink() -> bool:
    link = WORKSPACE / "to-the-key"
    link.unlink(missing_ok=True)
    link.symlink_to(KEYS / "1.key")
    return has(KEY, link)


def try_key_link_made_before() -> bool:
    return has(KEY, WORKSPACE / "made-before")


def try_key_hard_link() -> bool:
    os.link(KEYS / "1.key", WORKSPACE / "hard")
    return has(KEY, WORKSPACE / "hard")


def try_key_by_own_root() -> bool:
    return has(KEY, f"/proc/self/root{KEYS}/1.key")


def try_key_rename() -> bool:
    (KEYS / "renamed.key").rename(WORKSPACE / "renamed.key")
    return has(KEY, WORKSPACE / "renamed.key")


def try_key_write() -> bool:
    (KEYS / "written.key").write_bytes(b"forged")
    return True


def try_home_create() -> bool:
    (HOME / "answer").write_text("approve_once")
    return True


def try_key_truncate() -> bool:
    os.truncate(KEYS / "truncated.key", 0)
    return True


def try_key_remove() -> bool:
    (KEYS / "removed.key").unlink()
    return True


def try_key_chmod() -> bool:
    (KEYS / "opened.key").chmod(0o644)
    return True


def try_home_chmod() -> bool:
    HOME.chmod(0o755)
    return True


def try_key_chown() -> bool:
    os.chown(KEYS / "opened.key", -1, os.getgid())
    return True


def try_key_chmod_by_descriptor() -> bool:
    """A descriptor without rights to read is enough for the newest call."""
    fd = os.open(KEYS / "opened.key", os.O_PATH)
    return LIBC.syscall(452, fd, b"", 0o644, 0x1000) == 0


def try_key_chmod_by_proc() -> bool:
    fd = os.open(KEYS / "opened.key", os.O_PATH)
    Path(f"/proc/self/fd/{fd}").chmod(0o644)
    return True


def try_key_times() -> bool:
    os.utime(KEYS / "opened.key", (1, 1))
    return True


def try_key_attribute() -> bool:
    os.setxattr(KEYS / "opened.key", "user.note", b"x")
    return True


def try_home_rename() -> bool:
    HOME.rename(HOME.with_name("moved"))
    HOME.with_name("moved").rename(HOME)
    return True


def try_home_rename_above() -> bool:
    """A folder that the view made up, on the way to the workspace, is nobody's."""
    above, real = HOME.parent, WORKSPACE.stat().st_dev
    while above.parent not in (Path("/"), above) and above.stat().st_dev == real:
        moved = above.with_name(above.name + "-moved")
        with contextlib.suppress(OSError):
            above.rename(moved)
            moved.rename(above)
            return True
        above = above.parent
    return False


def try_home_watch() -> bool:
    return int(LIBC.inotify_add_watch(LIBC.inotify_init1(0), os.fsencode(KEYS), 0xFFF)) >= 0


# --- files of the user


def try_log() -> bool:
    return has(SECRET, USER / "log")


def try_log_symlink() -> bool:
    return has(SECRET, WORKSPACE / "to-the-log")


def try_log_from_above() -> bool:
    above = os.open("..", os.O_PATH)
    return SECRET in os.read(
        os.open(os.path.relpath(USER / "log", WORKSPACE.parent), os.O_RDONLY, dir_fd=above), 200
    )


def try_log_write() -> bool:
    with (USER / "log").open("ab") as file:
        file.write(b"x")
    return True


def try_user_listing() -> bool:
    return "log" in os.listdir(USER)  # noqa: PTH208


def try_start_up_file() -> bool:
    (USER / ".bashrc").write_text("echo hello")
    return True


def try_packages_of_the_user() -> bool:
    (USER / "lib" / "site-packages" / "evil.pth").write_text("import os")
    return True


def try_user_chmod() -> bool:
    (USER / "log").chmod(0o644)
    return True


def try_user_metadata() -> bool:
    return (USER / "log").stat().st_size > 0


def try_temporary_file() -> bool:
    return has(SECRET, THEM["temporary"])


def try_shared_memory_file() -> bool:
    return has(SECRET, THEM["shm_file"])


# --- processes


def try_process_list() -> bool:
    return any(b"bystander.py" in words for words in map(words_of, os.listdir("/proc")))  # noqa: PTH208


def words_of(name: str) -> bytes:
    try:
        return Path(f"/proc/{name}/cmdline").read_bytes()
    except OSError:
        return b""


def is_them() -> bool:
    """In a namespace of its own, the number is somebody else's."""
    return b"bystander.py" in words_of(str(PID)) or not Path(f"/proc/{PID}").exists()


def try_signal() -> bool:
    os.kill(PID, 0)
    return is_them()


def try_signal_holdfast() -> bool:
    os.kill(HOLDFAST, 0)
    return b"shell_process.py" in words_of(str(HOLDFAST))


def try_signal_by_descriptor() -> bool:
    signal.pidfd_send_signal(os.pidfd_open(PID), 0)
    return is_them()


def try_environment() -> bool:
    return b"BYSTANDER=" in Path(f"/proc/{PID}/environ").read_bytes()


def try_environment_of_holdfast() -> bool:
    return b"PYTHONPATH=" in Path(f"/proc/{HOLDFAST}/environ").read_bytes()


def try_memory() -> bool:
    with Path(f"/proc/{PID}/mem").open("rb", buffering=0) as file:
        file.seek(THEM["memory"])
        return SECRET in file.read(64)


class Iov(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def try_memory_by_call() -> bool:
    room = ctypes.create_string_buffer(64)
    mine, its = Iov(ctypes.addressof(room), 64), Iov(THEM["memory"], 64)
    return (
        LIBC.process_vm_readv(PID, ctypes.byref(mine), 1, ctypes.byref(its), 1, 0) > 0
        and SECRET in room.raw
    )


def try_trace() -> bool:
    if LIBC.ptrace(16, PID, 0, 0) != 0:  # PTRACE_ATTACH
        return False
    os.waitpid(PID, 0x40000000)
    LIBC.ptrace(17, PID, 0, 0)
    return True


def try_root_of_process() -> bool:
    return has(KEY, f"/proc/{PID}/root{KEYS}/1.key")


def try_root_of_any_process() -> bool:
    """Also of those in front of us, in our own namespace."""
    return any(
        attempt(lambda name=name: has(KEY, f"/proc/{name}/root{KEYS}/1.key"))
        for name in os.listdir("/proc")  # noqa: PTH208
        if name.isdigit()
    )  # type: ignore[misc]


def try_folder_of_process() -> bool:
    return has(SECRET, f"/proc/{PID}/cwd/log")


def try_descriptor_of_process() -> bool:
    return has(SECRET, f"/proc/{PID}/fd/{THEM['file_descriptor']}")


def try_descriptor_by_call() -> bool:
    fd = LIBC.syscall(438, os.pidfd_open(PID), THEM["file_descriptor"], 0)  # pidfd_getfd
    return fd >= 0 and SECRET in os.pread(fd, 64, 0)


def try_priority() -> bool:
    os.setpriority(os.PRIO_PROCESS, PID, 19)
    return is_them()


def try_bounds() -> bool:
    import resource

    soft, hard = resource.prlimit(PID, resource.RLIMIT_CORE)
    resource.prlimit(PID, resource.RLIMIT_CORE, (soft, hard))
    return is_them()


def try_processors() -> bool:
    os.sched_setaffinity(PID, os.sched_getaffinity(0))
    return is_them()


def try_inherited_descriptors() -> bool:
    return bool(INHERITED)


def try_survive() -> bool:
    """
    Leaves the group, closes everything, forgets the call's name. The test looks whether it is still
    there.
    """
    code = "import os,sys;os.fork() and os._exit(0);os.setsid();os.fork() and os._exit(0);os.closerange(0,99);os.execve(sys.argv[1],['sleep','1000',sys.argv[2]],{})"
    tool = WORKSPACE / "survivor"
    with open(os.open(tool, os.O_WRONLY | os.O_CREAT, 0o755), "wb") as file:  # noqa: PTH123
        file.write(Path("/usr/bin/sleep").read_bytes())
    subprocess.run([sys.executable, "-c", code, tool, "0"], check=False)
    return False


# --- sockets


def answers(address: object, family: int = socket.AF_UNIX) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(20)
        made.connect(address)
        return SECRET in made.recv(100)


def try_unix_socket() -> bool:
    return answers(THEM["stream"])


def try_unix_socket_in_workspace() -> bool:
    return answers(THEM["in_workspace"])


def try_abstract_socket() -> bool:
    return answers("\0" + THEM["abstract"])


def try_datagram() -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        return made.sendto(b"x", THEM["datagrams"]) == 1


def try_datagram_of_a_pair() -> bool:
    """One of a pair may send to anybody, if it is of the right kind."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        with contextlib.suppress(OSError):
            made, _ = socket.socketpair(socket.AF_UNIX, kind)
            return made.sendto(b"x", THEM["datagrams"]) == 1
    return False


def try_stream_of_a_pair() -> bool:
    made, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    other.close()
    made.connect(THEM["in_workspace"])
    return SECRET in made.recv(100)


def try_setuid_program() -> bool:
    """Every user of the machine could be this user by it, outside of everything."""
    path = WORKSPACE / "as-the-user"
    path.unlink(missing_ok=True)
    path.touch()
    with contextlib.suppress(OSError):
        path.chmod(0o4755)
    fd = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fchmod(fd, 0o4755)
    found = bool(path.stat().st_mode & 0o6000)
    path.unlink()
    return found


def try_setuid_program_from_its_creation() -> bool:
    path = WORKSPACE / "born-as-the-user"
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o6755))
    found = bool(path.stat().st_mode & 0o6000)
    path.unlink()
    return found


def try_terminal_multiplexer() -> bool:
    """The user's prompt waits in there: a line of ours would be the answer."""
    words = ["tmux", "-S", FACTS["tmux"], "send-keys", "approve_once", "Enter"]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0


def try_loopback() -> bool:
    return answers(("127.0.0.1", THEM["port"]), socket.AF_INET)


def try_socket_list() -> bool:
    return THEM["stream"].encode() in Path("/proc/net/unix").read_bytes()


def try_other_abi() -> bool:
    """A socket by the numbers of another ABI, in a child, since the answer may be its end."""
    child = os.fork()
    if child == 0:
        os._exit(0 if LIBC.syscall(0x40000000 + 41, socket.AF_UNIX, 1, 0) >= 0 else 1)
    return os.waitpid(child, 0)[1] == 0


def try_ring() -> bool:
    return LIBC.syscall(425, 4, ctypes.create_string_buffer(120)) >= 0


def try_vsock() -> bool:
    with socket.socket(40, socket.SOCK_STREAM):
        return True


# --- the user's other things in the kernel


def try_shared_memory() -> bool:
    at = LIBC.shmat(THEM["shared_memory"], None, 0o10000)
    return at not in (None, ctypes.c_void_p(-1).value) and SECRET in ctypes.string_at(at, 64)


def try_queue() -> bool:
    return bool(THEM["queue"]) and LIBC.mq_open(THEM["queue"].encode(), os.O_RDONLY) >= 0


def try_keyring() -> bool:
    room = ctypes.create_string_buffer(64)
    return LIBC.syscall(250, 11, THEM["key"], room, 64, 0) > 0 and SECRET in room.raw


# --- terminals


def try_terminal_write() -> bool:
    fd = os.open(THEM["terminal"], os.O_WRONLY | os.O_NOCTTY)
    return os.write(fd, b"x") == 1


def try_terminal_read() -> bool:
    fd = os.open(THEM["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    return SECRET in os.read(fd, 100)


def try_terminal_settings() -> bool:
    fd = os.open(THEM["terminal"], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    return fcntl.ioctl(fd, 0x5401, bytes(60)) != b""


def try_terminal_of_its_own() -> bool:
    os.close(os.open("/dev/tty", os.O_RDWR))
    return True


def try_terminal_type() -> bool:
    fd = os.open(THEM["terminal"], os.O_RDWR)
    fcntl.ioctl(fd, 0x5412, b"y")
    return True


# --- rights and mounts


def try_other_rights() -> bool:
    done = subprocess.run([WORKSPACE / "runs-as-root", "-u"], check=False, capture_output=True)
    return done.stdout.strip() == b"0" and os.getuid() != 0


def try_mount() -> bool:
    aside = WORKSPACE / "aside"
    aside.mkdir(exist_ok=True)
    if LIBC.mount(os.fsencode(HOME.parent), os.fsencode(aside), None, 4096, None) != 0:
        return False
    try:
        return has(KEY, aside / HOME.name / "keys" / "1.key")
    finally:
        LIBC.umount2(os.fsencode(aside), 2)


def try_new_mount() -> bool:
    return (
        LIBC.syscall(430, b"tmpfs", 0) >= 0 or LIBC.syscall(428, -100, b"/", 1) >= 0
    )  # fsopen, open_tree


def try_unmount() -> bool:
    return LIBC.umount2(os.fsencode(HOME), 2) == 0 and has(KEY, KEYS / "1.key")


def try_namespaces() -> bool:
    """A user namespace of its own has all capabilities."""
    return (
        subprocess.run(
            ["unshare", "--map-root-user", "--mount", "true"], check=False, capture_output=True
        ).returncode
        == 0
    )


def try_namespace_of_process() -> bool:
    return LIBC.setns(os.open(f"/proc/{PID}/ns/net", os.O_RDONLY), 0) == 0


def try_change_root() -> bool:
    return LIBC.chroot(os.fsencode(WORKSPACE)) == 0


class Handle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128))


def try_handle() -> bool:
    """Opening by inode number, past all paths."""
    handle, mount = Handle(128, 0), ctypes.c_int()
    if (
        LIBC.name_to_handle_at(
            -100, os.fsencode(KEYS / "1.key"), ctypes.byref(handle), ctypes.byref(mount), 0
        )
        != 0
    ):
        return False
    fd = LIBC.open_by_handle_at(
        os.open("/", os.O_RDONLY | os.O_DIRECTORY), ctypes.byref(handle), os.O_RDONLY
    )
    return fd >= 0 and KEY in os.read(fd, 100)


def try_disk() -> bool:
    """The raw disk knows no folders."""
    major, minor = FACTS["disk"]
    path = WORKSPACE / "disk"
    with contextlib.suppress(OSError):
        os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDONLY))
        return True
    return any(
        attempt(lambda name=name: os.close(os.open(f"/dev/{name}", os.O_RDONLY)) is None)
        for name in ("vda", "sda", "nvme0n1", "mem")
    )  # type: ignore[misc]


def try_kernel() -> bool:
    """A program named there is run by the kernel itself. Opened, never written."""
    names = (
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/sys/kernel/uevent_helper",
        "/proc/sysrq-trigger",
    )
    return any(
        attempt(lambda name=name: os.close(os.open(name, os.O_WRONLY)) is None) for name in names
    )  # type: ignore[misc]


def try_system_write() -> bool:
    """For root; others can't anyway."""
    folders = ("/usr/local/bin", "/etc", "/opt", "/", "/usr/lib")
    return any(
        attempt(
            lambda folder=folder: (
                os.close(os.open(f"{folder}/holdfast-x", os.O_WRONLY | os.O_CREAT)) is None
            )
        )
        for folder in folders
    )  # type: ignore[misc]


def attempt(way: Callable[[], bool]) -> bool:
    try:
        return bool(way())
    except (OSError, struct.error):
        return False


left_out = set(FACTS.get("left_out", ()))
for name, way in list(globals().items()):
    if name.startswith("try_") and name not in left_out and attempt(way):
        print(name)  # noqa: T201
print("tried")  # noqa: T201
