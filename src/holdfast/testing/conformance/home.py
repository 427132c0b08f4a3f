"""
The contract of every store for data beside the journals: quarantine, outputs, handles, and the
home's own history. Part of `conformance/store.py`.
"""

import asyncio

import msgspec
import pytest

from holdfast.errors import InvariantBroken, NewerVersion, Refused, Takeover
from holdfast.ports.journal_store import Appended, Check, Draft
from holdfast.testing.clock import ManualClock
from holdfast.testing.journal_notes import (
    INSTANCE,
    OPS,
    OTHER,
    create_session,
    everything,
    home_state,
    nothing,
    say,
    says,
    texts,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import StoreWorld


class HomeSuite:
    @in_loop
    async def test_each_line_of_an_export_is_an_object_with_the_records_facts(
        self, world: StoreWorld
    ) -> None:
        journal = await create_session(await world.store())
        await say(journal, "one", "two")
        records = await everything(journal)
        lines = [msgspec.json.decode(each) async for each in journal.lines()][-len(records) :]
        names = ("seq", "at", "epoch", "type", "mac", "body")
        assert [tuple(map(each.get, names)) for each in lines] == [
            (
                each.seq,
                each.at,
                each.epoch,
                each.type,
                each.mac.hex(),
                msgspec.json.decode(each.body),
            )
            for each in records
        ]

    @in_loop
    async def test_a_session_does_not_begin_before_the_homes_last_record(
        self, world: StoreWorld
    ) -> None:
        """A clock that was set back makes no session older than what the home knew before it."""
        await create_session(await world.store())
        home = await (await world.store()).home()
        known = (await everything(home))[-1].at
        clock = ManualClock(now_ms=known - 3_600_000)
        later = await create_session(await world.store(clock=clock), OTHER)
        assert [each.at for each in await everything(later)] == [known]

    @in_loop
    async def test_quarantine_is_durable_and_works_on_a_sealed_session(
        self, world: StoreWorld
    ) -> None:
        """
        Items are listed oldest first, and each can be read at the path that `quarantine` returned.
        """
        journal = await create_session(await world.store())
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
    async def test_outputs_are_found_by_their_digest(self, world: StoreWorld) -> None:
        """Outputs are durable. The same bytes are the same output; an unknown one is refused."""
        journal = await create_session(await world.store())
        data = bytes(range(256)) * 1000
        digest = await journal.keep_output(data)
        assert await journal.keep_output(data) == digest
        reopened = await (await world.store()).open(OPS)
        assert await reopened.output(digest) == data
        with pytest.raises(Refused):
            await reopened.output("0" * len(digest))

    @in_loop
    async def test_closing_waits_for_a_running_append(self, world: StoreWorld) -> None:
        """
        A begun append is kept and acknowledged; a peer's append in the same commit is not affected.
        """
        store = await world.store()
        journal = await create_session(store)
        peer = await store.open(OPS)
        running = [
            asyncio.ensure_future(each.append(says("begun"), since=each.head))
            for each in (journal, peer)
        ]
        await asyncio.sleep(0)
        await journal.close()
        assert running[0].done() or isinstance(await running[0], Appended)
        assert [len(texts((await each).suffix)) > 0 for each in running] == [True, True]
        with pytest.raises(InvariantBroken):
            await say(journal, "late")
        assert texts(await everything(peer)) == ["born", "begun", "begun"]

    @in_loop
    async def test_closing_twice_is_once(self, world: StoreWorld) -> None:
        store = await world.store()
        journal = await create_session(store)
        await journal.close()
        await journal.close()
        await store.close()
        await store.close()
        assert texts(await everything(await (await world.store()).open(OPS))) == ["born"]

    @in_loop
    async def test_the_homes_journal_tells_which_sessions_live(self, world: StoreWorld) -> None:
        """
        Creations, deletions and seals are its records, and fold to the same state in every process.
        """
        store = await world.store()
        ops = await create_session(store)
        await create_session(store, OTHER)
        await store.delete(OTHER, by="tests")
        await world.flip(OPS, b"born")
        with pytest.raises(Takeover):
            await say(ops, "late", check=Check.FENCE)
        state = await home_state(await world.store())
        assert {name: created.instance for name, created in state.sessions.items()} == {
            OPS: INSTANCE
        }
        assert {name: sealed.code for name, sealed in state.sealed.items()} == {OPS: "takeover"}
        assert state.sessions[OPS].origin == "created"
        assert await store.seals() == await (await world.store()).seals() == state.sealed

    @in_loop
    async def test_the_homes_journal_keeps_the_same_contract(self, world: StoreWorld) -> None:
        """Several processes append to it, in order, durably."""
        here, there = await (await world.store()).home(), await (await world.store()).home()
        revoked = Draft("token_revoked", 1, b'{"name":"a","by":"tests"}')
        done = await here.append(lambda _: [revoked], since=here.head)
        assert [record.type for record in done.suffix] == ["token_revoked"]
        seen = await there.append(nothing, since=there.head, check=Check.FENCE)
        assert seen.head == done.head
        await create_session(await world.store())
        types = [record.type for record in await everything(await (await world.store()).home())]
        assert [
            each for each in types if each in {"home_created", "token_revoked", "session_created"}
        ] == [*("home_created", "token_revoked", "session_created")]

    @in_loop
    async def test_a_record_of_a_newer_program_in_the_home_is_never_skipped(
        self, world: StoreWorld
    ) -> None:
        """
        It is not tampering. This program refuses to create sessions on top of records that it can't
        read.
        """
        store = await world.store()
        home = await store.home()
        await home.append(lambda _: [Draft("of_tomorrow", 1, b"{}")], since=home.head)
        with pytest.raises(NewerVersion):
            await create_session(await world.store())
