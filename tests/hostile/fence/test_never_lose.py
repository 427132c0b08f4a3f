"""
The products of an attempt are never lost, and a busy lock is never an accusation (L6; cases
22-24).
"""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from proof.rigs.rig import Rig

from holdfast.errors import Busy, Takeover, Untrusted
from holdfast.ids import InstanceId
from holdfast.ports.journal_store import Draft, Section
from holdfast.runtime.ledger.attempt import AttemptState
from holdfast.testing import outside
from holdfast.testing.conformance.store import OPS, everything, note, says, texts
from holdfast.testing.loop import in_loop


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("reply", {"text": "Paris."}),
        ("outcome", {"call": "c-1", "ok": True, "output": "restarted"}),
    ],
)
@in_loop
async def test_a_takeover_keeps_the_produced_result_in_quarantine(
    place: Path, kind: str, payload: dict[str, object]
) -> None:
    """
    Cases 22 and 23: the model's reply, the tool's outcome. In quarantine, named in the error,
    readable, session sealed.
    """
    async with Rig(place) as rig:
        attempt = await rig.driving()
        await attempt.write(says("question"))
        await attempt.release()
        outside.edit(rig.active, b'"question"', b'"QUESTION"')
        produced = attempt.produced(kind, json.dumps(payload).encode())
        with pytest.raises(Takeover) as caught:
            await attempt.reacquire(says("never written"), keeping=[produced])
        (where,) = caught.value.quarantined
        kept = json.loads((rig.path / where).read_text())
        assert kept.pop("ours")["generation"] == 1
        assert kept == payload
        assert list(await (await rig.journal()).quarantined()) == [where]
        assert await rig.seal() is not None
        assert all(b"never written" not in path.read_bytes() for path in rig.segments)


@in_loop
async def test_an_unsealed_session_goes_on_from_what_verified_with_the_reply_attached(
    place: Path,
) -> None:
    """Case 22: a new instance; the old bytes and what was kept are still there."""
    async with Rig(place) as rig:
        attempt = await rig.driving()
        await attempt.write(says("question"))
        await attempt.write(says("step"))
        await attempt.release()
        outside.edit(rig.active, b'"step"', b'"STEP"')
        attempt.produced("reply", b'{"text":"Paris."}')
        with pytest.raises(Takeover) as caught:
            await attempt.reacquire()
        await attempt.dispose()
        old = {path: path.read_bytes() for path in rig.segments}
        store = await rig.store()
        verified = await everything(await store.open(OPS))
        assert texts(verified) == ["born", "question"]
        first: list[Draft] = [
            Draft(record.type, record.version, record.body) for record in verified
        ]
        first.append(note(f"attached {len(caught.value.quarantined)}"))
        unsealed = await store.create(
            OPS, InstanceId("i-unsealed"), first, origin="unseal", by="alice"
        )
        await unsealed.append(says("goes on"), since=unsealed.head)
        assert await rig.said() == ["born", "question", "attached 1", "goes on"]
        assert await rig.seal() is None
        assert {path: path.read_bytes() for path in old} == old
        assert all((rig.path / where).is_file() for where in caught.value.quarantined)


@in_loop
async def test_a_takeover_found_by_a_mirror_keeps_the_reply_that_comes_later(place: Path) -> None:
    """
    Cases 22 and 23: the takeover is found while the model still speaks; what it says in the end is
    kept too.
    """
    async with Rig(place) as rig:
        attempt = await rig.driving()
        await attempt.release()
        outside.append(rig.active, b"a stranger was here\n")
        with pytest.raises(Takeover):
            await attempt.write(says("mirror"))
        attempt.produced("reply", b'{"text":"Paris."}')
        await attempt.dispose()
        (where,) = await (await rig.journal()).quarantined()
        assert "Paris." in (rig.path / where).read_text()


@in_loop
async def test_a_lock_that_cannot_be_had_is_busy_and_not_a_takeover(place: Path) -> None:
    """
    Case 24: another process holds it for longer than we wait; then it lets go, and we come back
    with all we had.
    """
    async with Rig(place) as rig:
        attempt = await rig.driving(lock_wait_seconds=0.05)
        await attempt.release()
        produced = attempt.produced("reply", b'{"text":"Paris."}')
        peer = rig.peer()
        assert peer.ask("hold", session=OPS) == {"holding": True}
        with pytest.raises(Busy) as caught:
            await attempt.reacquire(says("reply"), keeping=[produced])
        assert not isinstance(caught.value, Untrusted)
        assert (attempt.phase, attempt.stopped) == (AttemptState.RELEASED, None)
        peer.ask("go")
        await attempt.reacquire(says("reply"), keeping=[produced])
        await attempt.dispose()
        assert await rig.said() == ["born", "held", "reply"]
        assert await rig.seal() is None
        assert list(await (await rig.journal()).quarantined()) == []


@in_loop
async def test_a_lock_that_comes_free_while_we_try_again_is_enough(place: Path) -> None:
    """Case 24: coming back tries more than once by itself."""
    async with Rig(place) as rig:
        attempt = await rig.driving(lock_wait_seconds=0.05)
        holder = await rig.journal()
        inside, go = threading.Event(), threading.Event()

        def slow(_: Section) -> Sequence[Draft]:
            inside.set()
            go.wait()
            return [note("slow")]

        thread = threading.Thread(
            target=holder.append_now, args=(slow,), kwargs={"since": holder.head}
        )
        thread.start()
        inside.wait()
        await attempt.release()
        append, tries = attempt._journal.append, []

        async def counted(*args: object, **kwargs: object) -> object:
            tries.append(1)
            if len(tries) == 2:
                go.set()
                thread.join()
            return await append(*args, **kwargs)

        attempt._journal.append = counted
        await attempt.reacquire(says("reply"))
        assert len(tries) == 2
        assert await rig.said() == ["born", "slow", "reply"]
