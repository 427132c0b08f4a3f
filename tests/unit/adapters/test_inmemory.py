"""
The reference store's own powers: faults, crashes, lost notices, one write for many. The contract:
tests/proof/conformance.
"""

import asyncio

import pytest

from holdfast.adapters.inmemory import (
    HOME,
    Crashed,
    Fault,
    InMemoryDisk,
    InMemoryNotifier,
    InMemoryStore,
)
from holdfast.adapters.inmemory.commit import verified
from holdfast.adapters.listener import Listener
from holdfast.errors import Busy, HoldfastError, InDoubt, NotSaved, Takeover, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Check, Head
from holdfast.testing.conformance.store import (
    OPS,
    OTHER,
    create_session,
    everything,
    home_state,
    note,
    says,
    texts,
)
from holdfast.testing.loop import in_loop


async def reread(disk: InMemoryDisk) -> list[str]:
    return texts(await everything(await InMemoryStore(disk).open(OPS)))


@in_loop
async def test_appends_begun_together_are_one_write() -> None:
    store = InMemoryStore()
    journal = await create_session(store)
    before = store.disk.commits
    await asyncio.gather(*(journal.append(says(f"{n}"), since=journal.head) for n in range(10)))
    assert store.disk.commits == before + 1


FAULTS = [
    # fault, error, survives, handle still works
    (Fault.BUSY, Busy, False, True),
    (Fault.NOT_SAVED, NotSaved, False, True),
    (Fault.IN_DOUBT_WRITTEN, InDoubt, True, False),
    (Fault.IN_DOUBT_NOT_WRITTEN, InDoubt, False, False),
    (Fault.CRASH_WRITTEN, Crashed, True, False),
    (Fault.CRASH_NOT_WRITTEN, Crashed, False, False),
]


@pytest.mark.parametrize(("fault", "error", "survives", "goes_on"), FAULTS)
@pytest.mark.parametrize("many", [1, 3])
@in_loop
async def test_a_fault_strikes_the_whole_commit(
    fault: Fault, error: type[BaseException], survives: bool, goes_on: bool, many: int
) -> None:
    """
    Everybody in it hears the same, and the bytes are as the fault says; the next process goes on
    from there.
    """
    store = InMemoryStore()
    journal = await create_session(store)
    store.disk.fail_next(fault)
    work = [journal.append(says(f"{n}"), since=journal.head) for n in range(many)]
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [error] * many
    expected = ["born", *(f"{n}" for n in range(many) if survives)]
    assert await reread(store.disk) == expected
    if goes_on:
        await journal.append(says("after"), since=journal.head)
    else:
        with pytest.raises(error):
            await journal.append(says("after"), since=journal.head)
    fresh = await InMemoryStore(store.disk).open(OPS)
    await fresh.append(says("later"), since=fresh.head, check=Check.FENCE)
    assert await reread(store.disk) == [*expected, *(["after"] if goes_on else []), "later"]


PARTLY = [(Fault.IN_DOUBT_PARTLY, InDoubt), (Fault.CRASH_PARTLY, Crashed)]


@pytest.mark.parametrize(("fault", "error"), PARTLY)
@in_loop
async def test_a_partly_written_commit_is_discarded_whole(
    fault: Fault, error: type[BaseException]
) -> None:
    store = InMemoryStore()
    journal = await create_session(store)
    store.disk.fail_next(fault)
    with pytest.raises(error):
        await journal.append(
            lambda _: [note("first"), note("second"), note("third")], since=journal.head
        )
    assert (await reread(store.disk))[1:] == []
    stored = store.disk.living(OPS)
    assert [kind for kind, _ in stored.quarantine] == ["torn_tail"]
    assert b"tail_repaired" in stored.entries[-1].header


@in_loop
async def test_the_part_of_a_decision_that_is_cut_is_kept_in_quarantine() -> None:
    """D3: the same bytes that stood at the end, for people to read."""
    store = InMemoryStore()
    journal = await create_session(store)
    store.disk.fail_next(Fault.CRASH_PARTLY)
    with pytest.raises(Crashed):
        await journal.append(lambda _: [note("first"), note("second")], since=journal.head)
    torn = store.disk.living(OPS).entries[-1]
    await reread(store.disk)
    ((_, kept),) = store.disk.living(OPS).quarantine
    assert kept == torn.header + torn.body + torn.mac
    assert b"first" in kept


def test_every_fault_is_in_a_table() -> None:
    assert {row[0] for row in FAULTS} | {row[0] for row in PARTLY} == set(Fault)


@in_loop
async def test_a_fault_of_one_session_spares_the_others() -> None:
    store = InMemoryStore()
    ops, db = await create_session(store), await create_session(store, OTHER)
    store.disk.fail_next(Fault.NOT_SAVED, session=OPS)
    await db.append(says("fine"), since=db.head)
    with pytest.raises(NotSaved):
        await ops.append(says("lost"), since=ops.head)


@pytest.mark.parametrize(
    ("fault", "exists"),
    [(Fault.NOT_SAVED, False), (Fault.IN_DOUBT_WRITTEN, True), (Fault.IN_DOUBT_NOT_WRITTEN, False)],
)
@in_loop
async def test_a_creation_whose_record_fails_is_whole_or_absent(fault: Fault, exists: bool) -> None:
    store = InMemoryStore()
    await store.home()
    store.disk.fail_next(fault, session=HOME)
    with pytest.raises(HoldfastError):
        await create_session(store)
    fresh = InMemoryStore(store.disk)
    assert await fresh.sessions() == ([OPS] if exists else [])
    if exists:
        assert await reread(store.disk) == ["born"]


@in_loop
async def test_a_seal_holds_though_the_home_could_not_record_it() -> None:
    """The mark alone seals; the next open tells the home."""
    store = InMemoryStore()
    journal = await create_session(store)
    store.disk.flip(OPS, 1)
    store.disk.fail_next(Fault.NOT_SAVED, session=HOME)
    with pytest.raises(Takeover):
        await journal.append(says("late"), since=journal.head, check=Check.FENCE)
    fresh = InMemoryStore(store.disk)
    assert (await fresh.open(OPS)).sealed is not None
    assert OPS in (await home_state(fresh)).sealed


@in_loop
async def test_a_changed_home_creates_no_session() -> None:
    store = InMemoryStore()
    await create_session(store)
    store.disk.flip(HOME, 2)
    with pytest.raises(Untrusted):
        await create_session(InMemoryStore(store.disk), OTHER)
    with pytest.raises(Untrusted):
        await store.sessions()


@in_loop
async def test_after_a_crash_nothing_of_the_old_process_works_and_all_bytes_are_there() -> None:
    store = InMemoryStore()
    journal = await create_session(store)
    claim = await journal.claim()
    assert claim is not None
    waiting = asyncio.ensure_future(journal.append(says("never begun"), since=journal.head))
    await asyncio.sleep(0)
    fresh = store.crash()
    outcomes = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcomes[0], Crashed)
    for use in (journal.load(lambda _: None), store.open(OPS), journal.claim()):
        with pytest.raises(Crashed):
            await use
    reopened = await fresh.open(OPS)
    assert texts(await everything(reopened)) == ["born"]
    again = await reopened.claim()
    assert again is not None
    assert again.epoch > claim.epoch


@in_loop
async def test_notices_reach_every_listener_on_the_disk() -> None:
    disk = InMemoryDisk()
    here, there = InMemoryNotifier(disk), InMemoryNotifier(disk)
    async with here.listen() as ours, there.listen() as theirs:
        here.notify(OPS)
        here.notify(OPS)
        here.notify(OTHER)
        assert [await anext(ours), await anext(theirs)] == [OPS, OPS]
        assert await anext(theirs) == OTHER
    assert disk.listeners == []


@in_loop
async def test_a_notice_can_be_lost() -> None:
    disk = InMemoryDisk()
    notifier = InMemoryNotifier(disk)
    async with notifier.listen() as notices:
        disk.notices_to_lose = 1
        notifier.notify(OPS)
        notifier.notify(SessionId("ops/next"))
        assert await anext(notices) == "ops/next"


@in_loop
async def test_a_notice_to_a_loop_that_closes_just_now_hinders_nobody() -> None:
    """
    A notice is a hint: whoever wrote something hears nothing of a listener that has gone without a
    word.
    """
    gone = asyncio.new_event_loop()
    listener = Listener(gone)
    gone.close()
    listener.hear(OPS)


@in_loop
async def test_a_forged_row_is_as_long_as_a_genuine_one() -> None:
    """The tampering hands leave nothing by which they could be told apart but the mac."""
    disk = InMemoryDisk()
    await create_session(InMemoryStore(disk))
    disk.forge(OPS, note("born"))
    genuine, forged = disk.living(OPS).entries
    assert (len(genuine.mac), genuine.body) == (len(forged.mac), forged.body)


def test_a_record_that_held_after_one_does_not_hold_after_another() -> None:
    """
    L4: what the chain has said is remembered for the bytes and for what they follow, so one that is
    taken out of the middle is seen.
    """
    stored = InMemoryDisk().create(OPS, InstanceId("i1"))
    head = stored.genesis
    for text in ("one", "two", "three"):
        entry, record = stored.seal_entry(head, note(text), at=0, epoch=0, writer="w")
        stored.entries.append(entry)
        head = Head(record.seq, record.mac)
    assert [len(verified(stored, stored.genesis, upto=3)[0]) for _ in range(2)] == [3, 3]
    del stored.entries[1]
    held, damage = verified(stored, stored.genesis, upto=2)
    assert ([record.seq for record in held], isinstance(damage, Untrusted)) == ([1], True)


@in_loop
async def test_a_process_that_dies_while_it_seals_leaves_every_other_append_its_outcome() -> None:
    """
    Found by seed 9000997: appends of two processes wait together, the one that leads finds damage,
    and dies when it tells the home.
    """
    disk = InMemoryDisk()
    leader, other = InMemoryStore(disk), InMemoryStore(disk)
    ours = await create_session(leader)
    theirs = await other.open(OPS)
    disk.flip(OPS, 1)
    disk.fail_next(Fault.CRASH_NOT_WRITTEN, session=HOME)
    first, second = await asyncio.gather(
        ours.append(says("a"), since=ours.head, check=Check.FENCE),
        theirs.append(says("b"), since=theirs.head),
        return_exceptions=True,
    )
    assert (type(first), type(second)) == (Crashed, Takeover)
    assert (leader.is_alive, other.is_alive) == (False, True)
    with pytest.raises(Takeover):
        await theirs.append(says("c"), since=theirs.head)
    assert (await InMemoryStore(disk).open(OPS)).sealed is not None
    assert OPS in (await home_state(InMemoryStore(disk))).sealed
