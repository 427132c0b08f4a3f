"""
Logs every decision about a prompt, whichever process recorded it. With several workers, each one
logs the decisions about the sessions that it drives, because it has them open.

Answers come from the page, from a terminal, from scripts and from channels. All of them are records
of a session's journal, and a notice names the session. This module reads the records that are new
since its last look. Decisions from before the start of the server are not logged again. The server
takes requests only after `begin`, so that no decision falls between the two.
"""

import asyncio
import logging

from holdfast.errors import HoldfastError, NewerVersion, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.runtime.service import Service
from holdfast.session.codec import decode
from holdfast.session.events import AnswerRefused, ApprovalAnswered, ApprovalClosed
from holdfast.state_words import answer_words, state_words

# Notices that come together are one look. A person who reads the log does not notice the wait.
_TOGETHER_SECONDS = 0.2
_TYPES = frozenset({"approval_answered", "approval_closed", "answer_refused"})
_WAYS = {"script": "by a script", "terminal": "in a terminal", "page": "on the page"}
_log = logging.getLogger("holdfast.gateway.decisions")


class DecisionLog:
    """`notice` marks a session that may have changed; `run` reads and logs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        # The last record of each session that was looked at, in its instance.
        self._seen: dict[SessionId, tuple[InstanceId, int]] = {}
        self._changed: set[SessionId] = set()
        self._news = asyncio.Event()

    def notice(self, session: SessionId) -> None:
        self._changed.add(session)
        self._news.set()

    async def begin(self) -> None:
        """Remember the last record of each session. Records after it are logged."""
        heads = await self._service.live.heads()
        self._seen = {session: (instance, seq) for session, instance, seq in heads}

    async def run(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._news.clear()
            changed, self._changed = self._changed, set()
            for session in changed:
                await self._look_at(session)

    async def _look_at(self, session: SessionId) -> None:
        try:
            records = await self._new_records(session)
        except (NewerVersion, Untrusted, Refused, OSError):
            return  # unreadable, damaged or deleted; the next notice looks again
        except HoldfastError:
            self.notice(session)  # busy; look again after the wait
            return
        for record in records:
            if record.type in _TYPES:
                _log.info("%s", _words(session, record))

    async def _new_records(self, session: SessionId) -> list[Record]:
        """
        Return the records since the last look. A new instance begins with the records of the one
        before, so it has none.
        """
        live, found = self._service.live, list[Record]()
        async with live.use(session) as ledger:
            if ledger.journal.sealed is None and not ledger.driving:
                await ledger.catch_up_if_behind()
            instance, head = ledger.instance, ledger.state.seq
            known, after = self._seen.get(session, (instance, 0))
            recent = list(ledger.recent)
            if known != instance:
                after = head
            elif recent and recent[0].seq <= after + 1:
                found = [record for record in recent if after < record.seq <= head]
            else:
                while after < head and (page := await live.records_after(ledger, after)):
                    found += page
                    after = page[-1].seq
            self._seen[session] = (instance, head)
        return [record for record in found if record.seq <= head]


def _words(session: SessionId, record: Record) -> str:
    match decode(record.type, record.version, record.body, seq=record.seq):
        case ApprovalAnswered(by=by, option=option, approval=approval, way=way):
            how = f", {_WAYS.get(way, f'in {way}')}" if way is not None else ""
            return f"{answer_words(by, option)}: {approval} in {session}{how}"
        case AnswerRefused(by=by, approval=approval):
            return f"{by} tried to answer {approval} in {session} and may not; it still stands"
        case ApprovalClosed(approval=approval, closed_as=closed_as):
            words = state_words().closed.get(closed_as, closed_as)
            return f"{approval} in {session}: {words}"
        case _:
            return record.type
