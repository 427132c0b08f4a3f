"""
Faults at a process's system calls, by strace: die there, be refused once or from there on, be lied to; and, by a size limit, truly short writes.

strace counts calls for each thread, so `when=N` is the Nth of any thread. `calls_in` counts them in a clean run, so that a sweep knows where to stop.
Only calls on the given paths count where start-up of Python itself would make noise.
"""

import os
import re
import resource
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LIMIT = "fsize"
"""Not a call: the size at which files end, in bytes. A write across it is cut short by the kernel, the next one fails."""

LONGER_THAN_ANY_WRITE = 1 << 24
HARMS: Mapping[str, str] = {
    "kill": "signal=SIGKILL:when={when}",
    "EIO": "error=EIO:when={when}",
    "EIO+": "error=EIO:when={when}+",
    "ENOSPC": "error=ENOSPC:when={when}",
    "ENOSPC+": "error=ENOSPC:when={when}+",
    "EDQUOT": "error=EDQUOT:when={when}",
    "EINTR": "error=EINTR:when={when}",
    # Says that all, or the first seven bytes, were written; nothing was. No disk may do so; the journal must still not be believed.
    "lie": f"retval={LONGER_THAN_ANY_WRITE}:when={{when}}",
    "short lie": "retval=7:when={when}",
    "short": "",
}
LIES = frozenset({"lie", "short lie"})
_LINE = re.compile(r"(\d+) +([a-z0-9_]+)\(")


class Fault(NamedTuple):
    """One thing that goes wrong: at which call (names joined by commas are one kind), how, and the how-manieth."""

    call: str
    harm: str
    when: int

    def __str__(self) -> str:
        return f"{self.harm} at {self.call.partition(',')[0]} {self.when}"


class Said(NamedTuple):
    """What a process left behind when it ended, however it did. `code` is None for one that had to be ended from outside."""

    code: int | None
    out: str
    err: str


def tracing(strace: str, fault: Fault | None, paths: Sequence[Path], *, trace: tuple[str, Path] | None = None) -> tuple[list[str], int | None]:
    """Words before a command that stays, and the size limit it gets; the tracer is its child's child, so that signals and codes are the command's own."""
    if trace is not None:
        calls, where = trace
        return [*_strace(strace, calls, paths), "-D", "-o", str(where)], None
    if fault is None:
        return [], None
    if fault.call == LIMIT:
        return [], fault.when
    return [*_tracing(strace, fault, paths), "-D"], None


def limited(limit: int | None) -> Callable[[], None] | None:
    """For Popen's `preexec_fn`: files end there."""
    return None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def run(
    strace: str, command: Sequence[str], fault: Fault | None, *, paths: Sequence[Path], env: Mapping[str, str], cwd: Path, timeout_seconds: float
) -> Said:
    """Run it under this fault; without one, as it is."""
    limit = fault.when if fault is not None and fault.call == LIMIT else None
    words = [*_tracing(strace, fault, paths), *command] if fault is not None and limit is None else list(command)
    process = subprocess.Popen(  # noqa: S603
        words,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=limited(limit),  # noqa: PLW1509  # a limit can be set in no other way
    )
    try:
        out, err = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # strace alone would leave what it traces
        out, err = process.communicate()
        return Said(None, out, err)
    return Said(process.returncode, out, err)


def _tracing(strace: str, fault: Fault, paths: Sequence[Path]) -> list[str]:
    expression = HARMS[fault.harm].format(when=fault.when)
    quick = [] if fault.harm == "kill" else ["--seccomp-bpf"]  # under it strace injects no signals
    return [*_strace(strace, fault.call, paths), *quick, "-o", "/dev/null", "-e", f"inject={fault.call}:{expression}"]


def _strace(strace: str, calls: str, paths: Sequence[Path]) -> list[str]:
    words = [strace, "-f", "-qq", "-e", f"trace={calls}", "-e", "signal=none"]
    if "openat" in calls.split(","):
        words += [word for path in paths for word in ("-P", str(path))]
    return words


def calls_in(strace: str, command: Sequence[str], calls: str, *, trace: Path, paths: Sequence[Path], env: Mapping[str, str], cwd: Path) -> int:
    """How many calls of this kind the busiest thread of a clean run makes."""
    subprocess.run(  # noqa: S603
        [*_strace(strace, calls, paths), "-o", str(trace), *command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    return busiest(trace)


def busiest(trace: Path) -> int:
    """Of one thread and one kind of call, the most: strace counts for each thread."""
    counted: Counter[tuple[str, str]] = Counter()
    for line in trace.read_text().splitlines():
        if (match := _LINE.match(line)) is not None:
            counted[match.group(1), match.group(2)] += 1
    return max(counted.values(), default=0)
