"""
Look at the sessions of a home without opening their journals: heads, unfinished commits, lock
holders, unusable files; and verify one. Nothing here changes a file. Everything blocks.
"""

import contextlib
import os
from collections.abc import Collection, Sequence

from holdfast.adapters.files.home.journal import HomeJournal
from holdfast.adapters.files.home.keys import KnownKeys
from holdfast.adapters.files.home.layout import HOME_SESSION, HomeFiles
from holdfast.adapters.files.paths import open_file, walk
from holdfast.adapters.files.session.verification import unreadable, verify_files
from holdfast.errors import Busy, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.verify import Verdict
from holdfast.session.home.events import SessionCreated


class Survey:
    def __init__(self, files: HomeFiles, own: HomeJournal, keys: KnownKeys) -> None:
        self._files, self._own, self._keys = files, own, keys

    def heads(
        self, after: SessionId | None, limit: int | None
    ) -> list[tuple[SessionId, InstanceId, int]]:
        self._own.refresh()
        return self._heads_of(self._own.registry.page(after, limit))

    def heads_of(self, sessions: Collection[SessionId]) -> list[tuple[SessionId, InstanceId, int]]:
        self._own.refresh()
        created = (self._own.created(name) for name in sorted(sessions))
        return self._heads_of([each for each in created if each is not None])

    def _heads_of(
        self, living: Sequence[SessionCreated]
    ) -> list[tuple[SessionId, InstanceId, int]]:
        seqs = self._files.tables.seqs(living, self._keys)
        return [
            (created.session, created.instance, seq)
            for created, seq in zip(living, seqs, strict=True)
        ]

    def unsettled(self) -> list[SessionId]:
        self._own.refresh()
        return [
            name
            for name, created in sorted(self._own.registry.state.sessions.items())
            if self._goes_past_anchor(created)
        ]

    def _goes_past_anchor(self, created: SessionCreated) -> bool:
        files = self._files.of(created)
        with contextlib.suppress(OSError):
            reading = files.anchor.read_slots_twice(files.keys)
            if reading.anchor is None:
                return False  # the process that opens the session reports the cause
            return (
                reading.settled is None
                or files.stat_segment(reading.anchor.segment).st_size > reading.anchor.length
            )
        return False

    def held_by(self, session: SessionId, wait_seconds: float | None) -> Busy | None:
        created = self._own.created(session)
        if created is None:
            return None
        files = self._files.of(created)
        try:
            with (
                contextlib.suppress(Refused, OSError),
                files.locked(wait_seconds),
            ):  # the process that opens it reports the cause
                return None
        except Busy as exc:
            return exc
        finally:
            files.close()
        return None

    def verify(self, session: SessionId, wait_seconds: float | None) -> Verdict:
        own = self._own
        with contextlib.suppress(Untrusted):
            own.refresh()
        created = own.created(session)
        if not own.is_verified and (created is not None or session == HOME_SESSION):
            return unreadable(session, own.trouble or "there is no key to verify it with")
        if session == HOME_SESSION:
            return verify_files(
                own.files,
                sealed=own.mark is not None,
                first_mac=None,
                is_lost=lambda _: True,
                wait_seconds=wait_seconds,
            )
        created = own.living(session)
        files = self._files.of(created)
        sealed = own.seal_mark(session, created.instance) is not None
        try:
            return verify_files(
                files,
                sealed=sealed,
                first_mac=created.first_mac,
                is_lost=own.is_lost,
                wait_seconds=wait_seconds,
            )
        finally:
            files.close()

    def trouble_with(self, session: SessionId) -> str | None:
        created = self._own.created(session)
        if created is None:
            return None
        files = self._files.of(created)
        try:
            with walk(self._files.home, *files.parts) as folder:
                numbers = files.numbers(folder)
                for number in numbers:
                    os.close(open_file(folder, files.name(number), os.O_RDONLY))
            return (
                None
                if numbers and files.anchor.read_raw()
                else "its journal or its anchor is missing"
            )
        except Refused as exc:
            return exc.message
        except OSError as exc:
            return f"{exc.strerror}: {exc.filename}"
