"""
The supervisor of one job. It starts the launcher, lets it go when it is itself let go, keeps its
output, ends it in time, and reports its end.

Run as `python -I -S jobs/supervisor.py ...`, with few imports. It outlives the process that started
it. The interpreter gets this one file and no package, so everything that it does is in here.

It is Holdfast's own code and is not confined, because the job's folder lies in the home. The
command is its child, in a process group of its own, and the launcher confines it. The command gets
a pipe and no access to the home.

The report is written to a temporary file, synced and renamed: it exists whole or not at all. Its
room on the disk is set aside before the command begins. If the supervisor dies without a report,
the job's end is unknown. The report carries a MAC. Its key
belongs to this job alone and comes through the pipe together with the go byte, after the launcher
was forked, so the command never had it. The report holds a digest of the output, computed from the
bytes of the command's pipe and not from the file.

Every process of the job that loses its parent becomes the supervisor's child, even one that left
the group. No process of a job is left when its report exists.
"""

import _blake2  # the builtin halves: `hashlib` and `signal` would import much more
import _signal  # type: ignore[import-not-found]
import os
import select
import sys
import time

_GRACE_SECONDS = 2.0  # between asking a group to end and killing it
_LOOK_AGAIN_SECONDS = (
    0.05  # for a grandchild that has just become our child; a death wakes us at once
)
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_READ_BYTES = 64 * 1024
_PIPE_BYTES_MAX = 1024 * 1024  # the largest pipe that an unprivileged process can make
_LEFT_NAMES_MAX = 16
_REPORT_BYTES_MAX = 8 * 1024  # more than the names above take, each of 15 bytes with escapes
CALL, OUTPUT, STATUS = "call", "output", "status"
KEY_BYTES, MAC_BYTES, GENERATION_BYTES = 32, 32, 4
_PERSON = b"holdfast job"  # keeps these MACs apart from every other use of BLAKE2


def go_message(generation: int, key: bytes) -> bytes:
    """
    Return the byte that lets the command go, with the key for the report. It is one write, short
    enough to arrive whole or not at all.
    """
    return b"g" + generation.to_bytes(GENERATION_BYTES, "big") + key


def seal(body: bytes, key: bytes) -> bytes:
    """Return a report as stored: one line of JSON and one line with its MAC."""
    return body + b"\n" + mac_of(body, key).encode() + b"\n"


def mac_of(body: bytes, key: bytes) -> str:
    return _blake2.blake2b(body, digest_size=MAC_BYTES, key=key, person=_PERSON).hexdigest()


def new_digest() -> "_blake2.blake2b":
    """Return a new digest for the output of a job."""
    return _blake2.blake2b(digest_size=32)


def main(arguments: list[str]) -> None:
    go_fd, status_fd, place, seconds, bytes_max, wrapped, variable, *words = arguments
    go, status = int(go_fd), int(status_fd)
    _keep_others_out()
    try:
        folder_path, folder = _make_folder(place)
        report = ReportFile(folder)
    except OSError as exc:
        os.write(status, f"nthe job's folder can't be made: {exc.strerror}".encode())
        os._exit(125)
    _say_whose(folder, variable.partition("=")[2])
    output = os.open(
        OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    woken = _wake_on_signals()
    _adopt_orphans()
    child = _Child(go, status, words, variable)
    os.set_inheritable(go, False)  # noqa: FBT003  its only parameter
    os.set_inheritable(status, False)  # noqa: FBT003
    said = os.read(child.status, 4096)
    os.write(status, said or b"nthe launcher died")
    os.close(status)
    go_bytes = _read_go(go) if said[:1] == b"r" else b""
    if not go_bytes:
        # No process is left that could send the go byte. Nothing ran, and nothing is left of the
        # job.
        child.give_up()
        for name in (OUTPUT, CALL, report.name):
            os.unlink(name, dir_fd=folder)
        os.rmdir(folder_path)  # noqa: PTH106
        os._exit(124)
    child.let_go()
    record = OutputFile(output, int(bytes_max))
    ended = _watch(child, record, woken, float(seconds), wrapped == "wrapped")
    code, failed = child.reap()
    left = _end_orphans(woken, child.pid)
    os.fsync(output)
    facts = {
        "ended": ended,
        "status": code,
        "failed": failed,
        **record.facts(),
        **left,
        **_own_facts(place),
        "at_ms": time.time_ns() // 1_000_000,
    }
    report.leave(facts, go_bytes)
    os._exit(0)


def _read_go(go: int) -> bytes:
    """
    Return generation and key once the go byte has come, or nothing if the pipe closed instead.
    """
    go_bytes = b""
    while len(go_bytes) < 1 + GENERATION_BYTES + KEY_BYTES:
        piece = os.read(go, 1 + GENERATION_BYTES + KEY_BYTES - len(go_bytes))
        if not piece:
            return b""
        go_bytes += piece
    os.close(go)
    return go_bytes[1:] if go_bytes[:1] == b"g" else b""


def _own_facts(place: str) -> dict[str, object]:
    """
    Return the job and the run that the report is about. A report about another run is not accepted.
    """
    job = os.path.basename(place)  # noqa: PTH119
    return {"job": job, "boot": _boot_id(), "group": os.getpid(), "start_time": _start_time()}


def _boot_id() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip() or "unknown"


def _make_folder(place: str) -> tuple[str, int]:
    """
    Create a folder named after the job and this process. Leftovers of a dead attempt are then never
    in the way and never mistaken for this run.
    """
    os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
    path = f"{place}.{os.getpid()}.{_start_time()}"
    os.mkdir(path, 0o700)  # noqa: PTH102
    return path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _say_whose(folder: int, call: str) -> None:
    """
    Record the boot and the call. A process that looks for the jobs of an instance needs them if the
    journal no longer names the job. Not synced: a power cut ends the job too.
    """
    fd = os.open(CALL, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    os.write(fd, f"{_boot_id()}\n{call}\n".encode())
    os.close(fd)


def _start_time() -> int:
    """Return the start time as `shell/processes.py` reads it from outside, or 0 without /proc."""
    stat = _read("/proc/self/stat")
    return int(stat.rpartition(")")[2].split()[19]) if stat else 0


def _read(path: str) -> str:
    """Read a file that the kernel generates. Return an empty text if it is missing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 4096).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _keep_others_out() -> None:
    """
    Keep other programs of this user from tracing this process, reading its memory or opening its
    descriptors: the key comes through one of them.
    """
    _prctl(_SET_DUMPABLE, 0)


def _adopt_orphans() -> None:
    """
    From now on, every descendant that loses its parent becomes our child. Systems without this
    feature (macOS) do not do so.
    """
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import _ctypes  # the builtin half, as in shell/launcher_child.py

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  the base of ctypes.c_long
        _type_ = "l"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = Long

    prctl = Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl"))  # type: ignore[arg-type]  # None is this process
    prctl(*map(Long, (option, value, 0, 0, 0)))


def _reap_orphans(child: int) -> None:
    """Reap orphans that ended by themselves. A job may run for days and leave many."""
    while (
        found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    ) is not None and found.si_pid != child:
        os.waitpid(found.si_pid, 0)


def _end_orphans(woken: int, group: int) -> dict[str, object]:
    """
    End every child that is left after the command was reaped. Each one that ends may leave further
    children.

    Return how many had left the command's group, and their names.

    A child that is not reaped yet keeps its number, so no other process is ever signalled. A
    process that cannot be ended, because it has other rights, is left alone after a while.
    """
    found: dict[int, str] = {}
    poll = select.poll()
    poll.register(woken, select.POLLIN)
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if ended:
            continue
        for pid, its_group, name in _children():
            if its_group != group:
                found.setdefault(pid, name)
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                continue
        poll.poll(_LOOK_AGAIN_SECONDS * 1000)
        _drain(woken)
    return {
        "left": len(found),
        "left_names": [found[pid] for pid in sorted(found)][:_LEFT_NAMES_MAX],
    }


def _children() -> list[tuple[int, int, str]]:
    """Return (number, group, name) of each child that is not a zombie."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  a Path for each takes longer than the check
        before, _, after = _read(f"/proc/{number}/stat").rpartition(")")
        state, parent, group = after.split()[:3] if after else ("", "", "")
        if parent == str(os.getpid()) and state != "Z":
            found.append((int(number), int(group), before.partition("(")[2]))
    return found


class _Child:
    """
    The launcher, which becomes the command. Its descriptors have the numbers that its arguments
    name.
    """

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
        """
        Return whether the child is dead. It is not reaped yet, so its number and its group stay its
        own.
        """
        found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return found is not None

    def reap(self) -> tuple[int, str]:
        """
        Return (exit status, negative for a signal; the launcher's message if it could not become
        the command).
        """
        _, raw = os.waitpid(self.pid, 0)
        said = b""
        poll = select.poll()
        poll.register(self.status, select.POLLIN)
        if poll.poll(0):
            said = os.read(self.status, 4096)
        return os.waitstatus_to_exitcode(raw), self._never_went or said[1:].decode(
            "utf-8", "replace"
        )


def _hand_over(moves: dict[int, int]) -> None:
    """Move each descriptor to its number. The first pass moves them out of each other's way."""
    copies = {os.dup(fd): wanted for fd, wanted in moves.items()}
    for fd, wanted in copies.items():
        os.dup2(fd, wanted)
    for fd in copies:
        if fd not in copies.values():
            os.close(fd)


def _wake_on_signals() -> int:
    """
    Return a pipe that receives a byte when the child dies or when this process is asked to end.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGCHLD):
        _signal.signal(number, _heard)
    _signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


_asked: list[int] = []


def _heard(number: int, _frame: object) -> None:
    if number == _signal.SIGTERM:  # the others come from a person at a terminal and are ignored
        _asked.append(number)


def _watch(child: _Child, record: "OutputFile", woken: int, seconds: float, wrapped: bool) -> str:  # noqa: FBT001  one caller
    """Wait until the child is dead, by itself or killed. Return how it ended."""
    poll = select.poll()
    poll.register(child.out, select.POLLIN)
    poll.register(woken, select.POLLIN)
    ended, reading = "exited", True
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
                reading = record.take(child.out)
                if not reading:
                    poll.unregister(child.out)
    # Processes left in the command's group end with it. The command is not reaped yet, so its
    # number is still its own.
    _signal_group(child.pid, _signal.SIGKILL)
    if reading:
        record.take_rest(child.out)
    return ended


class OutputFile:
    """The output of one job: kept up to a limit, counted beyond it, and digested as it arrives."""

    def __init__(self, output: int, bytes_max: int) -> None:
        self._output, self._room = output, bytes_max
        self.total = self.kept = 0
        self._digest = new_digest()

    def facts(self) -> dict[str, object]:
        return {"bytes": self.total, "kept": self.kept, "digest": self._digest.hexdigest()}

    def take(self, source: int) -> bool:
        """Read the available output. Return False if no process can write more."""
        try:
            chunk = os.read(source, _READ_BYTES)
        except BlockingIOError:
            return True
        self.total += len(chunk)
        self._keep(chunk[: self._room])
        return bool(chunk)

    def take_rest(self, source: int) -> None:
        """
        Read the rest of the pipe. A process that left the group may write more without end, so this
        does not wait for more.
        """
        enough = self.total + _PIPE_BYTES_MAX
        before = -1
        while before != self.total < enough:
            before = self.total
            self.take(source)

    def _keep(self, chunk: bytes) -> None:
        while chunk:
            try:
                written = os.write(self._output, chunk)
            except OSError:  # a full disk: the command continues, and no later output is kept
                self._room = 0
                return
            self._digest.update(chunk[:written])
            self.kept += written
            self._room -= written
            chunk = chunk[written:]


def _drain(fd: int) -> None:
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        return


def _ask(group: int, wrapped: bool) -> None:  # noqa: FBT001
    """
    Send SIGTERM to the command. If bubblewrap stands in front, it would die and take the command
    with it without asking, so its children are asked instead.
    """
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
    """
    Signal a group. A process that may not be signalled (an unconfined command that became another
    user by `sudo`) is waited for, because the report still has to be written.
    """
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


class ReportFile:
    """The report on its way. It holds its blocks from the start: the command may fill the disk."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self.name = f".{STATUS}.{os.urandom(8).hex()}.tmp"  # an unused name: nobody can guess it
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(self.name, flags, 0o600, dir_fd=folder)
        os.posix_fallocate(self._fd, 0, _REPORT_BYTES_MAX)

    def leave(self, facts: dict[str, object], go_bytes: bytes) -> None:
        """
        Write the report. Commit point: a crash before the rename leaves the job's end unknown;
        after the sync, every holder of the key can read it.
        """
        import json

        generation, key = (
            int.from_bytes(go_bytes[:GENERATION_BYTES], "big"),
            go_bytes[GENERATION_BYTES:],
        )
        body = json.dumps({**facts, "generation": generation}).encode()
        os.ftruncate(self._fd, os.write(self._fd, seal(body, key)))
        os.fsync(self._fd)
        os.close(self._fd)
        os.rename(self.name, STATUS, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)


if __name__ == "__main__":
    main(sys.argv[1:])
