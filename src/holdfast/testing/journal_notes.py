"""
The smallest possible history: notes in a journal. The suites of stores write and read them; their
content has no meaning.
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.errors import NewerVersion
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import (
    Appended,
    Check,
    Decide,
    Draft,
    Journal,
    JournalStore,
    Record,
    Section,
)
from holdfast.session.home.events import HomeState, decode_home_event

OPS = SessionId("ops/api")
OTHER = SessionId("ops/db")
INSTANCE = InstanceId("i-first")
LATER_INSTANCE = InstanceId("i-later")


def note(text: str) -> Draft:
    return Draft("note", 1, msgspec.json.encode({"text": text}))


def says(*texts: str) -> Decide:
    """Return a decision that always adds these notes."""
    return lambda _: [note(text) for text in texts]


def says_drafts(drafts: Sequence[Draft]) -> Decide:
    return lambda _: drafts


def nothing(_: Section) -> Sequence[Draft]:
    return ()


def text_of(record: Record) -> str:
    return str(msgspec.json.decode(record.body)["text"])


def texts(records: Sequence[Record]) -> list[str]:
    """Return the texts of the notes; a store may keep records of its own in between."""
    return [text_of(record) for record in records if record.type == "note"]


async def everything(journal: Journal, *, after: int = 0) -> list[Record]:
    records: list[Record] = []
    await journal.load(records.append, after=after)
    return records


async def create_session(
    store: JournalStore, session: SessionId = OPS, *, instance: InstanceId = INSTANCE
) -> Journal:
    return await store.create(session, instance, [note("born")], origin="created", by="tests")


async def say(
    journal: Journal, *said: str, check: Check = Check.SHORT, epoch: int | None = None
) -> Appended:
    return await journal.append(says(*said), since=journal.head, check=check, epoch=epoch)


async def home_state(store: JournalStore) -> HomeState:
    state = HomeState()

    def fold(record: Record) -> None:
        with suppress(NewerVersion):
            state.evolve(decode_home_event(record.type, record.version, record.body), at=record.at)

    await (await store.home()).load(fold)
    return state
