"""
Faults at a process's system calls, by strace: kill it there, fail the call once or from there on,
or return a false result. A size limit adds real short writes.

strace counts calls per thread, so `when=N` is the Nth call of any thread. `busiest` counts them in
a clean run, so that a sweep knows its end. For calls that Python's own start-up makes too, only
those on the given paths count.
"""

import os
import re
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LIMIT = "fsize"
"""
Not a call: the size at which files end, in bytes. The kernel cuts a write across it short, and the
next one fails.
"""

OPEN = "openat"
LONGER_THAN_ANY_WRITE = 1 << 24
HARMS: Mapping[str, str] = {
    "kill": "signal=SIGKILL:when={when}",
    "EIO": "error=EIO:when={when}",
    "EIO+": "error=EIO:when={when}+",
    "ENOSPC": "error=ENOSPC:when={when}",
    "ENOSPC+": "error=ENOSPC:when={when}+",
    "EDQUOT": "error=EDQUOT:when={when}",
    "EINTR": "error=EINTR:when={when}",
    # Reports that all bytes, or the first seven, were written, but nothing was. No disk may do so,
    # and even then the journal must not be trusted.
    "lie": f"retval={LONGER_THAN_ANY_WRITE}:when={{when}}",
    "short lie": "retval=7:when={when}",
    "short": "",
}
LIES = frozenset({"lie", "short lie"})
_TELLS_WHEN = (
    "-e",
    "quiet=exit,path-resolution,personality,thread-execve",
)  # of its output, only the line that it has attached
_LINE = re.compile(r"(\d+) +([a-z0-9_]+)\(")


class SyscallFault(NamedTuple):
    """
    One fault: the call (names joined by commas are one kind), the harm, and the number of the call.
    """

    call: str
    harm: str
    when: int

    def __str__(self) -> str:
        return f"{self.harm} at {self.call.partition(',')[0]} {self.when}"


class Said(NamedTuple):
    """
    Output and exit code of an ended process. `code` is None if it had to be killed from outside.
    """

    code: int | None
    out: str
    err: str


def run(
    strace: str,
    command: Sequence[str],
    fault: SyscallFault | None,
    *,
    paths: Sequence[Path],
    env: Mapping[str, str],
    cwd: Path,
    timeout_seconds: float,
) -> Said:
    """Run the command under this fault, or without one."""
    limit = fault.when if fault is not None and fault.call == LIMIT else None
    words = (
        [*_tracing(strace, fault, paths), *command]
        if fault is not None and limit is None
        else list(command)
    )
    process = subprocess.Popen(
        words,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=None  # noqa: PLW1509
        if limit is None
        else lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (limit, limit)
        ),  # a limit can't be set in another way
    )
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # killing strace alone leaves the traced process
        out, err = process.communicate()
        return Said(None, out, err)
    return Said(process.returncode, out, err)


@contextmanager
def attached(
    strace: str,
    pid: int,
    fault: SyscallFault | None,
    paths: Sequence[Path],
    *,
    seconds_max: float,
    trace: tuple[str, Path] | None = None,
) -> Iterator[None]:
    """
    Disturb a running process, or write down its calls (`trace`: which kind, and where to).

    Inside, the tracer is attached. At the end the caller waits for it: it ends with the last
    process that it follows.
    """
    if trace is not None:
        words = [*_strace(strace, trace[0], paths), "-o", str(trace[1])]
    elif fault is not None:
        words = [*_strace(strace, fault.call, paths), *_injection(fault)]
    else:
        yield
        return
    with subprocess.Popen(
        [*words, *_TELLS_WHEN, "-p", str(pid)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            tracer.kill()
            raise AssertionError(f"strace can't take hold of {pid}: {line}")
        try:
            yield
            tracer.wait(seconds_max)
        finally:
            tracer.kill()


def _tracing(strace: str, fault: SyscallFault, paths: Sequence[Path]) -> list[str]:
    quick = [] if fault.harm == "kill" else ["--seccomp-bpf"]  # with it strace injects no signals
    return [*_strace(strace, fault.call, paths), "-qq", *quick, *_injection(fault)]


def _injection(fault: SyscallFault) -> list[str]:
    return [
        "-o",
        "/dev/null",
        "-e",
        f"inject={fault.call}:{HARMS[fault.harm].format(when=fault.when)}",
    ]


def _strace(strace: str, calls: str, paths: Sequence[Path]) -> list[str]:
    words = [strace, "-f", "-e", f"trace={calls}", "-e", "signal=none"]
    if OPEN in calls.split(","):
        words += [word for path in paths for word in ("-P", str(path))]
    return words


def together(call: str, calls: Sequence[str]) -> str:
    """
    Return the calls that one run counts together: all of them, except opening, which is counted by
    its paths and so alone.
    """
    return call if call == OPEN else ",".join(each for each in calls if each != OPEN)


def busiest(trace: Path, call: str) -> int:
    """
    Return how many calls of this kind the busiest thread made, because strace counts per thread.
    """
    counted: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text().splitlines():
        if (match := _LINE.match(line)) is not None and match.group(2) in call.split(","):
            counted[match.group(1), match.group(2)] += 1
    return max(counted.values(), default=0)
