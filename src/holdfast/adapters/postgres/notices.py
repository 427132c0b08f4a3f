"""
Wake the other processes of a home in PostgreSQL. See `holdfast.ports.notifier`.

One thread with a connection of its own collects notices for 10 ms and sends them as one NOTIFY,
never in an append's transaction. Listeners of this process are called at once, without the
database. Notices are not queued for the absent: after a connection was made again, and wherever
LISTEN does not work (a pooler hides it), the thread looks for heads that moved, once a second.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from holdfast.adapters.listener import Listener
from holdfast.adapters.postgres.home.heads import REMEMBERED_SECONDS
from holdfast.adapters.postgres.server import DatabaseAddress, Wire, connect
from holdfast.adapters.postgres.server_errors import Lost
from holdfast.errors import HoldfastError, Unusable
from holdfast.ids import SessionId, session_id

if TYPE_CHECKING:
    from holdfast.adapters.postgres.store import PostgresStore

COLLECT_SECONDS = 0.01  # a person notices no such delay, and many appends share one NOTIFY
POLL_SECONDS = 1.0
DIRECT_AGAIN_SECONDS = 60.0
PROBE_SECONDS = 10.0  # a half-open connection is found out that soon
_PAYLOAD_BYTES_MAX = 7_900  # the server takes 8,000
_WAKES_READ = 4096
_PROBE = "?"  # begins no session's name
# Clocks of nodes differ: heads that moved by a clock this far behind are still found.
_BEHIND_MS = 120_000
_MOVED = (
    "select h.session, h.seq, h.at from hf.moved m cross join lateral "
    "(select * from hf.head where journal = m.journal offset 0) h "  # as in home/heads.py
    "where not h.ended"
)
_MOVED_SINCE = "select session, seq, at from hf.head where at >= %s and not ended"  # reads them all


_log = logging.getLogger("holdfast.postgres")
POOLED = (
    "[storage] url leads to a pooler, which hides notices: other processes are looked at once a "
    "second"
)


NAME_THE_SERVER = "name the server itself as storage.listen_url in holdfast.toml"
DEAF = "storage.listen_url can't be used, so other processes are looked at once a second: {}"


def connect_to_listen(place: DatabaseAddress, *, era: str) -> Wire:
    """Connect to the server itself. Refuse another server, or another database of it."""
    wire = connect(place.direct)
    try:
        found = wire.one("select id::text from hf.era")
    except BaseException:
        wire.close()
        raise
    if found == (era,):
        return wire
    wire.close()
    raise Unusable("it leads to another home", code="storage")


class PostgresNotices:
    """Any thread may call `notify`. The thread begins with the first notice or listener."""

    def __init__(self, store: "PostgresStore") -> None:
        self._store = store
        self.channel = "holdfast_" + blake3(store.place.schema.encode()).hexdigest()[:16]
        self._own: set[Listener] = set()
        self._pending: dict[SessionId, None] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self._stopped = False
        self._seen: dict[str, int] | None = None  # the last records at the last look, by session
        self._looked_at_ms = 0
        # Whether a NOTIFY to ourselves comes back. False means that heads are polled.
        self.hears = False
        self._is_said = False
        self._direct_again_at: float | None = None  # where `storage.listen_url` could not be used
        self._probed_at = 0.0
        self._probe_heard_at = 0.0

    # --- For every thread

    def notify(self, session: SessionId) -> None:
        """Wake the listeners of this process now, and those of the others soon."""
        self.hear(session)
        with self._guard:
            self._pending[session] = None
        self._begin()
        self._wake()

    def hear(self, session: SessionId) -> None:
        for listener in tuple(self._own):
            listener.hear(session)

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[SessionId]]:
        import asyncio

        listener = Listener(asyncio.get_running_loop())
        self._own.add(listener)
        self._begin()
        try:
            yield listener.notices()
        finally:
            self._own.discard(listener)

    def _begin(self) -> None:
        with self._guard:
            if self._thread is not None or self._stopped:
                return
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            self._looked_at_ms = self._store.now_ms()
            self._thread = threading.Thread(target=self._run, name="holdfast-notices", daemon=True)
            self._thread.start()

    def _wake(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # full: the thread is awake anyway
                os.write(self._pipe[1], b"!")

    def stop(self) -> None:
        """Send what waits, and end the thread."""
        with self._guard:
            self._stopped = True
        if self._thread is not None and self._pipe is not None:
            self._wake()
            self._thread.join()
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None

    # --- The thread

    def _run(self) -> None:
        wire: Wire | None = None
        while True:
            try:
                if wire is None or not wire.is_usable:
                    wire = self._connected()
                self._round(wire)
            except (HoldfastError, Lost, OSError):
                # Nothing is lost: every waiting task looks again by itself.
                if wire is not None:
                    wire.close()
                wire, self.hears = None, False
                if not self._stopped:
                    self._sleep(POLL_SECONDS)
            if self._stopped and (wire is None or not self._pending):
                break
        if wire is not None:
            wire.close()

    def _connected(self) -> Wire:
        wire = self._direct() or connect(self._store.place)
        if wire.is_pooled:
            if self._store.place.listen_url is None:
                self._say(POOLED)
        else:
            wire.listen(self.channel)
            self._probe(wire)
        self._look(wire)  # for what moved while nobody listened here
        return wire

    def _direct(self) -> Wire | None:
        """To the server itself, past a pooler. None if that can't be: it is tried again later."""
        place = self._store.place
        self._direct_again_at = None
        if place.listen_url is None:
            return None
        try:
            return connect_to_listen(place, era=self._store.history.era)
        except (HoldfastError, Lost) as exc:
            self._say(DEAF.format(exc))
            self._direct_again_at = time.monotonic() + DIRECT_AGAIN_SECONDS
            return None

    def _say(self, text: str) -> None:
        if not self._is_said:
            _log.warning("%s; %s", text, NAME_THE_SERVER)
        self._is_said = True

    def _round(self, wire: Wire) -> None:
        if not self._pending and not self._stopped:
            self._sleep(POLL_SECONDS, wire)
        if self._pending:
            time.sleep(COLLECT_SECONDS)
            self._flush(wire)
        for is_own, payload in wire.take_notices():
            self._heard(payload, is_own=is_own)
        if wire.is_pooled or not self.hears:
            self._look(wire)
        now = time.monotonic()
        if self._direct_again_at is not None and now > self._direct_again_at:
            wire.close()  # the next round connects again
        elif not wire.is_pooled and now - self._probed_at > PROBE_SECONDS:
            if self._probe_heard_at < self._probed_at:
                self.hears = False
            self._probe(wire)

    def _sleep(self, seconds: float, wire: Wire | None = None) -> None:
        if self._pipe is None:
            return
        reading = [self._pipe[0], *([wire.fileno()] if wire is not None else [])]
        select.select(reading, [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._pipe[0], _WAKES_READ):
                pass

    def _flush(self, wire: Wire) -> None:
        with self._guard:
            pending, self._pending = self._pending, {}
        try:
            for payload in payloads(pending):
                wire.rows("select pg_notify(%s, %s)", (self.channel, payload))
        except (HoldfastError, Lost):
            with self._guard:  # sent again with the next connection: a notice may come twice
                self._pending = pending | self._pending
            raise

    def _probe(self, wire: Wire) -> None:
        self._probed_at = time.monotonic()
        wire.rows("select pg_notify(%s, %s)", (self.channel, _PROBE))

    def _heard(self, payload: str, *, is_own: bool) -> None:
        if is_own:
            if payload == _PROBE:
                self.hears, self._probe_heard_at = True, time.monotonic()
            return
        for name in payload.split("\n"):
            with contextlib.suppress(Unusable):  # any login may send any text
                self.hear(session_id(name))

    def _look(self, wire: Wire) -> None:
        """Hear of every session whose head moved since the last look, or since the beginning."""
        now, last = self._store.now_ms(), self._looked_at_ms
        rows: Any = (
            wire.rows(_MOVED)
            if now - last <= REMEMBERED_SECONDS * 1000
            else wire.rows(_MOVED_SINCE, (last - _BEHIND_MS,))
        )
        is_first = self._seen is None
        seen = self._seen or {}
        for session, seq, at in rows:
            if seen.get(session) != seq and (at >= last or not is_first):
                with contextlib.suppress(Unusable):  # the home's own journal
                    self.hear(session_id(session))
        self._seen = {session: seq for session, seq, _ in rows}
        self._looked_at_ms = now


def payloads(sessions: Iterable[str]) -> list[str]:
    """
    Join names into texts that a NOTIFY can carry.

    >>> payloads(["a/b", "c/d"])
    ['a/b\\nc/d']
    """
    found: list[str] = []
    for name in sessions:
        if found and len(found[-1]) + 1 + len(name) <= _PAYLOAD_BYTES_MAX:
            found[-1] += "\n" + name
        else:
            found.append(name)
    return found
