"""
The contract of every store for appends: in order, whole, once, decided one after another, and
loaded again. Part of `conformance/store.py`.
"""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from holdfast.errors import InvariantBroken, NewerVersion, Refused
from holdfast.ports.journal_store import (
    Appended,
    Check,
    Draft,
    Head,
    Journal,
    Record,
    SealMark,
    Section,
)
from holdfast.testing.clock import ManualClock
from holdfast.testing.journal_notes import (
    INSTANCE,
    OPS,
    create_session,
    everything,
    note,
    nothing,
    say,
    says,
    says_drafts,
    text_of,
    texts,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import StoreWorld


class AppendSuite:
    @in_loop
    async def test_records_come_back_in_the_order_they_were_appended(
        self, world: StoreWorld
    ) -> None:
        """Numbers rise, and `load` returns the head."""
        journal = await create_session(await world.store())
        for number in range(20):
            await say(journal, f"{number}")
        records: list[Record] = []
        head = await journal.load(records.append)
        assert texts(records) == ["born", *(f"{number}" for number in range(20))]
        seqs = [record.seq for record in records]
        assert seqs == sorted(set(seqs))
        assert head == Head(records[-1].seq, records[-1].mac) == journal.head

    @in_loop
    async def test_a_reopened_journal_has_every_acknowledged_record(
        self, world: StoreWorld
    ) -> None:
        """Another process reads the same bytes and the same macs."""
        journal = await create_session(await world.store())
        await say(journal, "one", "two")
        before = await everything(journal)
        reopened = await (await world.store()).open(OPS)
        assert await everything(reopened) == before
        assert (reopened.session, reopened.instance) == (OPS, INSTANCE)

    @in_loop
    async def test_a_body_is_kept_byte_for_byte(self, world: StoreWorld) -> None:
        """
        There is no canonical form: spacing, order of keys and escapes come back as they were given.
        """
        body = '{ "b":1,  "a":"\\u00e9 é \u2028 \x7f", "text":"x" }'.encode()
        journal = await create_session(await world.store())
        await journal.append(lambda _: [Draft("note", 1, body)], since=journal.head)
        assert (await everything(await (await world.store()).open(OPS)))[-1].body == body

    @in_loop
    async def test_an_append_returns_everything_since_the_given_head(
        self, world: StoreWorld
    ) -> None:
        """Others' records and ours, in order, durable: the caller folds them to move on."""
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
        since = here.head
        await say(there, "theirs")
        done = await here.append(says("ours"), since=since)
        assert texts(done.suffix) == ["theirs", "ours"]
        assert done.head == Head(done.suffix[-1].seq, done.suffix[-1].mac) == here.head

    @in_loop
    async def test_an_older_since_gives_a_longer_suffix(self, world: StoreWorld) -> None:
        """`since` is the caller's position, not the handle's."""
        journal = await create_session(await world.store())
        start = journal.head
        await say(journal, "one")
        await say(journal, "two")
        done = await journal.append(says("three"), since=start)
        assert texts(done.suffix) == ["one", "two", "three"]

    @in_loop
    async def test_decide_sees_what_is_new_and_the_time_its_drafts_will_get(
        self, world: StoreWorld
    ) -> None:
        """The section is the state at the moment of writing."""
        clock = ManualClock(now_ms=5_000)
        journal = await create_session(await world.store(clock=clock))
        peer = await (await world.store(clock=clock)).open(OPS)
        since = journal.head
        await say(peer, "theirs")
        seen: list[Section] = []
        clock.advance(1)

        def decide(section: Section) -> Sequence[Draft]:
            seen.append(section)
            return [note("ours")]

        done = await journal.append(decide, since=since)
        section = seen[-1]  # it may be called again with a longer suffix
        assert texts(section.suffix) == ["theirs"]
        assert section.now == done.suffix[-1].at == 6_000

    @in_loop
    async def test_no_drafts_write_nothing(self, world: StoreWorld) -> None:
        """The append then only catches up to the head."""
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
        await say(there, "theirs")
        before = await everything(there)
        done = await here.append(nothing, since=here.head)
        assert texts(done.suffix) == ["theirs"]
        assert done.head == there.head
        assert await everything(there) == before
        again = await here.append(nothing, since=done.head)
        assert again == Appended(done.head, ())

    @in_loop
    async def test_a_handle_knows_without_a_lock_whether_anyone_appended(
        self, world: StoreWorld
    ) -> None:
        """
        `is_at_head` is True only if no acknowledged record is missing; a sealed session is never at
        its head.
        """
        journal = await create_session(await world.store())
        other = await (await world.store()).open(OPS)
        await say(journal, "one")
        assert await journal.is_at_head()
        assert not await other.is_at_head()
        await say(other, "two")
        assert await other.is_at_head()
        assert not await journal.is_at_head()
        await say(journal)
        assert await journal.is_at_head()
        await other.seal(SealMark("broken", "they make no sense together"))
        assert not await other.is_at_head()

    @in_loop
    async def test_a_refusal_of_the_caller_passes_through_and_writes_nothing(
        self, world: StoreWorld
    ) -> None:
        """Any error of a decision goes to its caller; the handle stays usable."""
        journal = await create_session(await world.store())
        for error in (Refused("no", code="wrong_approver"), ValueError("a bug of the caller")):

            def decide(_: Section, error: Exception = error) -> Sequence[Draft]:
                raise error

            with pytest.raises(type(error)) as caught:
                await journal.append(decide, since=journal.head)
            assert caught.value is error
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_appends_that_wait_together_are_decided_one_after_another(
        self, world: StoreWorld
    ) -> None:
        """Each sees those before it in its suffix, so no two of them decide on the same state."""
        journal = await create_session(await world.store())
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
    async def test_one_refusal_among_appends_that_wait_together_harms_no_other(
        self, world: StoreWorld
    ) -> None:
        """The drafts of one decision are kept or refused independently of the others."""
        journal = await create_session(await world.store())

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
    async def test_many_writers_lose_and_double_nothing(self, world: StoreWorld) -> None:
        """Several processes and tasks write, each in its own order, all of them whole."""
        first = await create_session(await world.store())
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
            assert [text for text in written if text.startswith(f"{who}.")] == [
                f"{who}.{n}" for n in range(10)
            ]

    @in_loop
    async def test_synchronous_and_asynchronous_appends_make_one_history(
        self, world: StoreWorld
    ) -> None:
        """A thread blocks only itself."""
        journal = await create_session(await world.store())
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
        assert [text for text in written if text.startswith("thread")] == [
            f"thread {n}" for n in range(10)
        ]
        assert [text for text in written if text.startswith("task")] == [
            f"task {n}" for n in range(10)
        ]

    @in_loop
    async def test_an_append_inside_a_decide_is_refused_as_a_bug(self, world: StoreWorld) -> None:
        """It does not deadlock, and neither append writes anything."""
        journal = await create_session(await world.store())
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
    async def test_times_never_fall_when_the_clock_does(self, world: StoreWorld) -> None:
        """This also holds between processes whose clocks differ."""
        clock, slow = ManualClock(now_ms=1_000_000), ManualClock(now_ms=1_000)
        journal = await create_session(await world.store(clock=clock))
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
    async def test_cancelling_a_waiting_append_leaves_it_whole_or_absent(
        self, world: StoreWorld
    ) -> None:
        """All other appends are unaffected."""
        journal = await create_session(await world.store())
        tasks = [
            asyncio.ensure_future(journal.append(says(f"{n}a", f"{n}b"), since=journal.head))
            for n in range(4)
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [
            isinstance(outcome, Appended) for outcome in outcomes if outcome is not outcomes[1]
        ] == [True] * 3
        await say(journal, "after")
        written = texts(await everything(await (await world.store()).open(OPS)))
        assert [text for text in written if not text.startswith("1")] == [
            *("born", "0a", "0b", "2a", "2b", "3a", "3b", "after")
        ]
        assert [text for text in written if text.startswith("1")] in ([], ["1a", "1b"])

    @in_loop
    async def test_a_head_of_another_history_is_refused(self, world: StoreWorld) -> None:
        """It is a mistake of the caller, not damage: nothing is written, nothing is sealed."""
        journal = await create_session(await world.store())
        head = journal.head
        for since in (Head(head.seq, bytes(len(head.mac))), Head(head.seq + 10, head.mac)):
            with pytest.raises(Refused):
                await journal.append(says("lost"), since=since)
        await say(journal, "after", check=Check.FENCE)
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_a_body_that_is_not_a_strict_json_object_is_refused(
        self, world: StoreWorld
    ) -> None:
        """
        Duplicate keys, NaN, lone surrogates and anything but one object are refused; nothing of
        that decision is kept.
        """
        journal = await create_session(await world.store())
        for body in (
            b"",
            b"[]",
            b'"x"',
            b'{"a":1,"a":2}',
            b'{"a":NaN}',
            b'{"a":"\\ud800"}',
            b'{"a":1',
            b"{}\n{}",
            b"\xff",
        ):
            drafts = [note("fine"), Draft("note", 1, body)]
            with pytest.raises(Refused):
                await journal.append(says_drafts(drafts), since=journal.head)
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_load_hands_over_what_comes_after(self, world: StoreWorld) -> None:
        """It passes all records after `after`, and no other."""
        journal = await create_session(await world.store())
        await say(journal, "one")
        seq = journal.head.seq
        await say(journal, "two", "three")
        assert texts(await everything(journal, after=seq)) == ["two", "three"]
        assert await everything(journal, after=journal.head.seq) == []

    @in_loop
    async def test_an_error_of_fold_stops_the_load(self, world: StoreWorld) -> None:
        """It passes through unchanged, and the handle still works."""
        journal = await create_session(await world.store())
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
    async def test_a_sealed_session_hands_over_what_verifies(self, world: StoreWorld) -> None:
        """`load` passes the records before the damage, without an error."""
        journal = await create_session(await world.store())
        for text in ("one", "two", "three"):
            await say(journal, text)
        await world.flip(OPS, b"two")
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert texts(await everything(reopened)) == ["born", "one"]
