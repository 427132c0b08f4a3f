"""
The attempt over the reference store: states, faults, and everything it must not lose. Files and
processes: tests/hostile/fence.
"""

import asyncio
import threading
from collections.abc import Sequence

import pytest
from proof.rigs.ticking import ticking

from holdfast.adapters.inmemory import Fault, InMemoryClaim, InMemoryDisk, InMemoryStore
from holdfast.errors import (
    Busy,
    Fenced,
    InDoubt,
    InvariantBroken,
    NewerVersion,
    NotSaved,
    Takeover,
    Untrusted,
)
from holdfast.ports.journal_store import Appended, Draft, Record, Section
from holdfast.runtime.cancellation import finish
from holdfast.runtime.ledger.attempt import BUSY_TRIES, Attempt, AttemptState, nothing
from holdfast.secrecy import forget, learn
from holdfast.testing.conformance.store import (
    INSTANCE,
    OPS,
    create_session,
    everything,
    note,
    says,
    texts,
)
from holdfast.testing.loop import in_loop


async def attempt_on(store: InMemoryStore, folded: list[Record] | None = None) -> Attempt:
    journal = await store.open(OPS)
    claim = await journal.claim()
    assert claim is not None
    return await Attempt.acquire(
        journal, (folded if folded is not None else []).append, claim=claim
    )


async def home() -> InMemoryStore:
    store = InMemoryStore(InMemoryDisk())
    await create_session(store)
    return store


class CountingClaim(InMemoryClaim):
    releases = 0

    async def release(self) -> None:
        self.releases += 1
        await super().release()


@in_loop
async def test_an_attempt_folds_the_past_and_then_what_is_new() -> None:
    """Each record once, in order, wherever it came from."""
    store, folded = await home(), list[Record]()
    peer = await store.open(OPS)
    attempt = await attempt_on(store, folded)
    await attempt.write(says("one"))
    await attempt.release()
    await peer.append(says("theirs"), since=peer.head)
    await attempt.reacquire(says("two"))
    assert texts(folded) == ["born", "one", "theirs", "two"]
    assert attempt.position == (folded[-1].seq, folded[-1].mac)


@in_loop
async def test_a_head_that_moves_during_the_look_is_not_taken_for_folded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The store catches up in a thread of its own: the journal's head may move before the records are
    folded. A revoked token would else pass once more.
    """
    store, folded = await home(), list[Record]()
    peer = await store.open(OPS)
    journal = await store.open(OPS)
    attempt = await Attempt.acquire(journal, folded.append)
    assert await attempt.is_at_head()
    bound = journal.is_at_head

    async def caught_up_meanwhile() -> bool:
        await journal.append(nothing, since=journal.head)
        return await bound()

    await peer.append(says("theirs"), since=peer.head)
    monkeypatch.setattr(journal, "is_at_head", caught_up_meanwhile)
    assert not await attempt.is_at_head()
    assert texts(folded) == ["born"]


@in_loop
async def test_release_remembers_the_head_and_reacquire_forgets_it() -> None:
    store = await home()
    attempt = await attempt_on(store)
    assert (attempt.phase, attempt.fence) == (AttemptState.HELD, None)
    await attempt.release()
    await attempt.release()
    fence = attempt.position
    assert (attempt.phase, attempt.fence) == (AttemptState.RELEASED, fence)
    await attempt.write(says("a short write of ours in between"))
    assert (attempt.phase, attempt.fence) == (AttemptState.RELEASED, fence)
    await attempt.reacquire()
    assert (attempt.phase, attempt.fence) == (AttemptState.HELD, None)


@in_loop
async def test_writes_at_once_fold_each_record_once() -> None:
    """Results may arrive in any order; a decide never sees what is folded already as new."""
    store, folded = await home(), list[Record]()
    attempt = await attempt_on(store, folded)

    def counting(section: Section) -> Sequence[Draft]:
        return [note(f"{len(texts(folded)) - 1 + len(texts(section.suffix))}")]

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(attempt.write(counting))
    await attempt.write(counting)
    assert texts(folded) == ["born", *(f"{n}" for n in range(21))]


@in_loop
async def test_writes_from_threads_fold_each_record_once() -> None:
    store, folded = await home(), list[Record]()
    attempt = await attempt_on(store, folded)

    def counting(section: Section) -> Sequence[Draft]:
        return [note(f"{len(texts(folded)) - 1 + len(texts(section.suffix))}")]

    def write() -> None:
        for _ in range(25):
            asyncio.run(ticking(attempt.write(counting)))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert texts(folded) == ["born", *(f"{n}" for n in range(100))]


@in_loop
async def test_a_write_is_announced_although_its_waiting_caller_has_gone() -> None:
    """D5: it was saved, so its caller hears that, and not that somebody else's loop is closed."""
    store = await home()
    attempt = await attempt_on(store)
    inside, go = threading.Event(), threading.Event()

    def slow(_: Section) -> Sequence[Draft]:
        inside.set()
        assert go.wait(timeout=60)
        return [note("slow")]

    async def wait_and_leave() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await attempt.release()

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(
            asyncio.to_thread(lambda: asyncio.run(ticking(attempt.write(slow))))
        )
        await asyncio.to_thread(inside.wait)
        await asyncio.to_thread(lambda: asyncio.run(wait_and_leave()))
        go.set()
    done = writing.result()
    assert done is not None
    assert texts(done.suffix) == ["slow"]


@in_loop
async def test_a_takeover_is_sticky_and_what_was_produced_is_kept() -> None:
    """
    The reply is in quarantine, the error says where, and nothing more is written through this
    attempt.
    """
    store = await home()
    attempt = await attempt_on(store)
    await attempt.release()
    store.disk.flip(OPS, 1)
    reply = attempt.produced("reply", b'{"text":"hello"}')
    with pytest.raises(Takeover) as caught:
        await attempt.reacquire(says("hello"), keeping=[reply])
    journal = await store.open(OPS)
    assert list(caught.value.quarantined) == list(await journal.quarantined())
    assert store.disk.living(OPS).quarantine == [("reply", b'{"text":"hello"}')]
    # A tool that was still running ends after the takeover was found: its outcome is kept as well.
    attempt.produced("outcome", b'{"ok":true}')
    with pytest.raises(Takeover) as again:
        await attempt.write(says("late"))
    assert len(again.value.quarantined) == 2
    await attempt.dispose()
    assert [kind for kind, _ in store.disk.living(OPS).quarantine] == ["reply", "outcome"]


@in_loop
async def test_the_first_reason_stops_an_attempt_although_its_store_would_write_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L6: two writes fail at once, each for its own reason; the first holds for every write."""
    store = await home()
    attempt = await attempt_on(store)
    reasons = [Takeover("the first", at_seq=1), Fenced("the second")]
    both = asyncio.Barrier(2)

    async def fail(*_: object, **__: object) -> Appended:
        await both.wait()
        raise reasons.pop(0)

    with monkeypatch.context() as broken:
        broken.setattr(attempt._journal, "append", fail)
        told: list[object] = [
            *await asyncio.gather(
                attempt.write(says("one")), attempt.write(says("two")), return_exceptions=True
            )
        ]
    for write in (attempt.write, attempt.reacquire):
        with pytest.raises(Takeover) as caught:
            await write(says("late"))
        told.append(caught.value)
    assert [str(each) for each in told] == ["the first"] * 4
    assert texts(await everything(await store.open(OPS))) == ["born"]


@in_loop
async def test_a_known_secret_is_hidden_in_what_goes_to_quarantine() -> None:
    """S1: a result that is not journalled is searched when it leaves the process."""
    store, owner = await home(), object()
    learn(owner, ("correct horse battery",))
    try:
        attempt = await attempt_on(store)
        attempt.produced("reply", b'{"text":"it is correct horse battery"}')
        store.disk.forge(OPS, note("forged"))
        with pytest.raises(Takeover):
            await attempt.reacquire()
    finally:
        forget(owner)
    assert store.disk.living(OPS).quarantine == [("reply", b'{"text":"it is [secret]"}')]


@in_loop
async def test_a_journalled_reply_is_not_quarantined() -> None:
    store = await home()
    attempt = await attempt_on(store)
    reply = attempt.produced("reply", b"{}")
    await attempt.reacquire(says("reply"), keeping=[reply])
    await attempt.dispose()
    assert store.disk.living(OPS).quarantine == []


@in_loop
async def test_an_aborted_attempt_keeps_its_reply_in_quarantine() -> None:
    store = await home()
    attempt = await attempt_on(store)
    attempt.produced("reply", b"{}")
    await attempt.abort()
    await attempt.dispose()
    assert store.disk.living(OPS).quarantine == [("reply", b"{}")]


@in_loop
async def test_busy_while_coming_back_is_tried_again_and_is_not_a_takeover() -> None:
    """
    Then it is told, and the attempt is still released: it may come back later with all it produced.
    """
    store = await home()
    attempt = await attempt_on(store)
    await attempt.release()
    reply = attempt.produced("reply", b"{}")
    store.disk.fail_next(*[Fault.BUSY] * (BUSY_TRIES - 1))
    await attempt.reacquire()
    await attempt.release()
    store.disk.fail_next(*[Fault.BUSY] * BUSY_TRIES)
    with pytest.raises(Busy):
        await attempt.reacquire(says("reply"), keeping=[reply])
    assert (attempt.phase, attempt.stopped) == (AttemptState.RELEASED, None)
    await attempt.reacquire(says("reply"), keeping=[reply])
    assert store.disk.living(OPS).quarantine == []


@pytest.mark.parametrize(
    ("fault", "error", "is_written"),
    [
        (Fault.NOT_SAVED, NotSaved, False),
        (Fault.IN_DOUBT_WRITTEN, InDoubt, True),
        (Fault.IN_DOUBT_NOT_WRITTEN, InDoubt, False),
    ],
)
def test_a_failed_write_is_never_folded(
    fault: Fault, error: type[Exception], is_written: bool
) -> None:
    """
    State moves only after the sync; reopening finds the truth; the outcome is kept either way.
    """

    @in_loop
    async def scenario() -> None:
        store, folded = await home(), list[Record]()
        attempt = await attempt_on(store, folded)
        reply = attempt.produced("reply", b"{}")
        store.disk.fail_next(fault)
        with pytest.raises(error):
            await attempt.reacquire(says("reply"), keeping=[reply])
        assert texts(folded) == ["born"]
        await attempt.dispose()
        assert store.disk.living(OPS).quarantine == [("reply", b"{}")]
        reopened = await everything(await store.open(OPS))
        assert texts(reopened) == (["born", "reply"] if is_written else ["born"])

    scenario()


@in_loop
async def test_a_fenced_attempt_stops() -> None:
    """Another process drives now: every write says so, and the new driver is not disturbed."""
    store = await home()
    attempt = await attempt_on(store)
    store.disk.living(OPS).driver = None
    other = await (await InMemoryStore(store.disk).open(OPS)).claim()
    assert other is not None
    for _ in range(2):
        with pytest.raises(Fenced):
            await attempt.write(says("late"))
    await attempt.dispose()
    assert store.disk.living(OPS).driver is other


@in_loop
async def test_every_end_gives_up_the_claim_exactly_once() -> None:
    """Abort and dispose, in any order and number, one after another and at once."""
    for ends in (["abort"] * 2, ["dispose"] * 2, ["abort", "dispose"], ["dispose", "abort"]):
        store = await home()
        journal = await store.open(OPS)
        claim = CountingClaim(store.disk.living(OPS), store, 1)
        attempt = await Attempt.acquire(journal, lambda _: None)
        attempt._claim = claim
        for end in ends:
            await getattr(attempt, end)()
        await asyncio.gather(*(getattr(attempt, end)() for end in ends))
        assert claim.releases == 1
        with pytest.raises(InvariantBroken):
            await attempt.write(says("late"))


@in_loop
async def test_release_asked_for_inside_a_write_happens_right_after_it() -> None:
    store = await home()
    attempt = await attempt_on(store)
    phases: list[AttemptState] = []

    def decide(_: Section) -> Sequence[Draft]:
        attempt.release_nowait()
        phases.append(attempt.phase)
        return [note("one")]

    await attempt.write(decide)
    assert [*phases, attempt.phase] == [AttemptState.HELD, AttemptState.RELEASED]
    assert attempt.fence == attempt.position


@in_loop
async def test_ending_asked_for_inside_a_write_happens_right_after_it() -> None:
    """No self-deadlock, and the write itself counts."""
    store = await home()
    attempt = await attempt_on(store)

    def decide(_: Section) -> Sequence[Draft]:
        attempt.abort_nowait()
        return [note("one")]

    await attempt.write(decide)
    assert attempt.phase is AttemptState.OVER
    assert store.disk.living(OPS).driver is None
    assert texts(await everything(await store.open(OPS))) == ["born", "one"]


@in_loop
async def test_ending_waits_for_a_running_write() -> None:
    store, order = await home(), list[str]()
    attempt = await attempt_on(store)

    async def write() -> None:
        await attempt.write(says("one"))
        order.append("written")

    async def end() -> None:
        await asyncio.sleep(0)
        await attempt.dispose()
        order.append("over")

    await asyncio.gather(write(), end())
    assert order == ["written", "over"]
    assert texts(await everything(await store.open(OPS))) == ["born", "one"]


@in_loop
async def test_a_cancelled_end_still_ends() -> None:
    """The claim is given up; the cancellation goes on afterwards."""
    store = await home()
    attempt = await attempt_on(store)
    ending = asyncio.ensure_future(attempt.dispose())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert attempt.phase is AttemptState.OVER
    assert store.disk.living(OPS).driver is None


@in_loop
async def test_acquiring_a_sealed_session_fails_and_leaves_no_claim() -> None:
    store = await home()
    journal = await store.open(OPS)
    claim = await journal.claim()
    store.disk.flip(OPS, 1)
    with pytest.raises(Untrusted):
        await Attempt.acquire(journal, lambda _: None, claim=claim)
    assert store.disk.living(OPS).driver is None
    assert journal.instance == INSTANCE


@in_loop
async def test_finish_completes_its_work_despite_repeated_cancellation() -> None:
    """T6: the outcome of a tool is recorded to the end; the cancellation goes on after it."""
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), list[str]()

    async def work() -> None:
        begun.set()
        await may_end.wait()
        ended.append("work")

    finishing = asyncio.ensure_future(finish(work()))
    await begun.wait()
    for _ in range(3):
        finishing.cancel()
        await asyncio.sleep(0)  # it hears of it, and waits on
        assert not finishing.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert ended == ["work"]


@in_loop
async def test_a_fold_that_stops_in_the_middle_goes_on_from_there() -> None:
    """
    L7: what a record of a newer Holdfast kept from being folded is not folded twice when somebody
    looks again.
    """
    store, folded, can_read = await home(), list[Record](), list[bool]()

    def fold(record: Record) -> None:
        if texts([record]) == ["newer"] and not can_read:
            raise NewerVersion("a record of a newer Holdfast")
        folded.append(record)

    journal, peer = await store.open(OPS), await store.open(OPS)
    attempt = await Attempt.acquire(journal, fold)
    await peer.append(
        lambda _: [note("one"), note("two"), note("newer"), note("four")], since=peer.head
    )
    for _ in range(2):
        with pytest.raises(NewerVersion):
            await attempt.write(nothing)
        assert texts(folded) == ["born", "one", "two"]
    can_read.append(True)
    await attempt.write(nothing)
    assert texts(folded) == ["born", "one", "two", "newer", "four"]


@in_loop
async def test_a_reply_that_quarantine_refused_is_kept_when_the_attempt_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L6: a takeover while the disk is full for a moment; the error says so, nothing is lost."""
    store = await home()
    attempt = await attempt_on(store)
    attempt.produced("reply", b'{"text":"hello"}')
    await attempt.release()
    store.disk.flip(OPS, 1)

    async def refusing(*_: object) -> str:
        raise NotSaved("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(attempt._journal, "quarantine", refusing)
        with pytest.raises(Takeover) as caught:
            await attempt.reacquire()
    assert any("could not be kept yet" in each for each in caught.value.__notes__)
    await attempt.dispose()
    assert store.disk.living(OPS).quarantine == [("reply", b'{"text":"hello"}')]
