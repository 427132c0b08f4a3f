"""
The contract of every store for drivers and instances: one driver at a time, instances created
whole, listed and ended. Part of `conformance/store.py`.
"""

import asyncio
from contextlib import suppress

import pytest

from holdfast.errors import Busy, Fenced, Refused, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Check, SealMark
from holdfast.testing.journal_notes import (
    INSTANCE,
    LATER_INSTANCE,
    OPS,
    OTHER,
    create_session,
    everything,
    note,
    say,
    texts,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import StoreWorld


class SessionsSuite:
    @in_loop
    async def test_one_driver_at_a_time(self, world: StoreWorld) -> None:
        """
        A second claim returns None at once, in any process. A release makes room; a second release
        does nothing.
        """
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
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
    async def test_epochs_rise_with_every_claim(self, world: StoreWorld) -> None:
        """Each epoch is higher than every record's, also after reopening."""
        journal = await create_session(await world.store())
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
    async def test_anyones_record_carries_the_newest_drivers_epoch(self, world: StoreWorld) -> None:
        """
        As the format says, a message or an answer carries the epoch in which it came, also before
        that driver has written anything.
        """
        journal = await create_session(await world.store())
        before = await everything(journal)
        claim = await journal.claim()
        assert claim is not None
        await say(journal, "a message")
        await say(journal, "driven", epoch=claim.epoch)
        peer = await (await world.store()).open(OPS)
        await asyncio.gather(say(peer, "one"), say(peer, "two"))
        epochs = [record.epoch for record in await everything(peer)][len(before) :]
        assert epochs == [claim.epoch] * 4

    @in_loop
    async def test_records_that_wait_together_carry_the_epoch_of_a_silent_driver(
        self, world: StoreWorld
    ) -> None:
        """
        They carry the epoch of the claim, although that driver has written nothing, however many
        of them are committed at once.
        """
        journal = await create_session(await world.store())
        before = await everything(journal)
        claim = await journal.claim()
        assert claim is not None
        peer = await (await world.store()).open(OPS)
        await asyncio.gather(*(say(peer, f"{number}") for number in range(4)))
        epochs = [record.epoch for record in await everything(peer)][len(before) :]
        assert epochs == [claim.epoch] * 4

    @in_loop
    async def test_a_replaced_instance_takes_no_more_records(self, world: StoreWorld) -> None:
        """
        For every open handle, in any process: nothing is written to it any more, and nobody drives
        it.
        """
        store = await world.store()
        journal, peer = await create_session(store), await (await world.store()).open(OPS)
        await store.create(OPS, LATER_INSTANCE, [note("goes on")], origin="restore", by="alice")
        for handle in (journal, peer):
            with pytest.raises(Refused) as refused:
                await say(handle, "late")
            assert refused.value.code == "unknown"
            with pytest.raises(Refused):
                await handle.claim()
        assert texts(await everything(await store.open(OPS))) == ["goes on"]

    @in_loop
    async def test_an_open_handle_reports_that_its_session_was_deleted(
        self, world: StoreWorld
    ) -> None:
        """
        Reading, writing, driving and sealing all report it, also after another session took its
        name. No disk error and no damage is reported.
        """
        journal = await create_session(await world.store())
        other = await world.store()
        await other.delete(OPS, by="alice")
        for _ in range(2):
            for use in (
                everything(journal),
                say(journal, "late"),
                journal.claim(),
                journal.seal(SealMark("broken", "late", 1)),
            ):
                with pytest.raises(Refused) as refused:
                    await use
                assert refused.value.code == "unknown"
            if await other.current(OPS) is None:
                await other.create(
                    OPS, LATER_INSTANCE, [note("another")], origin="created", by="alice"
                )
        assert await other.seals() == {}

    @in_loop
    async def test_a_claim_dies_with_its_process(self, world: StoreWorld) -> None:
        """The next driver's epoch is higher than the dead one's."""
        journal = await create_session(await world.store())
        dead = await world.die_driving(OPS)
        claim = await journal.claim()
        assert claim is not None
        assert claim.epoch > dead

    @in_loop
    async def test_a_claim_dies_with_its_store(self, world: StoreWorld) -> None:
        """Closing a store releases its claims."""
        store = await world.store()
        await create_session(store)
        claim = await (await store.open(OPS)).claim()
        assert claim is not None
        await store.close()
        assert await (await (await world.store()).open(OPS)).claim() is not None

    @in_loop
    async def test_a_stale_epoch_is_fenced_and_writes_nothing(self, world: StoreWorld) -> None:
        """Another process drives now; participants still append."""
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
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
    async def test_a_released_claim_writes_nothing_whether_or_not_another_follows(
        self, world: StoreWorld
    ) -> None:
        """C1: no other claim came yet; then the same handle has a newer one."""
        journal = await create_session(await world.store())
        old = await journal.claim()
        assert old is not None
        await say(journal, "driven", epoch=old.epoch)
        await old.release()
        with pytest.raises(Fenced):
            await say(journal, "late", epoch=old.epoch)
        new = await journal.claim()
        assert new is not None
        with pytest.raises(Fenced):
            await say(journal, "later", epoch=old.epoch)
        await say(journal, "driven on", epoch=new.epoch)
        assert texts(await everything(journal)) == ["born", "driven", "driven on"]

    @in_loop
    async def test_a_drivers_epoch_is_in_its_records(self, world: StoreWorld) -> None:
        """A participant's records do not pretend to be a driver's."""
        journal = await create_session(await world.store())
        claim = await journal.claim()
        assert claim is not None
        (driven,) = (await say(journal, "driven", epoch=claim.epoch)).suffix
        assert driven.epoch == claim.epoch
        reopened = await everything(await (await world.store()).open(OPS))
        assert reopened[-1] == driven

    @in_loop
    async def test_sessions_do_not_touch_each_other(self, world: StoreWorld) -> None:
        """Records, claims and seals belong to one session."""
        store = await world.store()
        ops, db = await create_session(store), await create_session(store, OTHER)
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
    async def test_an_existing_session_is_not_created_twice(self, world: StoreWorld) -> None:
        """The second creation is refused, and the first session is untouched."""
        store = await world.store()
        await create_session(store)
        with pytest.raises(Refused) as caught:
            await create_session(await world.store(), instance=LATER_INSTANCE)
        assert caught.value.code == "exists"
        assert (await store.open(OPS)).instance == INSTANCE
        assert await store.sessions() == [OPS]

    @in_loop
    async def test_one_of_two_concurrent_creations_wins(self, world: StoreWorld) -> None:
        """The loser gets a refusal with the code `exists`."""
        stores = [await world.store(), await world.store()]
        outcomes = await asyncio.gather(
            create_session(stores[0]),
            create_session(stores[1], instance=LATER_INSTANCE),
            return_exceptions=True,
        )
        (lost,) = (outcome for outcome in outcomes if isinstance(outcome, BaseException))
        assert isinstance(lost, Refused)
        assert lost.code == "exists"
        assert await (await world.store()).sessions() == [OPS]
        assert texts(await everything(await stores[0].open(OPS))) == ["born"]

    @in_loop
    async def test_a_creation_is_whole_or_not_at_all(self, world: StoreWorld) -> None:
        """A first record that can't be kept leaves no session, and the name stays free."""
        store = await world.store()
        too_long = note("x" * (1 << 21))
        with pytest.raises(Refused):
            await store.create(
                OPS, INSTANCE, [note("born"), too_long], origin="created", by="tests"
            )
        assert await store.sessions() == []
        with suppress(Refused):
            await store.open(OPS)
            pytest.fail("half a session was opened")
        journal = await create_session(store, instance=LATER_INSTANCE)
        assert texts(await everything(journal)) == ["born"]

    @in_loop
    async def test_a_record_that_is_too_long_is_refused_and_the_rest_goes_on(
        self, world: StoreWorld
    ) -> None:
        """Nothing of that decision is kept; the handle still works."""
        journal = await create_session(await world.store())
        with pytest.raises(Refused):
            await journal.append(
                lambda _: [note("small"), note("x" * (1 << 21))], since=journal.head
            )
        await say(journal, "after")
        assert texts(await everything(journal)) == ["born", "after"]

    @in_loop
    async def test_an_unknown_session_is_said_to_be_unknown(self, world: StoreWorld) -> None:
        store = await world.store()
        with pytest.raises(Refused) as caught:
            await store.open(OPS)
        assert caught.value.code == "unknown"

    @in_loop
    async def test_living_sessions_are_listed_sorted(self, world: StoreWorld) -> None:
        """The list comes from the home's journal, so any process sees it."""
        store = await world.store()
        assert await store.sessions() == []
        for name in ("ops/b", "ops/a", "chat/z"):
            await create_session(store, SessionId(name), instance=InstanceId(f"i-{name[-1]}"))
        assert await (await world.store()).sessions() == ["chat/z", "ops/a", "ops/b"]
        await store.delete(SessionId("ops/a"), by="tests")
        assert await (await world.store()).sessions() == ["chat/z", "ops/b"]

    @in_loop
    async def test_heads_name_the_last_acknowledged_record_of_every_living_session(
        self, world: StoreWorld
    ) -> None:
        """Any process reads them without opening a journal."""
        store = await world.store()
        assert list(await store.heads()) == []
        ops, db = (
            await create_session(store),
            await create_session(store, OTHER, instance=InstanceId("i-db")),
        )
        await say(ops, "one", "two")
        expected = [(OPS, INSTANCE, ops.head.seq), (OTHER, InstanceId("i-db"), db.head.seq)]
        assert [tuple(each) for each in await (await world.store()).heads()] == expected
        never = SessionId("ops/never")
        assert list(await store.heads_of([OTHER, never, OPS])) == expected
        assert list(await store.heads_of([OPS])) == expected[:1]
        assert list(await store.heads_of([])) == []
        instances = {OPS: INSTANCE, OTHER: InstanceId("i-db")}
        assert await store.instances([OTHER, never, OPS]) == instances
        recent = await store.recent_heads(within_seconds=60)
        assert recent is not None
        assert sorted(recent) == expected
        await store.delete(OTHER, by="tests")
        assert [tuple(each) for each in await store.heads()] == expected[:1]
        assert list(await store.heads_of([OPS, OTHER])) == expected[:1]
        assert await store.instances([OTHER]) == {}
        recent = await store.recent_heads(within_seconds=60)
        assert recent is not None
        assert list(recent) == expected[:1]

    @in_loop
    async def test_a_page_of_sessions_goes_on_after_its_last_name(self, world: StoreWorld) -> None:
        """Also after sessions came and went in between."""
        store = await world.store()
        for name in "dbfa":
            await create_session(store, SessionId(f"ops/{name}"), instance=InstanceId(f"i-{name}"))

        async def page(after: str | None, limit: int | None) -> list[str]:
            heads = await store.heads(after=SessionId(after) if after else None, limit=limit)
            return [session for session, _, _ in heads]

        assert await page(None, 2) == ["ops/a", "ops/b"]
        assert await page("ops/b", 2) == ["ops/d", "ops/f"]
        for name in "ce":
            await create_session(store, SessionId(f"ops/{name}"), instance=InstanceId(f"i-{name}"))
        await store.delete(SessionId("ops/d"), by="tests")
        assert await page("ops/b", 2) == ["ops/c", "ops/e"]
        assert await page("ops/bb", None) == ["ops/c", "ops/e", "ops/f"]
        assert await page("ops/z", 2) == []

    @in_loop
    async def test_a_deleted_session_is_unknown_and_its_name_is_free(
        self, world: StoreWorld
    ) -> None:
        store = await world.store()
        await say(await create_session(store), "of the first instance")
        await store.delete(OPS, by="tests")
        for each in (store, await world.store()):
            with pytest.raises(Refused) as caught:
                await each.open(OPS)
            assert caught.value.code == "unknown"
        again = await create_session(store, instance=LATER_INSTANCE)
        assert again.instance == LATER_INSTANCE
        assert texts(await everything(again)) == ["born"]

    @in_loop
    async def test_a_session_that_somebody_wrote_to_is_not_deleted_as_it_was(
        self, world: StoreWorld
    ) -> None:
        """
        A conditional deletion names the last record that its caller saw. A later record was
        acknowledged to another caller.
        """
        store, other = await world.store(), await world.store()
        journal = await create_session(store)
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
    async def test_rows_of_an_earlier_instance_never_verify_in_a_later_one(
        self, world: StoreWorld
    ) -> None:
        """Names, numbers and bodies are equal; the instance and the key are not."""
        store = await world.store()
        await say(await create_session(store), "of the first instance")
        old = await world.copy(OPS)
        await store.delete(OPS, by="tests")
        await say(await create_session(store, instance=LATER_INSTANCE), "of the later instance")
        await world.put_back(OPS, old)
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        assert await everything(reopened) == []

    @in_loop
    async def test_an_unsealed_instance_replaces_the_one_before(self, world: StoreWorld) -> None:
        """The seal is lifted because it is another instance."""
        store = await world.store()
        journal = await create_session(store)
        await world.flip(OPS, b"born")
        with pytest.raises(Untrusted):
            await say(journal, "late", check=Check.FENCE)
        unsealed = await store.create(
            OPS, LATER_INSTANCE, [note("unsealed")], origin="unseal", by="tests"
        )
        assert unsealed.sealed is None
        await say(unsealed, "goes on", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert reopened.instance == LATER_INSTANCE
        assert texts(await everything(reopened)) == ["unsealed", "goes on"]
