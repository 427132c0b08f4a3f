"""
The contract of every store for an instance that has ended or is sealed, and for the session's
quarantine. Part of `conformance/store.py`.
"""

from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import Refused, Untrusted
from holdfast.ports.journal_store import Check, Journal, SealMark
from holdfast.testing.journal_notes import (
    LATER_INSTANCE,
    OPS,
    create_session,
    home_state,
    note,
    nothing,
    say,
)
from holdfast.testing.loop import in_loop
from holdfast.testing.worlds import StoreWorld

Verb = Callable[[Journal], Awaitable[object]]


async def _load(journal: Journal) -> object:
    return await journal.load(lambda _: None)


VERBS: dict[str, Verb] = {
    "append": lambda journal: journal.append(nothing, since=journal.head),
    "append after a fence": lambda journal: journal.append(
        nothing, since=journal.head, check=Check.FENCE
    ),
    "claim": lambda journal: journal.claim(),
    "seal": lambda journal: journal.seal(SealMark("broken", "it makes no sense", 1)),
    "load": _load,
}


class EndsSuite:
    @in_loop
    async def test_a_sealed_session_has_no_driver(self, world: StoreWorld) -> None:
        """
        A claim is refused with the code of the seal, and hands out no epoch: there is nothing to
        drive.
        """
        journal = await create_session(await world.store())
        await say(journal, "one")
        await world.flip(OPS, b"one")
        sealed = await (await world.store()).open(OPS)
        assert sealed.sealed is not None
        with pytest.raises(Untrusted) as refused:
            await sealed.claim()
        assert refused.value.code == sealed.sealed.code

    @in_loop
    async def test_a_driver_whose_claim_is_over_hears_of_an_end_and_a_seal_first(
        self, world: StoreWorld
    ) -> None:
        """`Fenced` would say that somebody else drives on."""
        store = await world.store()
        journal = await create_session(store)
        other = await store.open(OPS)
        claim = await other.claim()
        assert claim is not None
        await claim.release()
        await journal.seal(SealMark("broken", "it makes no sense", 1))
        with pytest.raises(Untrusted):
            await say(other, "late", epoch=claim.epoch)
        await store.create(OPS, LATER_INSTANCE, [note("goes on")], origin="unseal", by="alice")
        with pytest.raises(Refused) as refused:
            await say(other, "late", epoch=claim.epoch)
        assert refused.value.code == "unknown"

    @pytest.mark.parametrize("stored", ["whole", "damaged"])
    @pytest.mark.parametrize("end", ["deleted", "followed"])
    @pytest.mark.parametrize("verb", VERBS)
    @in_loop
    async def test_an_instance_that_has_ended_is_unknown_whatever_became_of_its_bytes(
        self, world: StoreWorld, verb: str, end: str, stored: str
    ) -> None:
        """
        No damage is reported and no seal recorded. The holder of a handle opens the session again.
        A replaced instance can still be read.
        """
        store = await world.store()
        journal = await create_session(store)
        await say(journal, "one")
        if stored == "damaged" and end == "followed":
            await world.flip(OPS, b"one")
        if end == "deleted":
            await store.delete(OPS, by="alice")
        else:
            await store.create(OPS, LATER_INSTANCE, [note("goes on")], origin="restore", by="alice")
        if verb == "load" and end == "followed" and stored == "whole":
            await VERBS[verb](journal)
        else:
            with pytest.raises(Refused) as refused:
                await VERBS[verb](journal)
            assert refused.value.code == "unknown"
        assert (await home_state(await world.store())).sealed == {}

    @in_loop
    async def test_a_handle_on_a_sealed_instance_that_was_followed_is_unknown(
        self, world: StoreWorld
    ) -> None:
        """A person lifted its seal; the handle belongs to the instance before."""
        store = await world.store()
        await say(await create_session(store), "one")
        await world.flip(OPS, b"one")
        sealed = await (await world.store()).open(OPS)
        assert sealed.sealed is not None
        await store.create(OPS, LATER_INSTANCE, [note("unsealed")], origin="unseal", by="alice")
        for verb in ("append", "append after a fence", "claim"):
            with pytest.raises(Refused) as refused:
                await VERBS[verb](sealed)
            assert refused.value.code == "unknown", verb

    @in_loop
    async def test_quarantine_is_the_sessions_and_goes_with_it(self, world: StoreWorld) -> None:
        """
        All instances list the same items, oldest first. A deleted session leaves none behind, and a
        new session of its name starts with none.
        """
        store = await world.store()
        first = await (await create_session(store)).quarantine("reply", b'{"text":"one"}')
        later = await store.create(
            OPS, LATER_INSTANCE, [note("goes on")], origin="restore", by="alice"
        )
        second = await later.quarantine("reply", b'{"text":"two"}')
        assert list(await later.quarantined()) == [first, second]
        assert [await later.read_quarantined(each) for each in (first, second)] == [
            ("reply", b'{"text":"one"}'),
            ("reply", b'{"text":"two"}'),
        ]
        await store.delete(OPS, by="alice")
        for where in (first, second):
            with pytest.raises((LookupError, FileNotFoundError)):
                world.read_quarantined(where)
        again = await create_session(store)
        assert list(await again.quarantined()) == []
