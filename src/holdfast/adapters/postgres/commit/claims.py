"""
Claims as leases: one row for each process that drives, renewed by a thread with its own connection.

A claim is an epoch and a random token in the session's head. Every append of the driver names both,
so a process that was stopped past its lease writes nothing once another one has claimed (C1). The
lease only keeps two processes from working on the same turn. The database's clock judges it.
"""

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.adapters.postgres.commit.append import Answer, FramedAppend
from holdfast.adapters.postgres.commit.refusal import refusal
from holdfast.adapters.postgres.home.history import look_at_server
from holdfast.adapters.postgres.home.seals import seal_now
from holdfast.adapters.postgres.server import Wire
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.adapters.postgres.session.tail import Tail, missing
from holdfast.errors import Busy, HoldfastError
from holdfast.ids import SessionId

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

LEASE_SECONDS = 30.0  # longer than a busy process is silent, shorter than a person waits
# A lease that is over is seen this soon, so the sessions of a dead node go on within 35 s.
RENEW_SECONDS = 2.5


class LeasedClaim:
    def __init__(self, store: "PostgresStore", journal: int, epoch: int, token: uuid.UUID) -> None:
        self._store = store
        self.journal, self.token = journal, token
        self._epoch = epoch

    @property
    def epoch(self) -> int:
        return self._epoch

    async def release(self) -> None:
        if self._store.forget_claim(self):
            with contextlib.suppress(HoldfastError):  # the lease ends by itself
                await self._store.in_thread(self.release_now)

    def release_now(self, wire: Wire) -> None:
        wire.rows("select hf.release_claim(%s, %s)", (self.journal, self.token))


class ThisProcess(NamedTuple):
    """The facts by which another process of this machine sees that this one is gone."""

    machine: str
    pid: int
    start_time: str


def this_process() -> ThisProcess:
    return ThisProcess(machine(), os.getpid(), start_time(os.getpid()) or "unknown")


def machine() -> str:
    """
    The boot and the process namespace: two containers of one host share the first and see different
    processes.
    """
    boot = _read("/proc/sys/kernel/random/boot_id") or "unknown"
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{boot}/{namespace}"


def start_time(pid: int) -> str | None:
    stat = _read(f"/proc/{pid}/stat")
    return stat.rpartition(")")[2].split()[19] if stat else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


class Lease:
    """The lease of this process. Its thread begins with the first claim."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self.incarnation = uuid.uuid4()
        self._me = this_process()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.tails_guard = threading.Lock()
        self._renewed_at = 0.0

    @property
    def seconds_left(self) -> float:
        """How long the lease still stands by this process's clock; 0 without one."""
        if not self._renewed_at:
            return 0.0
        return max(0.0, self._renewed_at + self._store.lease_seconds - time.monotonic())

    @property
    def is_begun(self) -> bool:
        return self._thread is not None

    def begin(self, wire: Wire) -> None:
        """Take the lease, unless this process has it, and keep it from now on."""
        with self.tails_guard:
            if time.monotonic() - self._renewed_at > self._store.lease_seconds / 3:
                self.renew(wire)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-lease", daemon=True
                )
                self._thread.start()

    def renew(self, wire: Wire) -> None:
        """
        Renew the lease. Every process hears of the sessions whose driver's lease is over: the first
        that claims one goes on with it.
        """
        before = time.monotonic()
        left = wire.rows(
            "select session from hf.keep_lease(%s, %s, %s, %s, %s, %s)",
            (
                self.incarnation,
                self._store.node,
                self._me.machine,
                self._me.pid,
                self._me.start_time,
                self._store.lease_seconds,
            ),
        )
        self._renewed_at = before
        self._announce(left)

    def _announce(self, left: Sequence[tuple[Any, ...]]) -> None:
        for (session,) in left:
            if session != HOME_SESSION:
                self._store.notices.notify(SessionId(session))

    def _tick(self, wire: Wire) -> None:
        self.renew(wire)
        self._end_dead_neighbours(wire)
        self._store.nodes.refresh(wire)
        self._store.look_for_memories(wire)
        if look_at_server(self._store, wire) != self._store.history.name:
            lane = self._store.lanes[0]
            lane.call(lane.compare)  # after what waits there; the other nodes wait for this one

    def _end_dead_neighbours(self, wire: Wire) -> None:
        """End the leases of this machine's processes that are gone; nobody waits for those."""
        rows = wire.rows(
            "select incarnation, pid, start_time from hf.process where machine = %s",
            (self._me.machine,),
        )
        for incarnation, pid, started in rows:
            if start_time(pid) != started:
                self._announce(wire.rows("select session from hf.end_process(%s)", (incarnation,)))

    def _run(self) -> None:
        wire: Wire | None = None
        pause = min(RENEW_SECONDS, self._store.lease_seconds / 4)
        while not self._stop.wait(pause):
            try:
                if wire is None or not wire.is_usable:
                    wire = self._store.connect()
                self._tick(wire)
            except (HoldfastError, Lost):
                if wire is not None:
                    wire.close()
                wire = None
        if wire is not None:
            wire.close()

    def end_dead_driver(self, wire: Wire, driver: uuid.UUID) -> bool:
        """
        Whether the driver was a process of this machine that is gone. Its lease then ends now. The
        process of another machine is only waited for.
        """
        row = wire.one(
            "select machine, pid, start_time from hf.process where incarnation = %s", (driver,)
        )
        if row is None:
            return True
        if row[0] != self._me.machine or start_time(row[1]) == row[2]:
            return False
        wire.rows("select hf.end_process(%s)", (driver,))
        return True

    def end(self, wire: Wire) -> None:
        """Give up the lease, at the end of the store."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            wire.rows("select hf.end_process(%s)", (self.incarnation,))


def claim_journal(store: "PostgresStore", wire: Wire, tail: Tail) -> LeasedClaim | None:
    store.lease.begin(wire)
    before = tail.position.fence.epoch
    for is_last in (False, True):
        mine = any(journal == tail.journal for journal, _ in store.held_claims)
        (row,) = wire.rows(
            "select outcome::text, epoch, claim, driver from hf.claim_journal(%s, %s, %s)",
            (tail.journal, store.lease.incarnation, not mine),
        )
        letter, epoch, token, driver = row
        if letter == "k":
            return _claimed(store, tail, epoch, token, before)
        if letter == "b" and not is_last and store.lease.end_dead_driver(wire, driver):
            continue
        if letter == "b":
            return None
        if letter == "l" and not is_last:
            store.lease.renew(wire)  # this process was stopped for longer than its lease
            continue
        if letter == "l":
            raise Busy("this process has lost its lease", hint="try again")
        raise refusal(
            store, FramedAppend(tail, tail.head, 0, None, None, tail.position), Answer(letter)
        )
    return None


def _claimed(
    store: "PostgresStore", tail: Tail, epoch: int, token: uuid.UUID, before: int
) -> LeasedClaim:
    """`before`: the epoch of the last record that was known when the claim was asked for."""
    if epoch <= before:
        error = missing(tail.session, tail.head.seq, tail.head.seq)
        raise store.lane.call(lambda _: seal_now(store, tail, error)).result()
    tail.epoch = max(tail.epoch, epoch)
    claim = LeasedClaim(store, tail.journal, epoch, token)
    store.held_claims[tail.journal, epoch] = claim
    return claim
