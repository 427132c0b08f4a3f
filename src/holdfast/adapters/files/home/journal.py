"""
The home's own journal in one process: its handle, its folded state, and whether anything in the
home may be written.

It names every session's current instance and every seal, and every append checks it. A damaged one
is sealed by a file beside it (home/seal.py). Without its key everything can be read, and nothing
verified or written. A seal is recorded while no session's lock is held.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.adapters.files.commit.append_queue import AppendQueue
from holdfast.adapters.files.home import seal as home_seal
from holdfast.adapters.files.home.keys import KnownKeys, no_key
from holdfast.adapters.files.home.layout import HOME_PARTS, HOME_SESSION
from holdfast.adapters.files.home.registry import FileRegistry
from holdfast.adapters.files.paths import walk
from holdfast.adapters.files.session.catch_up import Damaged
from holdfast.adapters.files.session.files import HEADER_BYTES_MAX, SessionFiles
from holdfast.adapters.files.session.journal import FileJournal
from holdfast.adapters.files.session.locks import forked
from holdfast.adapters.files.session.reader import open_at_head, stream_what_verifies
from holdfast.errors import BrokenChain, InDoubt, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import KeyMissing, key_id
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, read_unverified
from holdfast.journal.segment import read_opened
from holdfast.journal.verify import Damage
from holdfast.ports.journal_store import Appended, Check, SealMark, Section
from holdfast.session.home.events import (
    AnyHomeEvent,
    SessionCreated,
    SessionSealed,
    encode_home_event,
)

if TYPE_CHECKING:
    from holdfast.adapters.files.store import FileStore


class HomeJournal:
    """Created with its store; empty until it is loaded."""

    def __init__(
        self, store: "FileStore", files: SessionFiles, keys: KnownKeys, trouble: str | None
    ) -> None:
        self._store, self._keys, self.files = store, keys, files
        self._pid = os.getpid()
        # Why nothing can be written or verified without a key, as text. Once set it stays.
        self.trouble = trouble
        # The seal of the home itself. Once set it stays: only a person lifts it.
        self.mark: SealMark | None = None
        self.registry = FileRegistry(files, store.writer)
        self.queue = AppendQueue(files, store)
        self._handle = FileJournal(
            store, self.queue, files.fence(), verified=trouble is None or bool(keys)
        )
        # One thread at a time reopens the journal to resolve a commit in doubt.
        self._reopening = threading.Lock()

    @property
    def is_verified(self) -> bool:
        return self._handle.is_verified

    # --- Opening

    def load(self) -> None:
        """
        Verify and fold the journal. A damaged one is sealed; everything in the home can then only
        be read.
        """
        if not self.is_verified:
            return self._read_unverified()
        try:
            fence = self._verified_to_head()
            self._handle.fence = fence
            self.registry.load(fence, self._store.read_snapshot(self.files).snapshot)
        except Damaged as exc:
            if self._is_of_another_key():
                return self._without_key("key 1 is not the one this home was made with")
            self._seal_itself(self._handle.untrusted(exc.damage, while_open=False))
            self.registry.reset()
            stream_what_verifies(self.files, self.registry.fold, after=0)
        except KeyMissing as exc:
            return self._without_key(str(exc))
        except FileNotFoundError:
            self._seal_itself(
                self._handle.untrusted(
                    Damage("cut_short", "its journal is missing", 0, 1, 0), while_open=False
                )
            )
        missing = next(
            (
                each
                for each in range(1, self.registry.state.generation + 1)
                if each not in self._keys
            ),
            None,
        )
        if missing is not None:
            self.trouble = (
                self.trouble
                or f"key {missing} is missing, or is not the one that the home's journal names"
            )
        self._look_for_mark()
        return None

    def _look_for_mark(self) -> None:
        """Read the seal that any process may have left, perhaps while we had the home open."""
        mark = home_seal.read(self.files.home)
        if mark is not None:
            self.mark = self.mark or mark
            self._handle.spend(home_seal.sealed_error(HOME_SESSION, mark))

    def _verified_to_head(self) -> Fence:
        opened = open_at_head(
            self.files, first_mac=None, writer=self._store.writer, now=self._store.now_ms()
        )
        return opened.fence

    def _without_key(self, why: str) -> None:
        """
        Continue without the key: everything can be read, and nothing verified or written. This
        never seals, because the journal is not damaged.
        """
        self.trouble = self.trouble or why
        self._handle.is_verified = False
        self._read_unverified()

    def _read_unverified(self) -> None:
        """Fold unverified records up to the first one that can't be decoded."""
        with contextlib.suppress(BrokenChain):
            self._handle.load_now(self.registry.fold)

    def _is_of_another_key(self) -> bool:
        """
        Return True if the first segment names another key than ours. A missing segment names none.
        """
        try:
            with walk(self.files.home, *HOME_PARTS) as folder:
                line = self.files.read_segment(folder, 1, HEADER_BYTES_MAX).split(b"\n")[0]
        except FileNotFoundError:
            return False
        record = read_unverified(line + b"\n")
        opened = read_opened(record.body) if record else None
        return (
            opened is not None
            and opened.key.generation in self._keys
            and key_id(self._keys[opened.key.generation]) != opened.key.id
        )

    # --- State

    def refresh(self) -> None:
        """Fold the records added since the last read."""
        if not self.is_verified or self.mark is not None:
            return
        try:
            self.registry.refresh()
        except Damaged as exc:
            raise self._sealed_by(exc) from None
        except KeyMissing:
            self._keys.reload()
            self.registry.refresh()

    def created(self, session: SessionId) -> SessionCreated | None:
        """Return the session's current instance, as of the last read."""
        return self.registry.state.sessions.get(session)

    def living(self, session: SessionId) -> SessionCreated:
        """
        Return the session's current instance, as of the last read. Raise Refused if there is none.
        """
        created = self.created(session)
        if created is None:
            raise Refused(
                f"no session {session}",
                code="unknown",
                hint="`holdfast sessions list` shows them",
            )
        return created

    def seals(self) -> Mapping[SessionId, SessionSealed]:
        """Return the seals as of now. Raise for a home that is itself sealed or without its key."""
        self.refresh()
        self.check_alive(self._handle)
        return dict(self.registry.state.sealed)

    def check_alive(self, journal: FileJournal, *, at_once: bool = False) -> bool:
        """See `CommitHost`."""
        if os.getpid() != self._pid:
            raise forked()
        if self.trouble is not None:
            raise no_key(self.trouble)
        if self.mark is None and os.access(
            home_seal.PATH, os.F_OK, dir_fd=self.files.home, follow_symlinks=False
        ):
            self._look_for_mark()
        if self.mark is not None:
            raise home_seal.sealed_error(HOME_SESSION, self.mark)
        if journal.session == HOME_SESSION:
            return True
        if not self.registry.is_fresh():
            if at_once:
                return False
            self.refresh()
        state = self.registry.state
        living = state.sessions.get(journal.session)
        if living is None or living.instance != journal.instance:
            raise Refused(
                f"this instance of {journal.session} is over: it was deleted, restored or unsealed",
                code="unknown",
                hint="open it again",
            )
        if journal.session in state.sealed:
            mark = self.seal_mark(journal.session, journal.instance)
            if mark is not None:
                raise home_seal.sealed_error(journal.session, mark)
        return True

    def seal_mark(self, session: SessionId, instance: InstanceId) -> SealMark | None:
        sealed = self.registry.state.sealed.get(session)
        if sealed is None or sealed.instance != instance:
            return None
        return SealMark(sealed.code, sealed.detail, sealed.at_seq)

    def generation(self) -> int:
        """Return the key generation of new segments."""
        generation = self.registry.state.generation
        if generation not in self._keys:
            self._keys.reload()
        return generation

    def is_lost(self, generation: int) -> bool:
        """
        Return True for a key that the home's journal names and that we lack. A segment that names
        any other unknown key is damaged.

        A sealed home may have lost the record that names the key, so it never reports a session as
        damaged for that reason.
        """
        return generation not in self._keys and (
            self.mark is not None or 1 <= generation <= self.registry.state.generation
        )

    # --- Writing

    def append(self, decide: Callable[[Section], Sequence[Draft]]) -> Appended:
        journal = self._usable_handle()
        # A process may run for weeks: without this check, it would write on top of changed records.
        return journal.append_now(decide, since=journal.head, check=Check.FENCE)

    def _usable_handle(self) -> FileJournal:
        """
        Return a usable handle. A commit in doubt spends the handle; a long-running process then
        reopens the journal, which resolves the doubt.
        """
        with self._reopening:
            if self._handle.is_in_doubt:
                self._handle = FileJournal(self._store, self.queue, self._fence_anew())
            return self._handle

    def _fence_anew(self) -> Fence:
        try:
            return self._verified_to_head()
        except Damaged as exc:
            raise self._sealed_by(exc) from None
        except OSError as exc:
            raise InDoubt(
                f"the home's journal can't be opened to check the last commit ({exc})",
                hint="try again",
            ) from exc

    async def open_handle(self) -> FileJournal:
        """Return a handle for the caller, at our head."""
        if self._handle.is_in_doubt:
            await self._store.in_thread(self._usable_handle)
        return FileJournal(
            self._store,
            self.queue,
            self._handle.fence.copy(),
            mark=self.mark,
            verified=self.is_verified,
        )

    def seal(self, journal: FileJournal, error: Untrusted) -> None:
        """Seal durably; a second call does nothing."""
        if journal.session == HOME_SESSION:
            return self._seal_itself(error)
        if (
            self.seal_mark(journal.session, journal.instance) is not None
            or self.trouble is not None
        ):
            return None
        event = SessionSealed(
            session=journal.session,
            instance=journal.instance,
            code=error.code,
            detail=error.message,
            at_seq=error.at_seq,
            segment=error.segment,
            byte=error.byte,
        )
        self.append(lambda _: [draft(event)])
        self.refresh()
        return None

    def _sealed_by(self, found: Damaged) -> Untrusted:
        error = self._handle.untrusted(found.damage, while_open=True)
        self._seal_itself(error)
        return error

    def _seal_itself(self, error: Untrusted) -> None:
        self.mark = self.mark or SealMark(error.code, error.message, error.at_seq)
        with contextlib.suppress(OSError):
            home_seal.write(self.files.home, self.mark)
        self._handle.spend(error)


def draft(event: AnyHomeEvent) -> Draft:
    return Draft(*encode_home_event(event))
