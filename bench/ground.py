"""
Where measurements stand: a folder on the disk in question, the raw cost of that disk, and rows of
ratios.

Ours and the limit are measured in turns within one run, in blocks, so that whatever else the
machine does falls on both alike. Medians, never best cases.
"""

import contextlib
import datetime as dt
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = 25  # operations of one kind before the other kind has its turn


@dataclass(frozen=True)
class Row:
    """
    One line of the table. `ratio` is ours to the limit; `goal` is in words; `reached` is None where
    nothing was promised.
    """

    part: str
    what: str
    ours: str
    limit: str = ""
    ratio: float | None = None
    goal: str = ""
    reached: bool | None = None
    note: str = ""


@dataclass
class Ground:
    """One run's place and patience. `scale` below 1 makes everything smaller, for a quick look."""

    folder: Path
    scale: float = 1.0
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """What the picture is drawn from: name -> (history length, microseconds)."""

    def count(self, wanted: int, least: int = 20) -> int:
        return max(least, int(wanted * self.scale))

    def fresh(self, name: str) -> Path:
        path = self.folder / f"{name}-{os.urandom(3).hex()}"
        path.mkdir(mode=0o700)
        return path


class Times(NamedTuple):
    """Seconds of many equal operations."""

    all: Sequence[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.all)

    @property
    def p10(self) -> float:
        return sorted(self.all)[len(self.all) // 10]

    @property
    def p99(self) -> float:
        return sorted(self.all)[min(len(self.all) - 1, int(len(self.all) * 0.99))]

    def told(self) -> str:
        return f"p50 {told(self.p50)}, p99 {told(self.p99)}"


def told(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(times: int, *kinds: Callable[[], object]) -> list[Times]:
    """Each kind `times` times, a block of one and then a block of the next."""
    found: list[list[float]] = [[] for _ in kinds]
    for start in range(0, times, BLOCK):
        for kind, seconds in zip(kinds, found, strict=True):
            seconds += [timed(kind) for _ in range(min(BLOCK, times - start))]
    return [Times(seconds) for seconds in found]


class RawFile:
    """The limit: append the same number of bytes to a plain file and fdatasync it."""

    def __init__(self, folder: Path, size: int, name: str = "raw") -> None:
        self._fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._data = b"x" * (size - 1) + b"\n"
        self._offset = 0

    def append(self) -> None:
        os.pwrite(self._fd, self._data, self._offset)
        os.fdatasync(self._fd)
        self._offset += len(self._data)

    def close(self) -> None:
        os.close(self._fd)


class Syncs(NamedTuple):
    """
    Syncs that happened: how many, how long they took together, and when each had ended, by
    CLOCK_MONOTONIC.
    """

    count: int
    seconds: float
    ends: Sequence[float]


@contextlib.contextmanager
def counting_syncs() -> Iterator[Callable[[], Syncs]]:
    """Every os.fsync and os.fdatasync of this process, from any thread."""
    calls: list[float] = []
    ends: list[float] = []
    real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}

    def wrapped(name: str) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            started = time.perf_counter()
            real[name](fd)
            calls.append(time.perf_counter() - started)
            ends.append(time.monotonic())

        return sync

    for name in real:
        setattr(os, name, wrapped(name))
    try:
        yield lambda: Syncs(len(calls), sum(calls), tuple(ends))
    finally:
        for name, function in real.items():
            setattr(os, name, function)


@contextlib.contextmanager
def without_syncs() -> Iterator[None]:
    """While something large is built that is not what is measured."""
    real = os.fsync, os.fdatasync
    os.fsync = os.fdatasync = lambda _: None
    try:
        yield
    finally:
        os.fsync, os.fdatasync = real


def compared(
    part: str,
    what: str,
    ours: float,
    limit: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    **words: Any,
) -> Row:
    """
    A row whose ratio is `ours` to `limit`; both in seconds unless `words` say how to tell them.
    """
    ratio = ours / limit
    goal = (
        f"<= {at_most:g} x"
        if at_most is not None
        else f">= {at_least:g} x"
        if at_least is not None
        else ""
    )
    reached = (
        ratio <= at_most
        if at_most is not None
        else ratio >= at_least
        if at_least is not None
        else None
    )
    return Row(
        part,
        what,
        words.pop("ours_told", told(ours)),
        words.pop("limit_told", told(limit)),
        ratio,
        goal,
        reached,
        **words,
    )


def under(
    part: str,
    what: str,
    value: float,
    limit: float,
    tell: Callable[[float], str] = told,
    note: str = "",
) -> Row:
    """A row with an absolute goal."""
    return Row(part, what, tell(value), "", None, f"< {tell(limit)}", value < limit, note)


def machine(folder: Path) -> dict[str, Any]:
    """What the numbers depend on, without saying whose machine it is."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release().partition('-')[0]}",
        "filesystem": _filesystem(folder),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load when it began": " ".join(f"{each:.1f}" for each in os.getloadavg())
        + f" (of {os.cpu_count()} cores); our own priority: nice {os.nice(0)}",
        "durability": "fdatasync before every acknowledgement (write cache as the disk reports it)",
    }


def _filesystem(folder: Path) -> str:
    """The type of the longest mount that the folder lies under."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    path = str(folder.resolve())
    under_ = [
        (len(where), kind)
        for where, kind in mounts
        if path == where or path.startswith(where.rstrip("/") + "/")
    ]
    return max(under_)[1] if under_ else "unknown"


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def resident_bytes(pid: int | None = None) -> int:
    """Memory that a process has in RAM now."""
    pages = int(Path(f"/proc/{pid or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def python() -> str:
    return sys.executable
