"""
The supervisor of one job: it starts the launcher, lets it go when it is itself let go, keeps what it says, ends it in time, and leaves word how it ended.

Run as `python -I -S supervise.py ...`, alone in a file and with few imports. It outlives whoever started it. It is code of ours and not confined, since the job's
folder lies in the home; the command is its child, in a group of its own, confined by the launcher, and gets a pipe and nothing of the home. The word it leaves is
written beside its place, synced and renamed: there whole, or not at all. If it dies without a word, nobody knows how the job ended.
Whoever of the job loses its parent becomes the supervisor's child, also one that left the group: nothing of a job is left when its word is.
"""

import _signal  # type: ignore[import-not-found]  # the builtin half: `signal` would import enum
import os
import select
import sys
import time

_GRACE_SECONDS = 2.0  # between asking a group to end and ending it
_LOOK_AGAIN_SECONDS = 0.05  # for a child of a child that has just become ours; a death wakes us at once
_SET_CHILD_SUBREAPER = 36
_READ_BYTES = 64 * 1024
_PIPE_BYTES_MAX = 1024 * 1024  # as much as a pipe holds that nobody with rights has made larger
CALL, OUTPUT, STATUS, TEMPORARY = "call", "output", "status", ".status.tmp"


def main(arguments: list[str]) -> None:
    go_fd, status_fd, place, seconds, bytes_max, wrapped, variable, *words = arguments
    go, status = int(go_fd), int(status_fd)
    try:
        folder_path, folder = _make_folder(place)
    except OSError as exc:
        os.write(status, f"nthe job's folder can't be made: {exc.strerror}".encode())
        os._exit(125)
    _say_whose(folder, variable.partition("=")[2])
    output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    woken = _wake_on_signals()
    _adopt_orphans()
    child = _Child(go, status, words, variable)
    os.set_inheritable(go, False)  # noqa: FBT003  its only parameter
    os.set_inheritable(status, False)  # noqa: FBT003
    said = os.read(child.status, 4096)
    os.write(status, said or b"nthe launcher died")
    os.close(status)
    if said[:1] != b"r" or os.read(go, 1) != b"g":
        # Nobody is left who could have said go: nothing ran, and nothing is left of it.
        child.give_up()
        for name in (OUTPUT, CALL):
            os.unlink(name, dir_fd=folder)
        os.rmdir(folder_path)  # noqa: PTH106
        os._exit(124)
    child.let_go()
    ended, total = _watch(child, output, woken, float(seconds), int(bytes_max), wrapped == "wrapped")
    code, failed = child.reap()
    _end_orphans(woken)
    os.fsync(output)
    _leave_word(folder, ended, code, total, failed)
    os._exit(0)


def _make_folder(place: str) -> tuple[str, int]:
    """Named after the job and after us, so that what an attempt which died left behind is never in the way, nor taken for ours."""
    os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
    path = f"{place}.{os.getpid()}.{_start_time()}"
    os.mkdir(path, 0o700)  # noqa: PTH102
    return path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _say_whose(folder: int, call: str) -> None:
    """The boot and the call, for whoever looks for the jobs of a life whose journal no longer tells of them. Not synced: a power cut ends the job too."""
    fd = os.open(CALL, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    os.write(fd, f"{_read('/proc/sys/kernel/random/boot_id').strip() or 'unknown'}\n{call}\n".encode())
    os.close(fd)


def _start_time() -> int:
    """As `processes.py` reads it from outside; 0 where there is no /proc."""
    stat = _read("/proc/self/stat")
    return int(stat.rpartition(")")[2].split()[19]) if stat else 0


def _read(path: str) -> str:
    """Of a file that the system makes up; empty where there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 4096).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _adopt_orphans() -> None:
    """From now on, whoever below us loses its parent is our child. Where the system has no such thing (macOS) it is not."""
    if sys.platform != "linux":
        return
    import _ctypes  # the builtin half, as in launch.py

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  what ctypes.c_long is made of
        _type_ = "l"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Long

    prctl = Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]  # None is this process
    prctl(*map(Long, (_SET_CHILD_SUBREAPER, 1, 0, 0, 0)))


def _reap_orphans(child: int) -> None:
    """Those that have ended by themselves: a job may run for days, and leave many."""
    while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None and found.si_pid != child:
        os.waitpid(found.si_pid, 0)


def _end_orphans(woken: int) -> None:
    """
    The command is over and reaped: every child that we still have was left behind by it, and each that ends may leave us more.

    A child that is not reaped yet keeps its number, so nobody else is ever met. What may not be ended (it has other rights than we) is left, after a while.
    """
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended:
            continue
        for pid in _children():
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                continue
        poll.poll(_LOOK_AGAIN_SECONDS * 1000)
        _drain(woken)


def _children() -> list[int]:
    names = filter(str.isdigit, os.listdir("/proc"))  # noqa: PTH208  a Path for each takes longer than the look
    return [int(name) for name in names if _read(f"/proc/{name}/stat").rpartition(")")[2].split()[1:2] == [str(os.getpid())]]


class _Child:
    """The launcher, which becomes the command. Its descriptors have the numbers that its words name."""

    def __init__(self, go: int, status: int, words: list[str], variable: str) -> None:
        self.out, out = os.pipe()
        self.status, status_write = os.pipe()
        go_read, self.go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            _hand_over({go_read: go, status_write: status})
            name, _, value = variable.partition("=")
            os.execve(words[0], words, {**os.environ, name: value})  # noqa: S606  bound and shown
        for fd in (out, status_write, go_read):
            os.close(fd)
        os.set_blocking(self.out, False)
        self._never_went = ""

    def let_go(self) -> None:
        try:
            os.write(self.go, b"g")
        except BrokenPipeError:
            self._never_went = "the launcher was ended by somebody"
        os.close(self.go)

    def give_up(self) -> None:
        os.close(self.go)
        _signal_group(self.pid, _signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def is_dead(self) -> bool:
        """Dead, not yet reaped: so its number and its group's stay its own."""
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def reap(self) -> tuple[int, str]:
        """(exit status, negative for a signal; what the launcher said if it could not become the command)."""
        _, raw = os.waitpid(self.pid, 0)
        said = b""
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        if poll.poll(0):
            said = os.read(self.status, 4096)
        return os.waitstatus_to_exitcode(raw), self._never_went or said[1:].decode("utf-8", "replace")


def _hand_over(moves: dict[int, int]) -> None:
    """Each descriptor to its number; first out of each other's way."""
    aside = {os.dup(fd): wanted for fd, wanted in moves.items()}
    for fd, wanted in aside.items():
        os.dup2(fd, wanted)
    for fd in aside:
        if fd not in aside.values():
            os.close(fd)


def _wake_on_signals() -> int:
    """A pipe that gets a byte when the child dies or somebody asks us to end."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGCHLD):
        _signal.signal(number, _heard)
    _signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


_asked: list[int] = []


def _heard(number: int, _frame: object) -> None:
    if number == _signal.SIGTERM:  # the others are for whoever sits at a terminal
        _asked.append(number)


def _watch(child: _Child, output: int, woken: int, seconds: float, bytes_max: int, wrapped: bool) -> tuple[str, int]:  # noqa: FBT001  one caller
    """Until the child is dead, by itself or by us. (how it ended, bytes it said)."""
    poll = select.poll()
    poll.register(child.out, select.POLLIN)
    poll.register(woken, select.POLLIN)
    total, ended, reading = 0, "exited", True
    deadline = time.monotonic() + seconds
    while not child.is_dead():
        if ended == "exited" and (_asked or time.monotonic() >= deadline):
            ended = "asked" if _asked else "timed_out"
            _ask(child.pid, wrapped)
            deadline = time.monotonic() + _GRACE_SECONDS
        elif ended != "exited" and time.monotonic() >= deadline:
            _signal_group(child.pid, _signal.SIGKILL)
            deadline = time.monotonic() + _GRACE_SECONDS
        for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000 + 1):
            if fd == woken:
                _drain(woken)
                _reap_orphans(child.pid)
            elif reading:
                total, reading = _keep(child.out, output, total, bytes_max)
                if not reading:
                    poll.unregister(child.out)
    # What the command left behind in its group ends with it; before it is reaped, its number is surely still its own.
    _signal_group(child.pid, _signal.SIGKILL)
    return ended, _keep_rest(child.out, output, total, bytes_max) if reading else total


def _keep_rest(source: int, output: int, total: int, bytes_max: int) -> int:
    """What lies in the pipe. Who left the group may go on to say more, without end: that is not waited for. The bytes said in all."""
    enough = total + _PIPE_BYTES_MAX
    reading = True
    while reading and total < enough:
        before = total
        total, reading = _keep(source, output, total, bytes_max)
        reading = reading and total != before
    return total


def _keep(source: int, output: int, total: int, bytes_max: int) -> tuple[int, bool]:
    """Up to the bound; what comes after it is counted. False: nobody can say more."""
    try:
        chunk = os.read(source, _READ_BYTES)
    except BlockingIOError:
        return total, True
    room = chunk[: max(0, bytes_max - total)]
    while room:
        try:
            room = room[os.write(output, room) :]
        except OSError:  # a full disk: the command goes on, its words are lost
            break
    return total + len(chunk), bool(chunk)


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        return


def _ask(group: int, wrapped: bool) -> None:  # noqa: FBT001
    """SIGTERM to the command. Bubblewrap, where it stands in front, would die and take the command with it unasked: its children are asked."""
    if not wrapped:
        _signal_group(group, _signal.SIGTERM)
        return
    for name in sorted(os.listdir("/proc"), key=len):  # noqa: PTH208  the eldest have the smaller numbers
        try:
            if name.isdigit() and int(name) != group and os.getpgid(int(name)) == group:
                os.kill(int(name), _signal.SIGTERM)
        except OSError:
            continue


def _signal_group(group: int, number: int) -> None:
    """Whoever may not be signalled (a command that became another user, by `sudo` where nothing confines it) is waited for: there is still its word to leave."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def _leave_word(folder: int, ended: str, code: int, total: int, failed: str) -> None:
    """Commit point: before the rename nobody knows how it ended; after the sync everybody will."""
    import json

    word = json.dumps({"ended": ended, "status": code, "bytes": total, "failed": failed, "at_ms": time.time_ns() // 1_000_000}).encode()
    fd = os.open(TEMPORARY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600, dir_fd=folder)
    os.write(fd, word)
    os.fsync(fd)
    os.close(fd)
    os.rename(TEMPORARY, STATUS, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
