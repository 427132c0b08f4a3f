"""Instances of sessions: unseal, fork, delete, export, import, restore, prune."""

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from holdfast.ids import SessionId, session_id
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.runtime.ledger.home_authority import Dropped, Keep
    from holdfast.runtime.lifecycle.import_file import ImportReport
    from holdfast.runtime.lifecycle.prune import Old


class LifecycleVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def unseal(self, session: str, *, by: str, reason: str) -> SessionReport:
        """Continue a sealed session from the last record that verifies, in a new instance."""
        from holdfast.runtime.lifecycle.unseal import unseal

        return await unseal(self._runtime, session, by=by, reason=reason)

    async def lost_calls(self, session: str) -> tuple[str, ...]:
        """The calls past the damage that `unseal` would report."""
        from holdfast.runtime.lifecycle.unseal import begun_past_damage

        return await begun_past_damage(self._runtime, session)

    async def fork(self, session: str, into: str, *, at_seq: int, by: str) -> SessionReport:
        """Copy a session up to this record, under another name. Nothing owed comes along."""
        from holdfast.runtime.lifecycle.fork import fork

        return await fork(self._runtime, session, into, at_seq=at_seq, by=by)

    async def delete(self, session: str, *, by: str) -> None:
        """Delete a session permanently. Its jobs end first."""
        from holdfast.runtime.lifecycle.delete import delete

        await delete(self._runtime, session_id(session), by=by)

    def export_lines(self, session: str) -> AsyncIterator[bytes]:
        """Yield every record as stored, line by line."""
        from holdfast.runtime.lifecycle.export import export_lines

        return export_lines(self._runtime, session)

    async def export_markdown(self, session: str) -> str:
        from holdfast.runtime.lifecycle.export import export_markdown

        return await export_markdown(self._runtime, session)

    async def doubt_about(self, session: str) -> str | None:
        """Return why an export cannot be believed as it stands; None if it can."""
        from holdfast.runtime.lifecycle.export import doubt_about

        return await doubt_about(self._runtime, session)

    async def import_file(
        self, session: str, data: bytes, *, source: str, by: str
    ) -> "ImportReport":
        """Create a new session from a file's bytes."""
        from holdfast.runtime.lifecycle.import_file import import_file

        return await import_file(self._runtime, session, data, source=source, by=by)

    async def restore(
        self, *, by: str, keep: "Keep | None"
    ) -> "tuple[tuple[SessionReport, ...], Dropped]":
        """
        After a home was copied from a backup: drop its authority, and continue every session in a
        new instance.
        """
        from holdfast.runtime.ledger.home_authority import drop_restored
        from holdfast.runtime.lifecycle.restore import restore_all

        dropped = await drop_restored(self._runtime.home, by=by, keep=keep)
        return await restore_all(self._runtime, by=by), dropped

    async def old_sessions(self, *, before_ms: int, most: int | None = None) -> "Sequence[Old]":
        """Return sessions without a record since `before_ms` that owe nothing."""
        from holdfast.runtime.lifecycle.prune import old_sessions

        return await old_sessions(self._runtime, before_ms=before_ms, most=most)

    async def prune(self, sessions: "Sequence[Old]", *, by: str) -> Sequence[SessionId]:
        """Delete these sessions; return the deleted ones."""
        from holdfast.runtime.lifecycle.prune import delete_old

        return await delete_old(self._runtime, sessions, by=by)
