"""
The open prompts of all sessions, and the last changes to them, numbered.

This module reads no journal. The caller reads a session and passes its open prompts; each
difference from the board is one change. Changes are kept as outgoing bytes, bounded in number and
size. A place is the number of the next change. A stream's cursor is the board's own id and a place,
so a number from another process or an earlier board is never mistaken for one of this board.
"""

import secrets
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import ApprovalId, SessionId
from holdfast.runtime.reports.open_prompts import PromptEnd
from holdfast.runtime.reports.types import ApprovalReport

# Covers a busy home's last minutes. After a longer absence, reading the whole list is shorter.
KEPT_CHANGES = 1_024
KEPT_BYTES = 4 * 1024 * 1024


class Prompt(NamedTuple):
    """An open prompt: its outgoing bytes, and the people it is for."""

    id: ApprovalId
    session: SessionId
    data: bytes
    audience: str | None
    boundary: str | None
    people: frozenset[str | None]
    expires_at: int

    @classmethod
    def of(cls, report: ApprovalReport) -> "Prompt":
        expires_at = int(datetime.fromisoformat(report.expires_at).timestamp() * 1000)
        people = frozenset((report.requester, *report.may_answer))
        return cls(
            report.id,
            report.session,
            msgspec.json.encode(report),
            report.audience,
            report.boundary,
            people,
            expires_at,
        )

    def is_for(self, bearer: Bearer) -> bool:
        return bearer.is_concerned(self.audience, self.boundary, self.people)


class Change(NamedTuple):
    """
    Bytes for the people a prompt is for: the event without its id. The id is the place after the
    change.
    """

    prompt: Prompt
    data: bytes


class PromptBoard:
    """One caller at a time updates the board, and never awaits meanwhile."""

    def __init__(self) -> None:
        self.board_id = secrets.token_hex(8)
        self._standing: dict[SessionId, dict[ApprovalId, Prompt]] = {}
        self._next_expiry: int | None = None
        self._changes: deque[Change] = deque()
        self._bytes = 0
        # Every change from this place on is kept.
        self.first_place = 0

    @property
    def next_place(self) -> int:
        return self.first_place + len(self._changes)

    def changes_from(self, place: int) -> Iterable[Change]:
        return islice(self._changes, max(0, place - self.first_place), None)

    def standing_for(self, bearer: Bearer) -> list[Prompt]:
        """Return this bearer's open prompts, sorted by id as the list is."""
        found = [
            prompt
            for prompts in self._standing.values()
            for prompt in prompts.values()
            if prompt.is_for(bearer)
        ]
        return sorted(found, key=lambda prompt: prompt.id)

    def sessions(self) -> Collection[SessionId]:
        """The sessions with open prompts."""
        return tuple(self._standing)

    def standing_in(self, session: SessionId) -> Collection[ApprovalId]:
        return self._standing.get(session, {}).keys()

    def begin(self, reports: Iterable[ApprovalReport]) -> None:
        """Set the open prompts before the first change."""
        for report in reports:
            self._stand(Prompt.of(report))

    def compare(
        self,
        session: SessionId,
        reports: Sequence[ApprovalReport],
        ends: Mapping[ApprovalId, PromptEnd | None],
        *,
        now: int,
    ) -> list[Change]:
        """
        Return the changes of a session, given its open prompts: ended prompts first, then new ones.
        """
        before = self._standing.get(session, {})
        waiting = {report.id for report in reports}
        found = [
            _ended(prompt, ends.get(name)) for name, prompt in before.items() if name not in waiting
        ]
        for change in found:
            self._fall(change.prompt)
        for report in reports:
            if report.id not in before and (prompt := Prompt.of(report)).expires_at > now:
                self._stand(prompt)
                found.append(Change(prompt, b"event: requested\ndata: %s\n\n" % prompt.data))
        return self._keep(found)

    def expire(self, now: int) -> list[Change]:
        """
        End prompts whose time is over, even if their expiry is not in the journal yet: no answer to
        them counts any more.
        """
        if self._next_expiry is None or now < self._next_expiry:
            return []
        standing = [prompt for prompts in self._standing.values() for prompt in prompts.values()]
        over = [prompt for prompt in standing if prompt.expires_at <= now]
        for prompt in over:
            self._fall(prompt)
        self._next_expiry = min(
            (prompt.expires_at for prompt in standing if prompt.expires_at > now), default=None
        )
        return self._keep([_ended(prompt, PromptEnd(None, None, "expired")) for prompt in over])

    def _stand(self, prompt: Prompt) -> None:
        self._standing.setdefault(prompt.session, {})[prompt.id] = prompt
        self._next_expiry = (
            prompt.expires_at
            if self._next_expiry is None
            else min(self._next_expiry, prompt.expires_at)
        )

    def _fall(self, prompt: Prompt) -> None:
        prompts = self._standing[prompt.session]
        del prompts[prompt.id]
        if not prompts:
            del self._standing[prompt.session]

    def _keep(self, changes: list[Change]) -> list[Change]:
        for change in changes:
            self._changes.append(change)
            self._bytes += len(change.data)
        while len(self._changes) > KEPT_CHANGES or (
            self._bytes > KEPT_BYTES and len(self._changes) > 1
        ):
            self._bytes -= len(self._changes.popleft().data)
            self.first_place += 1
        return changes


def _ended(prompt: Prompt, end: PromptEnd | None) -> Change:
    """
    Return the change for an ended prompt: `answered`, `closed`, or `gone` if its session was
    deleted, sealed or replaced by a new instance.
    """
    content: dict[str, Any] = {"id": prompt.id, "session": prompt.session}
    if end is not None and end.closed_as is not None:
        name, content = b"closed", {**content, "closed_as": end.closed_as}
    elif end is not None and end.by is not None:
        name, content = b"answered", {**content, "answered_by": end.by, "option": end.option}
    else:
        name = b"gone"
    return Change(prompt, b"event: %s\ndata: %s\n\n" % (name, msgspec.json.encode(content)))
