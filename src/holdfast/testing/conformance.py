"""
What every `JournalStore` must do, as one suite over a `World`. Subclass it, bring a fixture `world`, and run it with pytest:

    class TestMyStore(JournalStoreSuite):
        @pytest.fixture
        def world(self): return MyWorld()

Each test is a sentence of the port's contract. Nothing here knows files: records, heads, claims and outside hands are all there is.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

import msgspec
import pytest

from holdfast.errors import Busy, CutShort, Fenced, InvariantBroken, NewerVersion, Refused, Takeover, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import (
    Appended,
    Check,
    Decide,
    Draft,
    Head,
    Journal,
    JournalStore,
    Record,
    SealMark,
    Section,
)
from holdfast.session.home_events import HomeState, decode_home_event
from holdfast.testing.clock import ManualClock
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import World

OPS = SessionId("ops/api")
OTHER = SessionId("ops/db")
LIFE = InstanceId("i-first")
LATER_LIFE = InstanceId("i-later")


def note(text: str) -> Draft:
    return Draft("note", 1, msgspec.json.encode({"text": text}))


def says(*texts: str) -> Decide:
    """Decide to add these notes, whatever is there."""
    return lambda _: [note(text) for text in texts]


def says_drafts(drafts: Sequence[Draft]) -> Decide:
    return lambda _: drafts


def nothing(_: Section) -> Sequence[Draft]:
    return ()


def text_of(record: Record) -> str:
    return str(msgspec.json.decode(record.body)["text"])


def texts(records: Sequence[Record]) -> list[str]:
    """The notes among them: a store may keep records of its own in between."""
    return [text_of(record) for record in records if record.type == "note"]


async def everything(journal: Journal, *, after: int = 0) -> list[Record]:
    records: list[Record] = []
    await journal.load(records.append, after=after)
    return records


async def born(store: JournalStore, session: SessionId = OPS, *, life: InstanceId = LIFE) -> Journal:
    return await store.create(session, life, [note("born")], origin="created", by="tests")


async def say(journal: Journal, *said: str, check: Check = Check.SHORT, epoch: int | None = None) -> Appended:
    return await journal.append(says(*said), since=journal.head, check=check, epoch=epoch)


class JournalStoreSuite:
    """The contract of `ports/journal_store.py`."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError("bring a world")

    # Appending

    @in_loop
    async def test_records_come_back_in_the_order_they_were_appended(self, world: World) -> None:
        """Numbers rise, and what `load` returns is the head."""
        journal = await born(await world.store())
        for number in range(20):
            await say(journal, f"{number}")
        records: list[Record] = []
        head = await journal.load(records.append)
        assert texts(records) == ["born", *(f"{number}" for number in range(20))]
        seqs = [record.seq for record in records]
        assert seqs == sorted(set(seqs))
        assert head == Head(records[-1].seq, records[-1].mac) == journal.head

    @in_loop
    async def test_what_was_acknowledged_is_there_after_reopening(self, world: World) -> None:
        """Same bytes, same macs, from another process."""
        journal = await born(await world.store())
        await say(journal, "one", "two")
        before = await everything(journal)
        reopened = await (await world.store()).open(OPS)
        assert await everything(reopened) == before
        assert (reopened.session, reopened.instance) == (OPS, LIFE)

    @in_loop
    async def test_a_body_is_kept_byte_for_byte(self, world: World) -> None:
        """No canonical form: spacing, order of keys and escapes come back as they were given."""
        body = '{ "b":1,  "a":"\\u00e9 é \u2028 \x7f", "text":"x" }'.encode()
        journal = await born(await world.store())
        await journal.append(lambda _: [Draft("note", 1, body)], since=journal.head)
        assert (await everything(await (await world.store()).open(OPS)))[-1].body == body

    @in_loop
    async def test_an_append_returns_everything_since_the_given_head(self, world: World) -> None:
        """Others' records and ours, in order, durable: what the caller folds to move on."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        since = here.head
        await say(there, "theirs")
        done = await here.append(says("ours"), since=since)
        assert texts(done.suffix) == ["theirs", "ours"]
        assert done.head == Head(done.suffix[-1].seq, done.suffix[-1].mac) == here.head

    @in_loop
    async def test_an_older_since_gives_a_longer_suffix(self, world: World) -> None:
        """`since` is the caller's position, not the handle's."""
        journal = await born(await world.store())
        start = journal.head
        await say(journal, "one")
        await say(journal, "two")
        done = await journal.append(says("three"), since=start)
        assert texts(done.suffix) == ["one", "two", "three"]

    @in_loop
    async def test_decide_sees_what_is_new_and_the_time_its_drafts_will_get(self, world: World) -> None:
        """The section is what is true at the moment of writing."""
        clock = ManualClock(now_ms=5_000)
        journal = await born(await world.store(clock=clock))
        peer = await (await world.store(clock=clock)).open(OPS)
        since = journal.head
        await say(peer, "theirs")
        seen: list[Section] = []
        clock.advance(1)

        def decide(section: Section) -> Sequence[Draft]:
            seen.append(section)
            return [note("ours")]

        done = await journal.append(decide, since=since)
        (section,) = seen
        assert texts(section.suffix) == ["theirs"]
        assert section.now == done.suffix[-1].at == 6_000

    @in_loop
    async def test_no_drafts_write_nothing(self, world: World) -> None:
        """The append is then a way of coming up to the head."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        await say(there, "theirs")
        before = await everything(there)
        done = await here.append(nothing, since=here.head)
        assert texts(done.suffix) == ["theirs"]
        assert done.head == there.head
        assert await everything(there) == before
        again = await here.append(nothing, since=done.head)
        assert again == Appended(done.head, ())

    @in_loop
    async def test_a_handle_knows_without_a_lock_whether_anyone_appended(self, world: World) -> None:
        """`is_at_head` is True only if nothing acknowledged is missing; a session that was sealed has no head to be at."""
        journal = await born(await world.store())
        other = await (await world.store()).open(OPS)
        await say(journal, "one")
        assert journal.is_at_head()
        assert not other.is_at_head()
        await say(other, "two")
        assert other.is_at_head()
        assert not journal.is_at_head()
        await say(journal)
        assert journal.is_at_head()
        await other.seal(SealMark("broken", "they make no sense together"))
        assert not other.is_at_head()

    @in_loop
    async def test_a_refusal_of_the_caller_passes_through_and_writes_nothing(self, world: World) -> None:
        """Any error of decide is the caller's own; the handle is as good as before."""
        journal = await born(await world.store())
        for error in (Refused("no", code="wrong_approver"), ValueError("a bug of the caller")):

            def decide(_: Section, error: Exception = error) -> Sequence[Draft]:
                raise error

            with pytest.raises(type(error)) as caught:
                await journal.append(decide, since=journal.head)
            assert caught.value is error
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_appends_that_wait_together_are_decided_one_after_another(self, world: World) -> None:
        """Each sees those before it in its suffix, so no two of them decide on the same state."""
        journal = await born(await world.store())
        since = journal.head

        def counting(section: Section) -> Sequence[Draft]:
            return [note(f"{len(texts(section.suffix))}")]

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(journal.append(counting, since=since)) for _ in range(16)]
        assert texts(await everything(journal))[1:] == [f"{number}" for number in range(16)]
        for task in tasks:
            done = task.result()
            said = texts(done.suffix)
            assert said == [f"{number}" for number in range(len(said))]

    @in_loop
    async def test_one_refusal_among_appends_that_wait_together_harms_no_other(self, world: World) -> None:
        """Drafts of one decide are kept or not by themselves."""
        journal = await born(await world.store())

        def refusing(_: Section) -> Sequence[Draft]:
            raise Refused("no")

        outcomes = await asyncio.gather(
            journal.append(says("a1", "a2"), since=journal.head),
            journal.append(refusing, since=journal.head),
            journal.append(says("c"), since=journal.head),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], Refused)
        written = texts(await everything(journal))
        assert sorted(written) == ["a1", "a2", "born", "c"]
        assert written.index("a2") == written.index("a1") + 1

    @in_loop
    async def test_many_writers_lose_and_double_nothing(self, world: World) -> None:
        """Several processes and tasks, each in its own order, all of them whole."""
        first = await born(await world.store())
        handles = [first, *[await (await world.store()).open(OPS) for _ in range(3)]]

        async def write(who: int, journal: Journal) -> None:
            for number in range(10):
                await say(journal, f"{who}.{number}")

        async with asyncio.TaskGroup() as group:
            for who, journal in enumerate(handles):
                group.create_task(write(who, journal))
        written = texts(await everything(first))[1:]
        assert len(written) == len(set(written)) == 40
        for who in range(4):
            assert [text for text in written if text.startswith(f"{who}.")] == [f"{who}.{n}" for n in range(10)]

    @in_loop
    async def test_synchronous_and_asynchronous_appends_make_one_history(self, world: World) -> None:
        """Threads block for themselves only."""
        journal = await born(await world.store())
        peer = await (await world.store()).open(OPS)

        def write() -> None:
            for number in range(10):
                peer.append_now(says(f"thread {number}"), since=peer.head)

        thread = threading.Thread(target=write)
        thread.start()
        for number in range(10):
            await say(journal, f"task {number}")
        await asyncio.to_thread(thread.join)
        written = texts(await everything(journal))
        assert [text for text in written if text.startswith("thread")] == [f"thread {n}" for n in range(10)]
        assert [text for text in written if text.startswith("task")] == [f"task {n}" for n in range(10)]

    @in_loop
    async def test_an_append_inside_a_decide_is_refused_as_a_bug(self, world: World) -> None:
        """Not deadlocked, and nothing is written by either."""
        journal = await born(await world.store())
        since = journal.head

        def nested(_: Section) -> Sequence[Draft]:
            journal.append_now(says("inner"), since=since)
            return [note("outer")]

        with pytest.raises(InvariantBroken):
            await journal.append(nested, since=since)
        with pytest.raises(InvariantBroken):
            await asyncio.to_thread(journal.append_now, nested, since=since)
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_times_never_fall_when_the_clock_does(self, world: World) -> None:
        """Also not between processes whose clocks differ."""
        clock, slow = ManualClock(now_ms=1_000_000), ManualClock(now_ms=1_000)
        journal = await born(await world.store(clock=clock))
        peer = await (await world.store(clock=slow)).open(OPS)
        await say(journal, "noon")
        clock.jump(-500)
        await say(journal, "clock set back")
        await say(peer, "a slow clock")
        clock.jump(1000)
        await say(journal, "clock set forth")
        times = [record.at for record in await everything(journal) if record.type == "note"]
        assert times == [1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_500_000]

    @in_loop
    async def test_cancelling_a_waiting_append_leaves_it_whole_or_absent(self, world: World) -> None:
        """And everybody else's as they were."""
        journal = await born(await world.store())
        tasks = [asyncio.ensure_future(journal.append(says(f"{n}a", f"{n}b"), since=journal.head)) for n in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(outcome, Appended) for outcome in outcomes if outcome is not outcomes[1]] == [True] * 3
        await say(journal, "after")
        written = texts(await everything(await (await world.store()).open(OPS)))
        assert [text for text in written if not text.startswith("1")] == [*("born", "0a", "0b", "2a", "2b", "3a", "3b", "after")]
        assert [text for text in written if text.startswith("1")] in ([], ["1a", "1b"])

    @in_loop
    async def test_a_head_of_another_history_is_refused(self, world: World) -> None:
        """A mistake of the caller, no accusation: nothing is written, nobody is sealed."""
        journal = await born(await world.store())
        head = journal.head
        for since in (Head(head.seq, bytes(len(head.mac))), Head(head.seq + 10, head.mac)):
            with pytest.raises(Refused):
                await journal.append(says("lost"), since=since)
        await say(journal, "after", check=Check.FENCE)
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_a_body_that_is_no_strict_json_object_is_refused(self, world: World) -> None:
        """Duplicate keys, NaN, lone surrogates, anything but one object; nothing of that decide is kept."""
        journal = await born(await world.store())
        for body in (b"", b"[]", b'"x"', b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":"\\ud800"}', b'{"a":1', b"{}\n{}", b"\xff"):
            drafts = [note("fine"), Draft("note", 1, body)]
            with pytest.raises(Refused):
                await journal.append(says_drafts(drafts), since=journal.head)
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    # Driving

    @in_loop
    async def test_one_driver_at_a_time(self, world: World) -> None:
        """Whoever asks second is told at once, from any process; a release makes room; releasing twice is once."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        first = await here.claim()
        assert first is not None
        assert await there.claim() is None
        assert await here.claim() is None
        await first.release()
        second = await there.claim()
        assert second is not None
        await first.release()
        assert await here.claim() is None

    @in_loop
    async def test_epochs_rise_with_every_claim(self, world: World) -> None:
        """Above every record's, after reopening too."""
        journal = await born(await world.store())
        epochs = []
        for _ in range(3):
            claim = await journal.claim()
            assert claim is not None
            await say(journal, "driven", epoch=claim.epoch)
            epochs.append(claim.epoch)
            await claim.release()
        reopened = await (await world.store()).open(OPS)
        claim = await reopened.claim()
        assert claim is not None
        epochs.append(claim.epoch)
        assert epochs == sorted(set(epochs))
        assert claim.epoch > max(record.epoch for record in await everything(reopened))

    @in_loop
    async def test_a_claim_dies_with_its_process(self, world: World) -> None:
        """And the next driver's epoch is higher than the dead one's."""
        journal = await born(await world.store())
        dead = await world.die_driving(OPS)
        claim = await journal.claim()
        assert claim is not None
        assert claim.epoch > dead

    @in_loop
    async def test_a_claim_dies_with_its_store(self, world: World) -> None:
        """Closing a store gives up what it drove."""
        store = await world.store()
        await born(store)
        claim = await (await store.open(OPS)).claim()
        assert claim is not None
        await store.close()
        assert await (await (await world.store()).open(OPS)).claim() is not None

    @in_loop
    async def test_a_stale_epoch_is_fenced_and_writes_nothing(self, world: World) -> None:
        """Somebody else drives now; anyone's appends go on."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        old = await here.claim()
        assert old is not None
        await say(here, "driven", epoch=old.epoch)
        await old.release()
        new = await there.claim()
        assert new is not None
        with pytest.raises(Fenced):
            await say(here, "late", epoch=old.epoch)
        await say(there, "driven on", epoch=new.epoch)
        await say(here, "a message")
        assert texts(await everything(here)) == ["born", "driven", "driven on", "a message"]

    @in_loop
    async def test_a_drivers_epoch_is_in_its_records(self, world: World) -> None:
        """And anyone's records do not pretend to be a driver's."""
        journal = await born(await world.store())
        claim = await journal.claim()
        assert claim is not None
        (driven,) = (await say(journal, "driven", epoch=claim.epoch)).suffix
        assert driven.epoch == claim.epoch
        reopened = await everything(await (await world.store()).open(OPS))
        assert reopened[-1] == driven

    # Sessions

    @in_loop
    async def test_sessions_do_not_touch_each_other(self, world: World) -> None:
        """Records, claims and seals are one session's."""
        store = await world.store()
        ops, db = await born(store), await born(store, OTHER)
        await say(ops, "for ops")
        await say(db, "for db")
        assert await ops.claim() is not None
        assert await db.claim() is not None
        await world.flip(OPS, b"for ops")
        with pytest.raises(Untrusted):
            await say(ops, "late", check=Check.FENCE)
        await say(db, "goes on", check=Check.FENCE)
        assert texts(await everything(db)) == ["born", "for db", "goes on"]

    @in_loop
    async def test_a_living_name_is_not_born_twice(self, world: World) -> None:
        """The second is refused, the first is untouched."""
        store = await world.store()
        await born(store)
        with pytest.raises(Refused) as caught:
            await born(await world.store(), life=LATER_LIFE)
        assert caught.value.code == "exists"
        assert (await store.open(OPS)).instance == LIFE
        assert await store.sessions() == [OPS]

    @in_loop
    async def test_of_two_births_at_once_one_wins(self, world: World) -> None:
        """And the loser is told that it exists."""
        stores = [await world.store(), await world.store()]
        outcomes = await asyncio.gather(born(stores[0]), born(stores[1], life=LATER_LIFE), return_exceptions=True)
        (lost,) = (outcome for outcome in outcomes if isinstance(outcome, BaseException))
        assert isinstance(lost, Refused)
        assert lost.code == "exists"
        assert await (await world.store()).sessions() == [OPS]
        assert texts(await everything(await stores[0].open(OPS))) == ["born"]

    @in_loop
    async def test_a_birth_is_whole_or_not_at_all(self, world: World) -> None:
        """A first record that can't be kept leaves no session, and the name stays free."""
        store = await world.store()
        too_long = note("x" * (1 << 21))
        with pytest.raises(Refused):
            await store.create(OPS, LIFE, [note("born"), too_long], origin="created", by="tests")
        assert await store.sessions() == []
        with suppress(Refused):
            await store.open(OPS)
            pytest.fail("half a session was opened")
        journal = await born(store, life=LATER_LIFE)
        assert texts(await everything(journal)) == ["born"]

    @in_loop
    async def test_a_record_that_is_too_long_is_refused_and_the_rest_goes_on(self, world: World) -> None:
        """Nothing of that decide is kept; the handle still works."""
        journal = await born(await world.store())
        with pytest.raises(Refused):
            await journal.append(lambda _: [note("small"), note("x" * (1 << 21))], since=journal.head)
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_an_unknown_session_is_said_to_be_unknown(self, world: World) -> None:
        store = await world.store()
        with pytest.raises(Refused) as caught:
            await store.open(OPS)
        assert caught.value.code == "unknown"

    @in_loop
    async def test_living_sessions_are_listed_sorted(self, world: World) -> None:
        """From the home's journal, so any process sees them."""
        store = await world.store()
        assert await store.sessions() == []
        for name in ("ops/b", "ops/a", "chat/z"):
            await born(store, SessionId(name), life=InstanceId(f"i-{name[-1]}"))
        assert await (await world.store()).sessions() == ["chat/z", "ops/a", "ops/b"]
        await store.delete(SessionId("ops/a"), by="tests")
        assert await (await world.store()).sessions() == ["chat/z", "ops/b"]

    @in_loop
    async def test_heads_name_the_last_acknowledged_record_of_every_living_session(self, world: World) -> None:
        """From any process, without opening a journal."""
        store = await world.store()
        assert list(await store.heads()) == []
        ops, db = await born(store), await born(store, OTHER, life=InstanceId("i-db"))
        await say(ops, "one", "two")
        expected = [(OPS, LIFE, ops.head.seq), (OTHER, InstanceId("i-db"), db.head.seq)]
        assert [tuple(each) for each in await (await world.store()).heads()] == expected
        await store.delete(OTHER, by="tests")
        assert [tuple(each) for each in await store.heads()] == expected[:1]

    @in_loop
    async def test_a_deleted_session_is_unknown_and_its_name_is_free(self, world: World) -> None:
        store = await world.store()
        await say(await born(store), "of the first life")
        await store.delete(OPS, by="tests")
        for each in (store, await world.store()):
            with pytest.raises(Refused) as caught:
                await each.open(OPS)
            assert caught.value.code == "unknown"
        again = await born(store, life=LATER_LIFE)
        assert again.instance == LATER_LIFE
        assert texts(await everything(again)) == ["born"]

    @in_loop
    async def test_a_session_that_somebody_wrote_to_is_not_deleted_as_it_was(self, world: World) -> None:
        """Whoever looked and then deletes names the record that was the last; anything after it was acknowledged to somebody."""
        store, other = await world.store(), await world.store()
        journal = await born(store)
        seen = journal.head.seq
        await say(await other.open(OPS), "just now")
        with pytest.raises(Busy):
            await store.delete(OPS, by="tests", at_seq=seen)
        assert texts(await everything(await store.open(OPS))) == ["born", "just now"]
        await store.delete(OPS, by="tests", at_seq=(await store.open(OPS)).head.seq)
        assert list(await other.sessions()) == []
        with pytest.raises(Refused):
            await say(journal, "too late")

    @in_loop
    async def test_rows_of_an_earlier_life_never_verify_in_a_later_one(self, world: World) -> None:
        """Equal names, equal numbers, equal bodies: another instance, another key."""
        store = await world.store()
        await say(await born(store), "of the first life")
        old = await world.copy(OPS)
        await store.delete(OPS, by="tests")
        await say(await born(store, life=LATER_LIFE), "of the later life")
        await world.put_back(OPS, old)
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert await everything(reopened) == []

    @in_loop
    async def test_an_unsealed_life_takes_the_place_of_the_one_before(self, world: World) -> None:
        """Its mark is lifted, because it is another instance."""
        store = await world.store()
        journal = await born(store)
        await world.flip(OPS, b"born")
        with pytest.raises(Untrusted):
            await say(journal, "late", check=Check.FENCE)
        unsealed = await store.create(OPS, LATER_LIFE, [note("unsealed")], origin="unseal", by="tests")
        assert unsealed.sealed is None
        await say(unsealed, "goes on", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert reopened.instance == LATER_LIFE
        assert texts(await everything(reopened)) == ["unsealed", "goes on"]

    # Loading

    @in_loop
    async def test_load_hands_over_what_comes_after(self, world: World) -> None:
        """All records past `after`, and no other."""
        journal = await born(await world.store())
        await say(journal, "one")
        seq = journal.head.seq
        await say(journal, "two", "three")
        assert texts(await everything(journal, after=seq)) == ["two", "three"]
        assert await everything(journal, after=journal.head.seq) == []

    @in_loop
    async def test_an_error_of_fold_stops_the_load(self, world: World) -> None:
        """It passes through unchanged, and the handle still works."""
        journal = await born(await world.store())
        await say(journal, "one", "two")
        seen: list[Record] = []

        def fold(record: Record) -> None:
            if record.type == "note" and text_of(record) == "one":
                raise NewerVersion("of tomorrow")
            seen.append(record)

        with pytest.raises(NewerVersion):
            await journal.load(fold)
        assert texts(seen) == ["born"]
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "one", "two", "after"]

    @in_loop
    async def test_a_sealed_session_hands_over_what_verifies(self, world: World) -> None:
        """Up to the damage, without an error."""
        journal = await born(await world.store())
        for text in ("one", "two", "three"):
            await say(journal, text)
        await world.flip(OPS, b"two")
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert texts(await everything(reopened)) == ["born", "one"]

    # Outside changes

    @in_loop
    async def test_whoever_comes_back_sees_any_changed_byte(self, world: World) -> None:
        """A same-size edit far behind the handle's position is a takeover; nothing is written."""
        journal = await born(await world.store())
        for text in ("one", "two", "three"):
            await say(journal, text)
        await world.flip(OPS, b"one")
        with pytest.raises(Takeover):
            await say(journal, "late", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert "late" not in texts(await everything(reopened))

    @in_loop
    async def test_a_forged_row_is_a_takeover_for_every_append(self, world: World) -> None:
        """Also for the short check: nothing past the handle's position is believed unread."""
        for check in Check:
            session = SessionId(f"ops/{check.value}")
            journal = await born(await world.store(), session)
            await world.forge(session, note("trust me"))
            with pytest.raises(Takeover):
                await say(journal, "late", check=check)
            assert texts(await everything(journal)) == ["born"]

    @in_loop
    async def test_a_write_of_ours_never_hides_one_that_is_not(self, world: World) -> None:
        """Edit, then an owned append by a peer that only looks at the end: still a takeover for who comes back."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        await say(here, "one", "two")
        await there.append(nothing, since=there.head)
        await world.flip(OPS, b"one")
        with suppress(Untrusted):
            await say(there, "on top")
        with pytest.raises(Untrusted):
            await say(here, "late", check=Check.FENCE)

    @in_loop
    async def test_missing_history_is_cut_short(self, world: World) -> None:
        """An older, valid copy in its place is seen by living handles and by the next open."""
        journal = await born(await world.store())
        older = await world.copy(OPS)
        await say(journal, "acknowledged")
        await world.put_back(OPS, older)
        with pytest.raises(Untrusted):
            await say(journal, "late", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None

    @in_loop
    async def test_missing_history_is_seen_with_no_handle_alive(self, world: World) -> None:
        """By the anchor."""
        journal = await born(await world.store())
        older = await world.copy(OPS)
        await say(journal, "acknowledged")
        await journal.sync_anchor()
        await journal.close()
        await world.put_back(OPS, older)
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert reopened.sealed.code == CutShort.default_code
        assert texts(await everything(reopened)) == ["born"]

    @in_loop
    async def test_an_identical_copy_in_its_place_is_no_accusation(self, world: World) -> None:
        journal = await born(await world.store())
        await say(journal, "one")
        await world.put_back(OPS, await world.copy(OPS))
        await say(journal, "two", check=Check.FENCE)
        assert texts(await everything(await (await world.store()).open(OPS))) == ["born", "one", "two"]

    @in_loop
    async def test_a_takeover_is_sticky_for_the_handle(self, world: World) -> None:
        """Putting the bytes back changes nothing."""
        journal = await born(await world.store())
        await say(journal, "one")
        good = await world.copy(OPS)
        await world.flip(OPS, b"one")
        with pytest.raises(Takeover):
            await say(journal, "late", check=Check.FENCE)
        await world.put_back(OPS, good)
        for check in Check:
            with pytest.raises(Untrusted):
                await say(journal, "later", check=check)
        with pytest.raises(Untrusted):
            journal.append_now(says("latest"), since=journal.head)

    @in_loop
    async def test_a_seal_is_durable_and_for_everyone(self, world: World) -> None:
        """Peers, later processes, and after the bytes were put back; reads go on."""
        store = await world.store()
        here, there = await born(store), await (await world.store()).open(OPS)
        await say(here, "one")
        good = await world.copy(OPS)
        await world.flip(OPS, b"one")
        with pytest.raises(Takeover):
            await say(here, "late", check=Check.FENCE)
        await world.put_back(OPS, good)
        with pytest.raises(Untrusted):
            await say(there, "late")
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert reopened.sealed.code == "takeover"
        with pytest.raises(Untrusted):
            await say(reopened, "late")
        assert texts(await everything(reopened)) == ["born", "one"]
        assert OPS in (await home_state(await world.store())).sealed

    @in_loop
    async def test_an_open_that_finds_damage_seals(self, world: World) -> None:
        """Durably: the next open says so too, though the bytes are back."""
        journal = await born(await world.store())
        await say(journal, "one")
        good = await world.copy(OPS)
        await world.flip(OPS, b"one")
        damaged = await (await world.store()).open(OPS)
        await world.put_back(OPS, good)
        again = await (await world.store()).open(OPS)
        assert damaged.sealed is not None
        assert again.sealed == damaged.sealed
        with pytest.raises(Untrusted):
            await say(again, "late")

    @in_loop
    async def test_a_session_can_be_sealed_though_its_records_are_genuine(self, world: World) -> None:
        """They make no sense together, says whoever reads them: durable, for everyone, and the first mark stays."""
        here, there = await born(await world.store()), await (await world.store()).open(OPS)
        mark = SealMark(code="broken", detail="two starts of one call", at_seq=here.head.seq)
        await here.seal(mark)
        await here.seal(SealMark(code="cut_short", detail="a second opinion"))
        for journal in (here, there):
            with pytest.raises(Untrusted):
                await say(journal, "late")
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed == mark
        assert texts(await everything(reopened)) == ["born"]
        assert OPS in (await home_state(await world.store())).sealed

    # Beside the journal

    @in_loop
    async def test_quarantine_is_durable_and_works_on_a_sealed_session(self, world: World) -> None:
        """Oldest first; what was kept can be read where it was said to be."""
        journal = await born(await world.store())
        first = await journal.quarantine("reply", b'{"text":"one"}')
        await world.flip(OPS, b"born")
        with pytest.raises(Takeover):
            await say(journal, "late", check=Check.FENCE)
        second = await journal.quarantine("outcome", b'{"text":"two"}')
        reopened = await (await world.store()).open(OPS)
        assert list(await reopened.quarantined()) == [first, second]
        assert world.read_quarantined(first) == b'{"text":"one"}'
        assert world.read_quarantined(second) == b'{"text":"two"}'

    @in_loop
    async def test_outputs_are_found_by_their_digest(self, world: World) -> None:
        """Durable; the same bytes are the same output; an unknown one is refused."""
        journal = await born(await world.store())
        data = bytes(range(256)) * 1000
        digest = await journal.keep_output(data)
        assert await journal.keep_output(data) == digest
        reopened = await (await world.store()).open(OPS)
        assert await reopened.output(digest) == data
        with pytest.raises(Refused):
            await reopened.output("0" * len(digest))

    @in_loop
    async def test_closing_waits_for_a_running_append(self, world: World) -> None:
        """What was begun is kept, and acknowledged; a peer's append in the same commit is not harmed."""
        store = await world.store()
        journal = await born(store)
        peer = await store.open(OPS)
        running = [asyncio.ensure_future(each.append(says("begun"), since=each.head)) for each in (journal, peer)]
        await asyncio.sleep(0)
        await journal.close()
        assert running[0].done() or isinstance(await running[0], Appended)
        assert [len(texts((await each).suffix)) > 0 for each in running] == [True, True]
        with pytest.raises(InvariantBroken):
            await say(journal, "late")
        assert texts(await everything(peer)) == ["born", "begun", "begun"]

    @in_loop
    async def test_closing_twice_is_once(self, world: World) -> None:
        store = await world.store()
        journal = await born(store)
        await journal.close()
        await journal.close()
        await store.close()
        await store.close()
        assert texts(await everything(await (await world.store()).open(OPS))) == ["born"]

    # The home

    @in_loop
    async def test_the_homes_journal_tells_which_sessions_live(self, world: World) -> None:
        """Births, deaths and seals are records of it, and fold to the same state in every process."""
        store = await world.store()
        ops = await born(store)
        await born(store, OTHER)
        await store.delete(OTHER, by="tests")
        await world.flip(OPS, b"born")
        with pytest.raises(Takeover):
            await say(ops, "late", check=Check.FENCE)
        state = await home_state(await world.store())
        assert {name: created.instance for name, created in state.sessions.items()} == {OPS: LIFE}
        assert {name: sealed.code for name, sealed in state.sealed.items()} == {OPS: "takeover"}
        assert state.sessions[OPS].origin == "created"

    @in_loop
    async def test_the_homes_journal_keeps_the_same_contract(self, world: World) -> None:
        """Appends by several processes, in order, durable."""
        here, there = await (await world.store()).home(), await (await world.store()).home()
        revoked = Draft("token_revoked", 1, b'{"name":"a","by":"tests"}')
        done = await here.append(lambda _: [revoked], since=here.head)
        assert [record.type for record in done.suffix] == ["token_revoked"]
        seen = await there.append(nothing, since=there.head, check=Check.FENCE)
        assert seen.head == done.head
        await born(await world.store())
        types = [record.type for record in await everything(await (await world.store()).home())]
        assert [each for each in types if each in {"home_created", "token_revoked", "session_created"}] == [
            *("home_created", "token_revoked", "session_created")
        ]

    @in_loop
    async def test_a_record_of_a_newer_program_in_the_home_is_never_skipped(self, world: World) -> None:
        """It is no tampering; this program refuses to bear sessions on top of what it can't read."""
        store = await world.store()
        home = await store.home()
        await home.append(lambda _: [Draft("of_tomorrow", 1, b"{}")], since=home.head)
        with pytest.raises(NewerVersion):
            await born(await world.store())


async def home_state(store: JournalStore) -> HomeState:
    state = HomeState()

    def fold(record: Record) -> None:
        with suppress(NewerVersion):
            state.evolve(decode_home_event(record.type, record.version, record.body), at=record.at)

    await (await store.home()).load(fold)
    return state
