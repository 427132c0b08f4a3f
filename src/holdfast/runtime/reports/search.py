"""
Search: bring the full-text cache up to the journals, find, and show each hit only to readers of its
audience and boundary.

Nothing is added while turns run: each search reads the records since the last search, so a crash
between an append and a search loses nothing.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from holdfast.errors import HoldfastError, Refused, Unusable
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.ports.search import Search, SearchedText
from holdfast.runtime.reports.session_list import readers_of
from holdfast.runtime.reports.types import iso
from holdfast.runtime.runtime import Runtime
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.codec import decode
from holdfast.session.events import InputAccepted, TurnEnded, TurnImported
from holdfast.session.state import Reader
from holdfast.session.view.messages import AssistantMessage, UserMessage
from holdfast.threads import BLOCKING

WORDS_MAX = 16
SNIPPET_CHARS = 160
_SEARCHED = frozenset({"input_accepted", "turn_ended", "turn_imported"})


class HitReport(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    turn: TurnId
    seq: int
    at: str
    kind: str
    who: str | None
    snippet: str


class SearchReport(msgspec.Struct, frozen=True, kw_only=True):
    hits: tuple[HitReport, ...]
    next: str | None  # `--after` for the next page; None on the last page


async def search(
    runtime: Runtime, text: str, *, person: str | None, limit: int = 20, after: str | None = None
) -> SearchReport:
    """
    Return the pieces that hold all the words, newest first. `person` None sees everything: the
    home's owner at the home itself.
    """
    found = runtime.world.search
    words = text.split()[:WORDS_MAX]
    if found is None:
        raise Unusable("this home has no search", hint="it is in homes of files")
    if not words:
        raise Refused(
            "search for at least one word", code="malformed", hint="name words that were said"
        )
    await _catch_up(runtime, found)
    sees = _Sight(runtime, person)
    hits: list[HitReport] = []
    cursor = after
    while True:
        page = await BLOCKING.call(partial(found.find, words, limit=limit, after=cursor))
        for hit in page:
            if len(hits) == limit:
                return SearchReport(hits=tuple(hits), next=cursor)
            cursor = hit.cursor
            if await sees.sees(hit.said):
                hits.append(_report(hit.said, words))
        if len(page) < limit:
            return SearchReport(hits=tuple(hits), next=None)


class _Sight:
    """
    Whether one person may see a piece of text: the person takes part in that session, in the same
    audience and boundary. Looked up once per session.
    """

    def __init__(self, runtime: Runtime, person: str | None) -> None:
        self._runtime = runtime
        self._person = person
        self._readers: dict[SessionId, frozenset[Reader]] = {}

    async def sees(self, said: SearchedText) -> bool:
        if self._person is None:
            return True
        if said.session not in self._readers:
            try:
                self._readers[said.session] = frozenset(
                    await readers_of(self._runtime.sessions, said.session)
                )
            except HoldfastError:
                self._readers[said.session] = frozenset()
        return (
            bool(said.boundary)
            and Reader(self._person, said.audience, said.boundary) in self._readers[said.session]
        )


async def _catch_up(runtime: Runtime, found: Search) -> None:
    known = await BLOCKING.call(found.through)
    heads = await runtime.world.store.heads()
    for session, instance, seq in heads:
        known_instance, through = known.get(session, (None, 0))
        if known_instance == instance and through >= seq:
            continue
        try:
            await _add(runtime, found, session, after=through if known_instance == instance else 0)
        except HoldfastError:
            continue  # sealed or unreadable: text that verified before is still found
    living = {session for session, _, _ in heads}
    for session in known:
        if session not in living:
            await BLOCKING.call(partial(found.forget, session))


async def _add(runtime: Runtime, found: Search, session: SessionId, *, after: int) -> None:
    journal = await runtime.world.store.open(session)
    reader = _Reading(session, journal.instance)
    try:
        head = await journal.load(reader.fold, after=after)
    finally:
        await journal.close()

    def add() -> None:
        found.add(
            session,
            journal.instance,
            head.seq,
            reader.with_reader_sets(lambda turn: found.turn_reader_set(session, turn)),
        )

    await BLOCKING.call(add)


class _Reading:
    """Folds only the text of people and models, with the audience and boundary of its turn."""

    def __init__(self, session: SessionId, instance: InstanceId) -> None:
        self._session, self._instance = session, instance
        self._reader_sets: dict[TurnId, tuple[str, str]] = {}
        self._said: list[SearchedText] = []

    def with_reader_sets(
        self, known: Callable[[TurnId], tuple[str, str] | None]
    ) -> list[SearchedText]:
        """The text in order. `known` gives the readers of a turn that began before."""
        for turn in {each.turn for each in self._said} - self._reader_sets.keys():
            self._reader_sets[turn] = known(turn) or ("", "")
        return [
            msgspec.structs.replace(
                each,
                audience=self._reader_sets[each.turn][0],
                boundary=self._reader_sets[each.turn][1],
            )
            for each in self._said
        ]

    def fold(self, record: Record) -> None:
        if record.type not in _SEARCHED:
            return
        match decode(record.type, record.version, record.body, seq=record.seq):
            case InputAccepted() as accepted:
                context = restore(accepted.context, session=self._session, instance=self._instance)
                reader_set = (
                    (context.audience.value, context.boundary)
                    if isinstance(context, TurnContext)
                    else ("", "")
                )
                self._reader_sets[accepted.turn] = reader_set
                who = (
                    context.requester
                    if isinstance(context, TurnContext) and accepted.kind != "delegate"
                    else None
                )
                self._say(record, accepted.turn, "request", who, accepted.text)
            case TurnEnded(turn=turn, reply=str() as reply):
                self._say(record, turn, "reply", None, reply)
            case TurnImported() as imported:
                text = "\n".join(
                    each.text
                    for each in imported.messages
                    if isinstance(each, UserMessage | AssistantMessage)
                )
                self._say(record, imported.turn, "imported", None, text)
            case _:
                pass

    def _say(self, record: Record, turn: TurnId, kind: str, who: str | None, text: str) -> None:
        if not text.strip():
            return
        self._said.append(
            SearchedText(
                session=self._session,
                instance=self._instance,
                turn=turn,
                seq=record.seq,
                at=record.at,
                kind=kind,
                who=who,
                audience="",
                boundary="",
                text=text,
            )
        )


def _report(said: SearchedText, words: list[str]) -> HitReport:
    one_line = " ".join(said.text.split())
    lower = one_line.lower()
    place = min((at for word in words if (at := lower.find(word.lower())) >= 0), default=0)
    start = max(0, place - SNIPPET_CHARS // 3)
    snippet = (
        ("..." if start else "")
        + one_line[start : start + SNIPPET_CHARS]
        + ("..." if start + SNIPPET_CHARS < len(one_line) else "")
    )
    return HitReport(
        session=said.session,
        turn=said.turn,
        seq=said.seq,
        at=iso(said.at),
        kind=said.kind,
        who=said.who,
        snippet=snippet,
    )
