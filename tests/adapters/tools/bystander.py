"""
Another program of the same user, with everything that a command must not reach: sockets, a
terminal, memory, queues, keys.

`python3 bystander.py FOLDER WORKSPACE`: prints one line of JSON with where each of them is, and
stays until its input closes. Each service answers with the word that a break-out looks for.
"""

import contextlib
import ctypes
import json
import os
import pty
import socket
import sys
import threading
import tty
from pathlib import Path

FOLDER, WORKSPACE = Path(sys.argv[1]), Path(sys.argv[2])
SECRET = b"one-time-code-417"
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.shmat.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


def serve(listener: socket.socket) -> None:
    while True:
        peer, _ = listener.accept()
        with contextlib.suppress(OSError):
            peer.sendall(SECRET)
        peer.close()


def listen(family: int, address: object) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.bind(address)
    made.listen(64)
    threading.Thread(target=serve, args=(made,), daemon=True).start()
    return made


def shared_memory() -> int:
    number = LIBC.shmget(0, 4096, 0o600 | 0o1000)
    if number >= 0:
        ctypes.memmove(LIBC.shmat(number, None, 0), SECRET, len(SECRET))
    return int(number)


def queue() -> str:
    name = f"/holdfast-{os.getpid()}"
    return name if LIBC.mq_open(name.encode(), os.O_RDWR | os.O_CREAT, 0o600, None) >= 0 else ""


def key() -> int:
    return int(
        LIBC.syscall(248, b"user", f"holdfast-{os.getpid()}".encode(), SECRET, len(SECRET), -4)
    )  # the user's own keyring


in_memory = ctypes.create_string_buffer(SECRET)
stream, in_workspace, datagrams = (
    FOLDER / "service.sock",
    WORKSPACE / "service.sock",
    FOLDER / "notes.sock",
)
held = [
    listen(socket.AF_UNIX, str(stream)),
    listen(socket.AF_UNIX, str(in_workspace)),
    listen(socket.AF_UNIX, f"\0holdfast-{os.getpid()}"),
]
gateway = listen(socket.AF_INET, ("127.0.0.1", 0))
notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notes.bind(str(datagrams))
ours, theirs = pty.openpty()
tty.setraw(theirs)
secret_file = os.open(FOLDER / "log", os.O_RDONLY)
shm_file = Path("/dev/shm") / f"holdfast-{os.getpid()}"
temporary = Path("/tmp") / f"holdfast-{os.getpid()}"
queue_name = queue()
for made in (shm_file, temporary):
    made.write_bytes(SECRET)
    made.chmod(0o600)
os.write(ours, SECRET)
print(  # noqa: T201
    json.dumps(
        {
            "pid": os.getpid(),
            "stream": str(stream),
            "in_workspace": str(in_workspace),
            "abstract": f"holdfast-{os.getpid()}",
            "datagrams": str(datagrams),
            "port": gateway.getsockname()[1],
            "terminal": os.ttyname(theirs),
            "file_descriptor": secret_file,
            "memory": ctypes.addressof(in_memory),
            "shared_memory": shared_memory(),
            "queue": queue_name,
            "key": key(),
            "shm_file": str(shm_file),
            "temporary": str(temporary),
        }
    ),
    flush=True,
)
sys.stdin.read()
for made in (shm_file, temporary):
    made.unlink(missing_ok=True)
if queue_name:
    LIBC.mq_unlink(queue_name.encode())
