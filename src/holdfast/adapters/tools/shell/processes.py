"""
Finds and ends the processes of a call with certainty.

A process is identified by its boot, its group and its start time, so a reused number is never
mistaken for it. A process that left its group is identified by HOLDFAST_TOOL in its environment.
Without /proc (macOS), only groups are known.

A process that also cleared its environment still has the call's mark, a resource limit that only
root can raise again. However, any program of the same user can put that mark on another process. So
a marked process is reported and never ended: nobody can trick Holdfast into ending other processes.
"""

import os
import signal
from pathlib import Path
from typing import NamedTuple

from holdfast.adapters.tools.shell.environment import TOOL_VARIABLE
from holdfast.adapters.tools.shell.launcher_child import mark_of
from holdfast.ids import CallId
from holdfast.ports.tools import ProcessFacts

_PROC = Path("/proc")
_ROUNDS_MAX = 20  # a process may fork during the search; each round ends the missed ones
_READ_BYTES_MAX = 4 * 1024 * 1024  # an environment may be large
_STARTS_AT = 19  # starttime is field 22 of stat; the split after the name drops the first 2 fields


def boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def facts_of(pid: int) -> ProcessFacts:
    """Return the facts of a group's leader."""
    return ProcessFacts(
        boot_id=boot_id(), group=pid, start_time=_stat(pid)[1] if _PROC.exists() else 0
    )


def is_alive(facts: ProcessFacts) -> bool:
    """Return whether this very leader still runs: same boot, same start time, not a zombie."""
    if facts.boot_id != boot_id():
        return False
    if not _PROC.exists():
        return signal_group(facts.group, 0)
    try:
        _, started, state = _stat(facts.group)
    except OSError:
        return False
    return started == facts.start_time and state not in "ZX"


def death_of(facts: ProcessFacts) -> int | None:
    """
    Return a descriptor that becomes readable when the leader dies. Return None if it is already
    dead or the system has no such descriptors.
    """
    if not hasattr(os, "pidfd_open") or not is_alive(facts):
        return None
    try:
        fd = os.pidfd_open(facts.group)
    except OSError:
        return None
    if is_alive(
        facts
    ):  # checked again: the number may have been reused before the descriptor was opened
        return fd
    os.close(fd)
    return None


def ask_leader(facts: ProcessFacts) -> None:
    """Send SIGTERM to this very leader, never to another process that reuses its number."""
    fd = death_of(facts)
    if fd is None:
        return
    try:
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)


def signal_group(group: int, number: int) -> bool:
    """Signal a group. Return whether it exists."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def ask_all_but_leader(group: int) -> None:
    """
    Send SIGTERM to the members. A leader that only waits for them follows by itself.

    The oldest comes first: if a child ended before its shell was asked, the shell would take the
    child for done and continue without its trap.
    """
    for pid in sorted(_members(group, None) - {group}, key=_age):
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError:
            continue


def end_call(call: CallId, group: int | None) -> int:
    """
    Kill the group and every process with the call's name, until none is found. Return how many were
    ended.
    """
    ended: set[int] = set()
    for _ in range(_ROUNDS_MAX):
        found = _members(group, call)
        if not found:
            break
        for pid in found:
            _kill(pid, group, call)
        ended.update(found)
    return len(ended)


class LeftBehind(NamedTuple):
    """Processes that a command started and that outlived it, outside its group."""

    ended: tuple[str, ...] = ()  # names of those that carried the call's name
    running: tuple[str, ...] = ()  # names and numbers of those that only have its mark


def end_left_behind(call: CallId, leader: ProcessFacts) -> LeftBehind:
    """
    Search for the processes that a command left behind. End those with its name and report those
    with only its mark. A process older than the leader is skipped.
    """
    ended: dict[int, str] = {}
    marked: dict[int, str] = {}
    for _ in range(_ROUNDS_MAX):
        named, marked = _newer_than(leader, call)
        if not named:
            break
        for pid in named:
            _kill(pid, None, call)
        ended.update(named)
    return LeftBehind(
        tuple(ended.values()),
        tuple(f"{name} ({pid})" for pid, name in marked.items() if pid not in ended),
    )


def _newer_than(leader: ProcessFacts, call: CallId) -> tuple[dict[int, str], dict[int, str]]:
    """
    Return (processes with the call's name, processes with its mark only) outside the leader's
    group, by number.
    """
    named: dict[int, str] = {}
    marked: dict[int, str] = {}
    numbers = os.listdir(_PROC) if _PROC.exists() else ()  # noqa: PTH208  a Path for each takes longer than the check
    for number in filter(str.isdigit, numbers):
        try:
            before, _, after = _read(number, "stat").rpartition(b")")
            fields = after.split()
            if (
                fields[0] in b"ZX"
                or int(fields[2]) == leader.group
                or int(fields[_STARTS_AT]) < leader.start_time
                or int(number) == os.getpid()
            ):
                continue
            found = (
                named if _has_name(number, call) else marked if _has_mark(number, call) else None
            )
        except (OSError, IndexError):
            continue  # the process is gone
        if found is not None:
            found[int(number)] = before.partition(b"(")[2].decode("utf-8", "replace")
    return named, marked


def _has_name(number: str, call: CallId) -> bool:
    try:
        return f"{TOOL_VARIABLE}={call}".encode() in _read(number, "environ").split(b"\0")
    except PermissionError:
        return False  # its environment is not readable, but its limits are


def _has_mark(number: str, call: CallId) -> bool:
    _, _, line = _read(number, "limits").partition(b"Max file locks")
    return line.split(maxsplit=2)[1:2] == [str(mark_of(call.encode())).encode()]


def _read(number: str, name: str) -> bytes:
    fd = os.open(f"/proc/{number}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while len(found) < _READ_BYTES_MAX and (piece := os.read(fd, _READ_BYTES_MAX)):
            found += piece
        return found
    finally:
        os.close(fd)


def end_survivors(call: CallId, facts: ProcessFacts | None) -> int:
    """
    End the processes that survived a crash. The group counts only if it is of this boot and its
    leader is the process that Holdfast started.
    """
    group = None
    if facts is not None and facts.boot_id == boot_id():
        try:
            group = facts.group if _stat(facts.group)[1] == facts.start_time else None
        except OSError:
            # The leader is gone. Its members keep the number from being reused, but their start
            # times do not distinguish them from a newer group's. Members of this call carry its
            # name.
            group = None
    return end_call(call, group)


def _members(group: int | None, call: CallId | None) -> set[int]:
    numbers = (
        int(entry.name)
        for entry in (_PROC.iterdir() if _PROC.exists() else ())
        if entry.name.isdigit()
    )
    return {pid for pid in numbers if pid != os.getpid() and _belongs(pid, group, call)}


def _belongs(pid: int, group: int | None, call: CallId | None) -> bool:
    try:
        its_group, _, state = _stat(pid)
        if state in "ZX":
            return False
        if group is not None and its_group == group:
            return True
        return call is not None and f"{TOOL_VARIABLE}={call}".encode() in (
            _PROC / str(pid) / "environ"
        ).read_bytes().split(b"\0")
    except OSError:
        return False  # gone, or not readable


def _stat(pid: int) -> tuple[int, int, str]:
    """
    Return (group, start time, state). The name in parentheses may hold anything, including
    parentheses.
    """
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[2]), int(fields[_STARTS_AT]), fields[0].decode()


def _age(pid: int) -> tuple[int, int]:
    """Sort the oldest first. The place of a process that is gone does not matter."""
    try:
        return _stat(pid)[1], pid
    except OSError:
        return 0, pid


def _kill(pid: int, group: int | None, call: CallId) -> None:
    """
    Kill by descriptor, after another check through it: the number cannot be reused in between.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _belongs(pid, group, call):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(fd)
