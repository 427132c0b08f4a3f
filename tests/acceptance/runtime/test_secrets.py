"""S1: no known secret in a journal, a stream, a prompt or an error."""

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.runtime.lifecycle.unseal import unseal
from holdfast.secrecy import HIDDEN, Secrecy
from holdfast.session.events import CallFinished, ModelAnswered
from holdfast.session.features.memory.items import MemoryItem
from holdfast.session.view.messages import Quote
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_pause_and_answer import of

CANARY = 'canary-"7f3b'


def knowing(home: Any) -> Any:
    home.service.runtime.world.secrets = (CANARY,)
    return home


@in_loop
async def test_a_message_that_holds_a_secret_is_refused_and_not_kept(stage: Stage) -> None:
    ops = stage.agent([{"say": "hi"}])
    async with stage.open(ops) as home:
        knowing(home)
        with pytest.raises(holdfast.Refused) as refused:
            await home.send("ops/api", f"use {CANARY} please", source=alice)
        assert (refused.value.code, CANARY in str(refused.value)) == ("secret", False)


@in_loop
async def test_nothing_that_is_kept_beside_a_message_or_an_answer_holds_a_secret(
    stage: Stage,
) -> None:
    """A key, a name and a quote are journalled as the text is, and are refused as it is."""
    ops = stage.agent([{"call": [{"tool": "act", "args": {"what": "x"}}]}, {"say": "done"}])
    quoting = msgspec.structs.replace(alice, quotes=(Quote("bob", f"it is {CANARY}"),))
    async with stage.open(ops) as home:
        knowing(home)
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        for source, dedup in (
            (alice, CANARY),
            (holdfast.MessageSource.local(CANARY), None),
            (quoting, None),
        ):
            with pytest.raises(holdfast.Refused) as refused:
                await home.send("ops/api", "hello", source=source, dedup=dedup)
            assert (refused.value.code, CANARY in str(refused.value)) == ("secret", False)
        told = [
            await home.answer(approval, "deny", by=alice, answer_id=CANARY),
            await home.answer(approval, CANARY, by=alice),
            await home.answer(approval, "deny", by=holdfast.MessageSource.local(CANARY)),
        ]
        assert [(each.result, each.reason) for each in told] == [("failed", "secret")] * 3
        with pytest.raises(holdfast.Refused) as refused:
            await unseal(home.service.runtime, "ops/api", by="alice", reason=f"because of {CANARY}")
        assert refused.value.code == "secret"
        journal = await home.service.runtime.world.store.open(approval.session)
        stored = b"".join([line async for line in journal.lines()])
        await journal.close()
        assert b"canary" not in stored


@in_loop
async def test_a_models_secret_is_hidden_and_its_call_with_a_secret_never_runs(
    stage: Stage,
) -> None:
    call = {"tool": "look", "args": {"at": f"x {CANARY}"}}
    ops = stage.agent(
        [
            {"call": [call, {"tool": "look", "args": {"at": "y"}}], "say": f"I know {CANARY}"},
            {"say": f"it is {CANARY}"},
        ]
    )
    async with stage.open(ops) as home:
        knowing(home)
        turn = await home.send("ops/api", "go", source=alice)
        assert turn.reply == f"it is {HIDDEN}"
        journal = await home.service.runtime.world.store.open(turn.session)
        stored = b"".join([line async for line in journal.lines()])
        await journal.close()
    assert b"canary" not in stored
    events = await stage.events("ops/api")
    assert of(ModelAnswered, events)[0].text == f"I know {HIDDEN}"
    assert sorted((each.outcome, each.code or "") for each in of(CallFinished, events)) == [
        ("denied", "secret"),
        ("ok", ""),
    ]
    assert stage.effects.done == ["look y"]


@pytest.mark.parametrize("written", [CANARY, CANARY.replace('"', '\\"')])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_secret_cut_by_the_end_of_a_piece_is_hidden_from_followers(
    size: int, written: str
) -> None:
    """As it is written, and as JSON writes it, which takes longer."""
    heard: list[str] = []
    streamed = Secrecy((CANARY,)).streamed(heard.append)
    text = f"before {written} after {written}"
    for start in range(0, len(text), size):
        streamed.hear(text[start : start + size])
    streamed.end()
    assert "".join(heard) == f"before {HIDDEN} after {HIDDEN}"


@in_loop
async def test_a_secret_that_is_not_text_hinders_nothing_and_is_hidden_as_it_reads(
    stage: Stage,
) -> None:
    """A variable may hold any bytes, and Python hands them over as half characters."""
    ops = stage.agent([{"say": "it is canary-\ufffd7f3b"}])
    async with stage.open(ops) as home:
        home.service.runtime.world.secrets = ("canary-\udcff7f3b",)
        assert (await home.send("ops/api", "hello", source=alice)).reply == f"it is {HIDDEN}"


@in_loop
async def test_an_edit_that_holds_a_secret_is_refused_and_not_kept(stage: Stage) -> None:
    """
    A person's new arguments are a person's text: refused before they are journalled, and the prompt
    stands.
    """
    ops = stage.agent([{"call": [{"tool": "act", "args": {"what": "x"}}]}, {"say": "done"}])
    async with stage.open(ops) as home:
        knowing(home)
        (approval,) = (await home.send("ops/api", "go", source=alice)).approvals
        refused = await home.answer(approval, "edit", by=alice, arguments={"what": f"y {CANARY}"})
        assert (refused.result, refused.reason) == ("failed", "secret")
        journal = await home.service.runtime.world.store.open(approval.session)
        stored = b"".join([line async for line in journal.lines()])
        await journal.close()
        assert b"canary" not in stored
        assert (await home.answer(approval, "approve_once", by=alice)).turn.outcome == "completed"


@in_loop
async def test_a_foreign_turn_refuses_or_hides_every_secret(stage: Stage) -> None:
    ops = holdfast.Agent("ops", model="demo", tools=stage.effects.tools())
    async with stage.open(ops) as home:
        knowing(home)
        with pytest.raises(holdfast.Refused) as refused:
            async with home.turn("ops/api", f"use {CANARY}", source=alice):
                pass
        assert refused.value.code == "secret"
        async with home.turn("ops/api", "look around", source=alice) as turn:
            gate = await turn.gate("look", {"at": CANARY}, text=f"I know {CANARY}")
            assert (gate.state, gate.outcome) == ("closed", "denied")
            gate = await turn.start(await turn.gate("look", {"at": "api"}))
            await turn.record(gate, "ok", f"saw {CANARY}")
            assert (await turn.finish(f"it is {CANARY}")).reply == f"it is {HIDDEN}"
        journal = await home.service.runtime.world.store.open(
            (await home.service.show("ops/api")).session
        )
        stored = b"".join([line async for line in journal.lines()])
        await journal.close()
    assert b"canary" not in stored
    assert [
        (each.outcome, each.code) for each in of(CallFinished, await stage.events("ops/api"))
    ] == [("denied", "secret"), ("ok", None)]


@in_loop
async def test_a_prompt_that_would_show_a_secret_is_not_made(stage: Stage) -> None:
    """
    A prompt is journalled and sent out. An item that was remembered before its text became a known secret
    is forgotten by another way.
    """
    item = a_memory(f"the word is {CANARY}")
    call = {"call": [{"tool": "forget", "args": {"id": item.id}}]}
    ops = holdfast.Agent("ops", model=ScriptModel([call, {"say": "so"}]), tools=["forget"])
    async with stage.open(ops) as home:
        assert home.service.runtime.world.memory is not None
        home.service.runtime.world.memory.add(item)
        knowing(home)
        turn = await home.send("ops/api", "forget it", source=alice)
        assert (turn.outcome, turn.approvals) == ("completed", ())
    events = await stage.events("ops/api")
    assert [(each.outcome, each.code) for each in of(CallFinished, events)] == [
        ("denied", "secret")
    ]
    assert not any(Secrecy((CANARY,)).holds(msgspec.json.encode(each)) for each in events)


def a_memory(text: str) -> MemoryItem:
    return MemoryItem(
        id="m-" + "a" * 26,
        text=text,
        audience="personal",
        boundary="personal:alice",
        person="alice",
        authenticity="verified",
        tainted=False,
        kind="message",
        session=SessionId("ops/old"),
        instance=InstanceId("i"),
        turn=TurnId("t1"),
        call=CallId("c-1"),
        created_at=0,
    )
