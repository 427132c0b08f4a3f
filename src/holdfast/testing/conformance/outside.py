"""
The contract of every store for changes by other programs: it reports takeovers, missing history and
seals, and never reports its own writes. Part of `conformance/store.py`.
"""

from contextlib import suppress

import pytest

from holdfast.errors import CutShort, Takeover, Untrusted
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Check, SealMark
from holdfast.testing.journal_notes import (
    OPS,
    create_session,
    everything,
    home_state,
    note,
    nothing,
    say,
    says,
    texts,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import StoreWorld


class OutsideChangesSuite:
    @in_loop
    async def test_a_returning_writer_detects_any_changed_byte(self, world: StoreWorld) -> None:
        """A same-size edit far behind the handle's position is a takeover; nothing is written."""
        journal = await create_session(await world.store())
        for text in ("one", "two", "three"):
            await say(journal, text)
        await world.flip(OPS, b"one")
        with pytest.raises(Takeover):
            await say(journal, "late", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert "late" not in texts(await everything(reopened))

    @in_loop
    async def test_a_forged_row_is_a_takeover_for_every_append(self, world: StoreWorld) -> None:
        """
        This holds for the short check too: nothing past the handle's position is trusted unread.
        """
        for check in Check:
            session = SessionId(f"ops/{check.value}")
            journal = await create_session(await world.store(), session)
            await world.forge(session, note("trust me"))
            with pytest.raises(Takeover):
                await say(journal, "late", check=check)
            assert texts(await everything(journal)) == ["born"]

    @in_loop
    async def test_a_write_of_ours_never_hides_one_that_is_not(self, world: StoreWorld) -> None:
        """
        An edit is followed by an owned append of a peer that checks the end only. The next fenced
        append still reports a takeover.
        """
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
        await say(here, "one", "two")
        await there.append(nothing, since=there.head)
        await world.flip(OPS, b"one")
        with suppress(Untrusted):
            await say(there, "on top")
        with pytest.raises(Untrusted):
            await say(here, "late", check=Check.FENCE)

    @in_loop
    async def test_missing_history_is_cut_short(self, world: StoreWorld) -> None:
        """
        Open handles and the next open both notice an older, valid copy in the journal's place.
        """
        journal = await create_session(await world.store())
        older = await world.copy(OPS)
        await say(journal, "acknowledged")
        await world.put_back(OPS, older)
        with pytest.raises(Untrusted):
            await say(journal, "late", check=Check.FENCE)
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None

    @in_loop
    async def test_missing_history_is_seen_with_no_handle_alive(self, world: StoreWorld) -> None:
        """The anchor reveals it."""
        journal = await create_session(await world.store())
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
    async def test_a_wiped_slot_undoes_nothing_that_was_acknowledged(
        self, world: StoreWorld
    ) -> None:
        """
        D4: the last batch is cut, and the half of the anchor that names it is wiped or overwritten
        by the other half.
        """
        for number, change in enumerate((world.wipe_newer_slot, world.copy_older_slot)):
            session = SessionId(f"ops/wiped-{number}")
            journal = await create_session(await world.store(), session)
            await say(journal, "asked")
            older = await world.copy(session)
            await say(journal, "denied")
            await journal.sync_anchor()
            await journal.close()
            await change(session)
            await world.put_back(session, older)
            reopened = await (await world.store()).open(session)
            assert reopened.sealed is not None
            assert reopened.sealed.code == CutShort.default_code
            with pytest.raises(Untrusted):
                await say(reopened, "approved")

    @in_loop
    async def test_a_wiped_slot_is_written_again_while_its_batch_is_there(
        self, world: StoreWorld
    ) -> None:
        """
        L7: a crash in the middle of writing a slot leaves the same state, so it is not damage.
        Afterwards the rule is as strict as before.
        """
        journal = await create_session(await world.store())
        await say(journal, "one")
        await world.wipe_newer_slot(OPS)
        await say(journal, "two")
        older = await world.copy(OPS)
        await say(journal, "three")
        await world.wipe_newer_slot(OPS)
        reopened = await (await world.store()).open(OPS)
        assert (reopened.sealed, texts(await everything(reopened))) == (
            None,
            ["born", "one", "two", "three"],
        )
        await world.wipe_newer_slot(OPS)
        await world.put_back(OPS, older)
        assert (await (await world.store()).open(OPS)).sealed is not None

    @in_loop
    async def test_a_new_and_a_claimed_session_have_both_halves_of_their_anchor(
        self, world: StoreWorld
    ) -> None:
        """
        D4: a wiped half can't be the result of a crash, neither right after the creation nor after
        a claim that wrote no record.
        """
        for number, claims in enumerate((False, True)):
            session = SessionId(f"ops/new-{number}")
            journal = await create_session(await world.store(), session)
            if claims:
                assert await world.die_driving(session) == 1
                assert (await (await world.store()).open(session)).sealed is None
            await journal.close()
            await world.wipe_newer_slot(session)
            reopened = await (await world.store()).open(session)
            assert reopened.sealed is not None

    @in_loop
    async def test_genuine_records_after_the_damage_are_separated_from_forged_ones(
        self, world: StoreWorld
    ) -> None:
        """
        They are for people to read: they are never folded, and they exclude the record right at the
        damage.
        """
        journal = await create_session(await world.store())
        for text in ("one", "two", "three"):
            await say(journal, text)
        await journal.sync_anchor()
        await journal.close()
        await world.flip(OPS, b"one")
        await world.forge(OPS, note("stranger"))
        reopened = await (await world.store()).open(OPS)
        assert reopened.sealed is not None
        believed = await everything(reopened)
        beyond = await reopened.authentic_after(believed[-1].seq)
        assert (texts(believed), texts(beyond)) == (["born"], ["two", "three"])
        assert texts(await reopened.authentic_after(beyond[0].seq)) == ["three"]

    @in_loop
    async def test_an_identical_copy_in_its_place_is_not_an_accusation(
        self, world: StoreWorld
    ) -> None:
        journal = await create_session(await world.store())
        await say(journal, "one")
        await world.put_back(OPS, await world.copy(OPS))
        await say(journal, "two", check=Check.FENCE)
        assert texts(await everything(await (await world.store()).open(OPS))) == [
            "born",
            "one",
            "two",
        ]

    @in_loop
    async def test_a_takeover_is_sticky_for_the_handle(self, world: StoreWorld) -> None:
        """Restoring the bytes changes nothing."""
        journal = await create_session(await world.store())
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
    async def test_a_seal_is_durable_and_for_everyone(self, world: StoreWorld) -> None:
        """
        It holds for peers, for later processes, and after the bytes were restored; reads still
        work.
        """
        store = await world.store()
        here, there = await create_session(store), await (await world.store()).open(OPS)
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
    async def test_an_open_that_finds_damage_seals(self, world: StoreWorld) -> None:
        """The seal is durable: the next open reports it too, although the bytes are restored."""
        journal = await create_session(await world.store())
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
    async def test_a_session_can_be_sealed_though_its_records_are_genuine(
        self, world: StoreWorld
    ) -> None:
        """
        A reader may find that genuine records contradict each other. The seal is durable, holds for
        everyone, and the first mark stays.
        """
        here, there = (
            await create_session(await world.store()),
            await (await world.store()).open(OPS),
        )
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
