"""
The layout of a home: the files of its own journal, and those of every instance of every session.

HOME/keys, HOME/home (its own journal), HOME/anchors, HOME/sessions/<channel>/<thread>,
HOME/quarantine, HOME/run, HOME/reserve. One `HomeFiles` is created per opening; the `SessionFiles`
that it creates are cheap. Nothing here reads a journal, decides or locks.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.adapters.files.home.anchor_tables import AnchorCell, AnchorTables
from holdfast.adapters.files.home.reserve import Reserve
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.limits import LOCK_WAIT_SECONDS, SEGMENT_BYTES
from holdfast.session.home.events import SessionCreated

MANIFEST = "backup.json"  # only a backup has this file, never a home
HOME_SESSION = SessionId("_home")
HOME_INSTANCE = InstanceId("home")
HOME_PARTS = ("home",)
SESSIONS = "sessions"


class HomeFiles:
    """`home` is the folder's descriptor. The code that opened it closes it."""

    def __init__(
        self,
        home: int,
        path: Path,
        keys: Mapping[int, bytes],
        *,
        generation: Callable[[], int],
        segment_bytes: int = SEGMENT_BYTES,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    ) -> None:
        self.home, self.path = home, path
        self._keys, self._generation = keys, generation
        self._segment_bytes, self._lock_wait_seconds = segment_bytes, lock_wait_seconds
        self.tables = AnchorTables(home)
        self.reserve = Reserve(home)

    def own(self) -> SessionFiles:
        """Return the files of the home's own journal."""
        return self._made(HOME_SESSION, HOME_INSTANCE, HOME_PARTS, self.tables.home_cell())

    def of(self, created: SessionCreated) -> SessionFiles:
        return self.at(created.session, created.instance, created.slot)

    def at(self, session: SessionId, instance: InstanceId, slot: int) -> SessionFiles:
        """Return the files of an instance that may not be registered yet."""
        return self._made(session, instance, session_parts(session), self.tables.cell(slot))

    def _made(
        self, session: SessionId, instance: InstanceId, parts: tuple[str, ...], cell: AnchorCell
    ) -> SessionFiles:
        return SessionFiles(
            home=self.home,
            home_path=self.path,
            parts=parts,
            session=session,
            instance=instance,
            keys=Keyring(self._keys, session, instance),
            anchor=cell,
            reserve=self.reserve,
            generation=self._generation,
            segment_bytes=self._segment_bytes,
            lock_wait_seconds=self._lock_wait_seconds,
        )

    def close(self) -> None:
        self.tables.close()


def session_parts(session: SessionId) -> tuple[str, ...]:
    """Return a session's folder, from the home."""
    return (SESSIONS, *session.split("/"))
