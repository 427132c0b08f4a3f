"""
Wrong arguments that a program hands to the library: said in our words, with the next step, before
anything is written.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.argument_checks import check_source
from holdfast.session.events import ToolStarted
from holdfast.testing import ManualClock, ScriptModel, crash_after, open_in_memory

ALICE = holdfast.MessageSource.local("alice")


@holdfast.tool
def pay(amount: int) -> str:
    """Pay somebody."""
    return f"{amount} paid"


BANK = holdfast.Agent("bank", model="demo", tools=[pay])


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        (BANK, "agents is not a list of agents"),
        (["bank"], "agents is not a list of agents"),
        ([holdfast.Agent("bank ", tools=[pay])], "'bank ' is not a valid agent name"),
        ([holdfast.Agent("bank", tools=["nwo"])], "no such built-in tool; did you mean 'now'?"),
        ([holdfast.Agent("bank", tools=[print])], "is not a tool"),
        ([holdfast.Agent("bank", model=42)], "42 is not a model"),
        ([holdfast.Agent("bank", tools="now")], "one where a list must be"),
        ([holdfast.Agent("bank", delegates=BANK)], "one where a list must be"),
        ([BANK, holdfast.Agent("bank")], "two agents are called 'bank'"),
        ([holdfast.Agent(None)], "None is not a valid agent name"),  # type: ignore[arg-type]
        ([holdfast.Agent(["bank"])], "is not a valid agent name"),  # type: ignore[arg-type]
        ([holdfast.Agent("bank", instructions=None)], "instructions of 'bank' are not text"),  # type: ignore[arg-type]
        ([holdfast.Agent("bank", tools=None)], "one where a list must be"),  # type: ignore[arg-type]
        ([holdfast.Agent("bank", tools=pay)], "one where a list must be"),  # type: ignore[arg-type]
        ([holdfast.Agent("bank", delegates=None)], "one where a list must be"),  # type: ignore[arg-type]
        ([holdfast.Agent("bank", delegates=[pay])], "is not an agent"),  # type: ignore[list-item]
    ],
)
def test_an_agent_that_could_not_do_what_its_author_counts_on_is_refused(
    agents: Any, said: str
) -> None:
    with pytest.raises(holdfast.Unusable) as refused:
        holdfast.open("never-made", agents=agents)
    assert said in refused.value.message
    assert refused.value.hint


def test_an_agent_that_hands_on_to_nobody_is_refused_before_a_home_is_made(tmp_path: Path) -> None:
    async def opened() -> None:
        async with holdfast.open(
            tmp_path / "home", agents=[holdfast.Agent("bank", delegates=["nobody"])]
        ):
            pass

    with pytest.raises(holdfast.Unusable) as refused:
        asyncio.run(opened())
    assert (refused.value.code, [*tmp_path.iterdir()]) == ("unknown_agent", [])


def test_a_tool_may_be_named_that_another_agent_has() -> None:
    holdfast.open(
        "never-made", agents=[BANK, holdfast.Agent("teller", tools=["pay", "now", "bot:other"])]
    )


def test_a_name_is_not_a_source_and_an_id_is_not_an_approval() -> None:
    """
    A person is never made up from a string, and no answer is taken to what was not seen (P1, P3).
    """

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            waiting = await home.send("bank/may", "pay amount=100", source=ALICE)
            wrong: Any = "alice"
            id_alone: Any = waiting.approvals[0].id
            for mistake in (
                home.send("bank/may", "hello", source=wrong),
                home.answer(waiting.approvals[0], "approve_once", by=wrong),
                home.answer(id_alone, "approve_once", by=ALICE),
                home.cancel("bank/may", by=wrong),
                home.remind("bank/may", "hello", source=wrong, every="1h"),
                home.cancel_reminder("r-1", by=wrong),
                home.revoke("g-1", by=wrong),
                home.jobs(by=wrong),
            ):
                with pytest.raises(holdfast.Unusable) as refused:
                    await mistake
                assert refused.value.code == "malformed"
                assert (
                    "MessageSource.local" in refused.value.hint
                    or "home.approval(ID)" in refused.value.hint
                )
            assert [each.state for each in await home.approvals()] == ["requested"]

    asyncio.run(story())


def test_a_number_is_not_text_and_is_not_kept_as_one() -> None:
    """
    A channel's own id of a message, most of all: it was taken, told as done, and made the session
    unreadable.
    """

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            waiting = await home.send("bank/may", "pay amount=100", source=ALICE)
            (prompt,) = waiting.approvals
            number: Any = 4711
            nothing: Any = None
            for mistake in (
                home.send("bank/may", "hello", source=ALICE, dedup=number),
                home.send("bank/may", number, source=ALICE),
                home.send("bank/may", nothing, source=ALICE),
                home.send(number, "hello", source=ALICE),
                home.send("bank/may", "hello", source=ALICE, model=number),
                home.answer(prompt, number, by=ALICE),
                home.answer(prompt, "deny", by=ALICE, reason=number),
                home.answer(prompt, "deny", by=ALICE, answer_id=number),
                home.answer(prompt, "edit", by=ALICE, arguments=object()),
                home.answer(prompt, "edit", by=ALICE, arguments={"amount": "\udcff"}),
                home.remind("bank/may", number, source=ALICE, every="1h"),
                home.remind("bank/may", "hello", source=ALICE, at=number),
                home.send("bank/may", "hello", source=ALICE, workspace=number),
                home.send("bank/may", "hello", source=ALICE, workspace="a\0b"),
                home.send("bank/may", "hello", source=ALICE, workspace="\ud800"),
                home.remind("bank/may", "hello", source=ALICE, every="1h", may_prompt=number),
                home.remind("bank/may", "hello", source=ALICE, every="1h", may_prompt=ALICE),  # type: ignore[arg-type]
                home.answer(prompt, "edit", by=ALICE, arguments={"amount": object()}),
                home.approval(number),
                home.approvals(for_=number),
                home.cancel(number, by=ALICE),
                home.cancel("bank/may", by=ALICE, turn=number),
                home.resume(number),
                home.resume("bank/may", model=number),
                home.session(nothing),
                home.jobs(number, by=ALICE),
                home.job(number, by=ALICE),
                home.cancel_job(number, by=ALICE),
                home.cancel_reminder(number, by=ALICE),
                home.revoke(nothing, by=ALICE),
                home.take_up("bank/may", number).__aenter__(),
            ):
                with pytest.raises(holdfast.Unusable) as refused:
                    await mistake
                assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
            assert [each.state for each in await home.approvals()] == ["requested"]

    asyncio.run(story())


@pytest.mark.parametrize("path", [7, b"state", "a\0b", "\ud800"])
def test_a_home_is_named_by_text_or_a_path(path: Any) -> None:
    with pytest.raises(holdfast.Unusable, match="is not a path"):
        holdfast.open(path)


class Own(str):
    """Text of a program's own type, such as a member of an enum."""

    __slots__ = ()


def test_text_of_a_programs_own_type_is_taken_as_the_text_that_it_is() -> None:
    """Its letters are journalled and kept; JSON does not know the type, nor does a later start."""

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            turn = await home.send(
                Own("bank/may"),
                Own("pay amount=100"),
                source=holdfast.MessageSource.local(Own("alice")),
                dedup=Own("k"),
                model=Own("demo"),
                agent=Own("bank"),
            )
            (prompt,) = turn.approvals
            denied = await home.answer(prompt, Own("deny"), by=ALICE, reason=Own("too much"))
            assert (denied.turn.outcome, type(denied.turn.session)) == ("completed", str)
            assert type(prompt.requester) is str
            async with home.turn("bank/june", Own("pay"), source=ALICE, dedup=Own("k")) as loop:
                call = holdfast.LoopCall(Own("c1"), Own("pay"), Own('{"amount":7}'))
                (gate,) = await loop.said(Own("I pay."), [call], model=Own("m"))
                await loop.drop(gate, Own("no"))
                assert (await loop.finish(Own("done"))).reply == "done"
            async with home.turn("bank/july", "pay", source=ALICE) as loop:
                assert (await loop.fail(Own("over"), Own("it is"))).outcome == "failed"

    asyncio.run(story())


def test_agents_people_and_adapters_may_be_named_by_text_of_a_programs_own_type() -> None:
    agent = holdfast.Agent(
        Own("bank"),
        model=Own("demo"),
        instructions=Own("Be brief."),
        tools=[pay, Own("now")],
        delegates=[Own("clerk")],
    )
    clerk = holdfast.Agent(Own("clerk"), model=Own("demo"))
    person = holdfast.MessageSource.local(Own("alice"))

    async def story() -> None:
        async with open_in_memory(agents=[agent, clerk]) as home:
            (prompt,) = (await home.send("bank/may", "pay amount=100", source=ALICE)).approvals
            await home.answer(prompt, "approve_session", by=person)
            (grant,) = await home.grants()
            await home.revoke(grant.id, by=person)
            assert await home.grants() == ()
            await home.send("bank/may", "pay amount=7", source=ALICE)
            (ended,) = await home.cancel("bank/may", by=person)
            assert ended.outcome == "cancelled"
            reminder = await home.remind("bank/may", "hello", source=ALICE, every="1h")
            await home.cancel_reminder(reminder.id, by=person)
            assert await home.reminders() == ()
            told = await home.send("bank/may", "delegate_clerk task=hello", source=ALICE)
            assert told.outcome == "completed"
            items = home.items(Own("bank/may"), adapter=Own("own/1"))
            seq = await items.add(Own("state"), key=Own("k"))
            assert [(each.seq, each.blob) for each in await items.list("k")] == [(seq, b"state")]
            async with home.turn("bank/june", "now", source=ALICE) as loop:
                await loop.keep(Own("state"), adapter=Own("own/1"))
                given = holdfast.LoopResult("noon", blob=Own("b"), adapter=Own("own/1"))
                gate = await loop.call(await loop.gate("now", {}), lambda _: given)
                assert (gate.outcome, gate.result) == ("ok", b"b")

    asyncio.run(story())


def test_to_remove_no_items_keeps_all_of_them() -> None:
    """A record that names no item removes all of an adapter's history."""

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            items = home.items("bank/may", adapter="own/1")
            await items.add("state")
            none: Any = (each.seq for each in await items.list() if each.key == "stale")
            await items.remove(none)
            number: Any = 1
            with pytest.raises(holdfast.Unusable) as refused:
                await items.remove(number)
            assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
            assert [each.blob for each in await items.list()] == [b"state"]

    asyncio.run(story())


def test_a_loops_words_that_are_not_text_are_refused_and_its_turn_goes_on() -> None:
    async def story() -> None:
        async with (
            open_in_memory(agents=[BANK]) as home,
            home.turn("bank/may", "pay", source=ALICE) as loop,
        ):
            number: Any = 4711
            gate = await loop.gate("pay", {"amount": 7})
            for mistake in (
                loop.said("", number),
                loop.said("", model=number),
                loop.drop(gate, number),
                loop.fail(number, "it is over"),
                loop.fail("over", number),
            ):
                with pytest.raises(holdfast.Unusable) as refused:
                    await mistake
                assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
            await loop.drop(gate, "half a character: \ud800")
            assert (await loop.finish("half a character: \ud800")).reply == "half a character: ?"

    asyncio.run(story())


def _but(source: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(source, **changes)


_UNVERIFIED = _but(ALICE.provenance, authenticity="unverified")
_MISSPELT = _but(ALICE.provenance, taint="tained")
NOBODY_THERE = [
    holdfast.MessageSource.automation("alice", channel="webhook"),
    holdfast.MessageSource.none(),
    _but(ALICE, person=" "),
    _but(ALICE, can_prompt=False),
    _but(ALICE, principal=holdfast.Principal.SYSTEM),
    _but(ALICE, provenance=_UNVERIFIED),
]


def test_a_source_is_taken_as_it_is_now_and_not_as_the_caller_changes_it_later() -> None:
    """A1: the quotes of a message are those that it came with."""
    quotes = [holdfast.Quote("bob", "hello")]
    source = check_source(_but(ALICE, quotes=quotes))
    quotes.clear()
    assert source == _but(ALICE, quotes=(holdfast.Quote("bob", "hello"),))


def test_a_message_in_the_name_of_a_person_is_not_their_consent() -> None:
    """
    P3, P6: a webhook of alice's could approve what alice was asked; so could whoever claimed to be
    alice where nobody had checked it.
    """

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            (prompt,) = (await home.send("bank/may", "pay amount=100", source=ALICE)).approvals
            for source in NOBODY_THERE:
                answer = await home.answer(prompt, "approve_once", by=source)
                assert (answer.result, answer.reason, answer.turn.outcome) == (
                    "failed",
                    "wrong_approver",
                    "waiting",
                )
            assert (await home.answer(prompt, "approve_once", by=ALICE)).result == "started"

    asyncio.run(story())


@pytest.mark.parametrize(
    "source",
    [
        _but(ALICE, person=7),
        _but(ALICE, person="alice "),
        _but(ALICE, person="ali\u200bce"),
        _but(ALICE, channel="lo\ncal"),
        _but(ALICE, channel=""),
        _but(ALICE, boundary=" "),
        _but(ALICE, boundary=b"ops"),
        _but(ALICE, message_id=b"4711"),
        _but(ALICE, principal="root"),
        _but(ALICE, audience="everybody"),
        _but(ALICE, can_prompt="yes"),
        _but(ALICE, provenance=_MISSPELT),
        _but(ALICE, quotes=("bob: hello",)),
        _but(ALICE, quotes=(holdfast.Quote("", "hello"),)),
    ],
    ids=lambda source: next(
        f"{field}={getattr(source, field)!r}"
        for field in source.__struct_fields__
        if getattr(source, field) != getattr(ALICE, field)
    ),
)
def test_a_source_whose_authority_could_not_be_restored_is_refused(
    source: holdfast.MessageSource,
) -> None:
    """A3: what is lost in a crash must not have been had before it. Nothing is written."""

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            with pytest.raises(holdfast.Unusable) as refused:
                await home.send("bank/may", "pay amount=100", source=source)
            assert (refused.value.code, bool(refused.value.hint)) == ("malformed", True)
            with pytest.raises(holdfast.Refused):
                await home.session("bank/may")

    asyncio.run(story())


def test_follow_refuses_a_cursor_past_the_end_and_skips_nothing() -> None:
    """
    G4: to wait in silence until this instance is as long would leave out all of it that came before.
    """

    async def story() -> None:
        async with open_in_memory(agents=[BANK]) as home:
            await home.send("bank/may", "hello", source=ALICE)
            last = (await home.session("bank/may")).seq
            with pytest.raises(holdfast.Refused) as refused:
                await anext(aiter(home.follow("bank/may", after=last + 1)))
            assert refused.value.code == "cursor_ahead"
            follower = aiter(home.follow("bank/may", after=last))
            first = asyncio.ensure_future(anext(follower))
            await home.send("bank/may", "hello", source=ALICE)
            assert (await first).seq == last + 1
            for wrong in ("7", -1):
                cursor: Any = wrong
                with pytest.raises(holdfast.Unusable):
                    home.follow("bank/may", after=cursor)

    asyncio.run(story())


def test_a_reminder_takes_a_time_as_python_has_it() -> None:
    """With its microseconds; it is due at the next whole second, never early."""

    async def story() -> None:
        clock = ManualClock()
        async with open_in_memory(agents=[BANK], clock=clock) as home:
            moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).replace(
                microsecond=1
            ) + timedelta(hours=1)
            made = await home.remind("bank/may", "hello", source=ALICE, at=moment)
            assert datetime.fromisoformat(made.next_at) == moment.replace(
                microsecond=0
            ) + timedelta(seconds=1)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ScriptModel("hello"), "takes a list of lines"),
        (lambda: ScriptModel({"say": "hello"}), "takes a list of lines"),
        (lambda: crash_after("ToolStarted"), "no 1. ToolStarted to crash after"),  # type: ignore[arg-type]
        (lambda: crash_after(ToolStarted, times=0), "no 0. ToolStarted to crash after"),
        (lambda: open_in_memory(policy={"pay": "auto"}), "is not a policy"),  # type: ignore[arg-type]
    ],
    ids=["text", "one line", "a name", "never", "a dictionary"],
)
def test_a_mistake_in_a_test_of_ones_own_is_said_where_it_is_made(made: Any, said: str) -> None:
    """
    Else the test passes, or fails somewhere else: a model that said one letter of its only line at
    a time.
    """
    with pytest.raises(holdfast.Unusable, match=said) as refused:
        made()
    assert refused.value.hint
