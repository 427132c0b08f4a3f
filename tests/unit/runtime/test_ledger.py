"""A ledger's state is what its journal says, whichever way it got there."""

import pytest

from holdfast.adapters.inmemory import InMemoryDisk, InMemoryStore
from holdfast.adapters.inmemory.disk import Fault
from holdfast.errors import Busy, NotSaved, ReadOnly
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.ports.journal_store import Draft, SealMark
from holdfast.runtime.context import Tuning
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.rules import LedgerRules
from holdfast.session.codec import encode
from holdfast.session.commands import QueueDelivery
from holdfast.session.events import SessionBorn, SessionEvent
from holdfast.session.evolve import fold as evolving
from holdfast.session.state import SessionState
from holdfast.testing import ManualClock
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def owed(part: str) -> QueueDelivery:
    return QueueDelivery(
        turn=TurnId("t1"), channel="post", part=part, kind="reply", text="so be it"
    )


async def opened(count: int) -> tuple[InMemoryDisk, list[Ledger]]:
    disk, clock = InMemoryDisk(), ManualClock()
    event = SessionBorn(session=OPS, instance=InstanceId("life"), origin="created", by="alice")
    await (
        await InMemoryStore(disk, clock=clock).create(
            OPS, InstanceId("life"), [Draft(*encode(event))], origin="created", by="alice"
        )
    ).close()
    return disk, [
        await Ledger.open(await InMemoryStore(disk, clock=clock).open(OPS)) for _ in range(count)
    ]


@in_loop
async def test_an_unsaved_commit_is_not_reused_for_an_equal_foreign_record() -> None:
    """Same number, same bytes, same instant; another record before it."""
    disk, (mine, other) = await opened(2)
    disk.fail_next(Fault.NOT_SAVED)
    with pytest.raises(NotSaved):
        await mine.commit(owed("one"), owed("same"))
    await other.commit(owed("two"))
    await other.commit(owed("same"))
    await mine.catch_up()
    assert len(mine.state.deliveries) == 2
    assert mine.state == other.state


@in_loop
async def test_the_ledger_does_not_fold_its_own_commit_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, (ledger,) = await opened(1)
    folded: list[int] = []

    def counted(state: SessionState, event: SessionEvent, *, seq: int, at: int) -> SessionState:
        folded.append(seq)
        return evolving.evolve(state, event, seq=seq, at=at)

    monkeypatch.setattr("holdfast.runtime.ledger.ledger.evolve", counted)
    await ledger.commit(owed("one"), owed("two"))
    assert (folded, ledger.state.seq) == ([], 3)


@in_loop
async def test_a_handle_that_no_ledger_comes_of_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A process that stays looks again and again at a session that it can't open: what each look
    leaves open adds up.
    """
    sealed, looked_at, kept = [
        await InMemoryStore((await opened(0))[0]).open(OPS) for _ in range(3)
    ]
    await sealed.seal(SealMark("broken", "for the test"))

    async def busy(*_: object, **__: object) -> None:
        raise Busy("somebody writes")

    for journal in (sealed, looked_at):
        monkeypatch.setattr(journal, "load", busy)
    monkeypatch.setattr(kept, "keep_snapshot", busy, raising=False)
    monkeypatch.setattr(kept, "read_snapshot", busy, raising=False)
    for opening in (
        Ledger.open(sealed),
        Ledger.read_only(looked_at, ReadOnly("a mount")),
        Ledger.open(kept, LedgerRules(tuning=Tuning(snapshot_every_records_closed=0))),
    ):
        with pytest.raises(Busy):
            await opening
    assert [journal._closed for journal in (sealed, looked_at, kept)] == [True, True, True]


@in_loop
async def test_a_session_too_short_for_a_snapshot_is_not_asked_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = await InMemoryStore((await opened(0))[0]).open(OPS)

    async def asked(*_: object) -> None:
        raise Busy("a snapshot was asked for")

    monkeypatch.setattr(journal, "keep_snapshot", asked, raising=False)
    monkeypatch.setattr(journal, "read_snapshot", asked, raising=False)
    ledger = await Ledger.open(journal)
    assert ledger.state.seq == journal.head.seq > 0
    await ledger.close()
