"""
A5 over every store: a remembered approval never outlives the policy that let it be given, whichever
way a call comes.
"""

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.session.authority.context import Audience
from holdfast.session.authority.policy import Policy, Rule
from holdfast.session.events import ApprovalAnswered, ApprovalRequested
from holdfast.session.home.events import GrantProposed
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, carol
from tests.acceptance.runtime.test_grants import several
from tests.acceptance.runtime.test_pause_and_answer import of

DAY = 24 * 3600


def ruled(rule: Rule | None, tool: str = "act", **more: Any) -> Policy:
    return Policy(rules={} if rule is None else {Audience.PERSONAL: {tool: rule}}, **more)


BOB_MAY = Rule(mode="ask", approvers=("bob",), requester_may_answer=False, remember="any")
TIGHTER: dict[str, Policy] = {
    "named approvers": ruled(Rule(mode="ask", approvers=("bob",), requester_may_answer=False)),
    "a star with approvers": ruled(Rule(mode="ask", approvers=("bob",)), "*"),
    "nothing is remembered": ruled(Rule(mode="ask", remember="never")),
    "another giver is wanted": ruled(BOB_MAY),
    "denied": ruled(Rule(mode="deny")),
    "the requester is somebody else now": ruled(None, people={"alice": {"local": "other"}}),
    "answers of programs count no more": ruled(None, consent=("terminal", "page")),
}


async def given(
    stage: Stage, home: Any, option: str, *, by: Any = alice, session: str = "ops/a"
) -> None:
    (approval,) = (await home.send(session, "go", source=alice)).approvals
    assert (await home.answer(approval, option, by=by)).turn.outcome == "completed"
    assert stage.effects.done == ["deploy"]


@pytest.mark.parametrize("tighter", TIGHTER)
@pytest.mark.parametrize("option", ["approve_session", "approve_everywhere"])
@in_loop
async def test_a_grant_counts_for_nothing_once_policy_is_tighter_and_again_when_it_is_not(
    stage: Stage, option: str, tighter: str
) -> None:
    """A5: also in another process, and in another session for what was approved everywhere."""
    ops = stage.agent(several(6))
    async with stage.open(ops) as home:
        await given(stage, home, option)
        stage.policy = TIGHTER[tighter]
        for session in ("ops/a", "ops/b"):
            turn = await home.send(session, "again", source=alice)
            assert turn.outcome == ("completed" if tighter == "denied" else "waiting")
        (grant,) = await home.grants()
        assert not grant.counts
        assert grant.covers.startswith("nothing at present, because ")
    async with stage.open(ops) as home:
        assert (await home.send("ops/c", "and again", source=alice)).outcome != "failed"
        assert stage.effects.done == ["deploy"], "nothing ran without consent"
        stage.policy = Policy()
        (grant,) = await home.grants()
        assert grant.counts


@in_loop
async def test_an_approver_who_was_removed_takes_the_grants_along(stage: Stage) -> None:
    """The giver is the approver, not the requester."""
    ops = stage.agent(several(4))
    stage.policy = ruled(BOB_MAY)
    async with stage.open(ops) as home:
        await given(stage, home, "approve_everywhere", by=bob)
        assert (await home.send("ops/b", "again", source=alice)).outcome == "completed"
        assert stage.effects.done == ["deploy"] * 2
        stage.policy = ruled(msgspec.structs.replace(BOB_MAY, approvers=("carol",)))
        (approval,) = (await home.send("ops/b", "once more", source=alice)).approvals
        assert approval.may_answer == ("carol",)
        stage.policy = Policy()  # nobody is named: the requester answers, and bob's word is none
        assert (await home.send("ops/c", "and now", source=alice)).outcome == "waiting"
        assert stage.effects.done == ["deploy"] * 2


@pytest.mark.parametrize(
    ("remember", "options"),
    [
        ("never", ("approve_once", "edit", "deny")),
        ("session", ("approve_once", "approve_session", "edit", "deny")),
        ("any", ("approve_once", "approve_session", "approve_everywhere", "edit", "deny")),
    ],
)
@in_loop
async def test_a_prompt_offers_nothing_that_remembers_beyond_its_rule(
    stage: Stage, remember: Any, options: tuple[str, ...]
) -> None:
    ops = stage.agent(several(2))
    stage.policy = ruled(Rule(mode="ask", approvers=("bob",), remember=remember))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        assert approval.options == options
        edited = (
            await home.answer(approval, "edit", by=bob, arguments={"what": "other"})
        ).turn.approvals
        assert edited[0].options == options, "what a person edited is under the same rule"


@in_loop
async def test_an_answer_that_policy_no_longer_lets_be_remembered_is_refused_and_the_prompt_stands(
    stage: Stage,
) -> None:
    """
    The prompt offered more than the rule of now allows: nobody is told that something is remembered
    when it is not.
    """
    ops = stage.agent(several(2))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        stage.policy = ruled(Rule(mode="ask", remember="session"))
        refused = await home.answer(approval, "approve_everywhere", by=alice)
        assert (refused.result, refused.reason, stage.effects.done) == (
            "failed",
            "option_unavailable",
            [],
        )
        state = await home.service.home.refresh()
        assert (state.proposed, state.grants) == ({}, {})
        assert (
            await home.answer(approval, "approve_session", by=alice)
        ).turn.outcome == "completed"


@in_loop
async def test_a_grant_activated_after_policy_was_tightened_counts_for_nothing(
    stage: Stage,
) -> None:
    """Proposed and answered under the old rule, activated by the next process under the new one."""
    ops = stage.agent(several(3))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        real, calls = home.service.home.append, 0

        async def dies_at_second(*events: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            await real(*events)

        home.service.home.append = dies_at_second  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await home.answer(approval, "approve_session", by=alice)
        home.service.home.append = real  # type: ignore[method-assign]
    stage.policy = ruled(Rule(mode="ask", remember="never"))
    async with stage.open(ops) as home:
        await home.resume("ops/a")
        done = list(stage.effects.done)
        assert (await home.send("ops/a", "again", source=alice)).outcome == "waiting"
        assert stage.effects.done == done
        (grant,) = await home.grants()
        assert not grant.counts


@in_loop
async def test_a_parked_turn_is_judged_by_the_policy_of_its_start(stage: Stage) -> None:
    """
    A call that a grant allowed waits for its sibling's prompt; the rule is tightened meanwhile: it
    asks instead of starting.
    """
    lines = [
        *several(1),
        {
            "call": [
                {"tool": "act", "args": {"what": "deploy"}},
                {"tool": "act", "args": {"what": "other"}},
            ]
        },
        {"say": "ok"},
    ]
    ops = stage.agent(lines)
    async with stage.open(ops) as home:
        await given(stage, home, "approve_everywhere")
        await home.service.home.refresh()
        stage.policy = ruled(Rule(mode="ask", approvers=("bob",), requester_may_answer=False))
        turn = await home.send("ops/a", "both", source=alice)
        assert [each.may_answer for each in turn.approvals] == [("bob",), ("bob",)]
        assert stage.effects.done == ["deploy"]


@in_loop
async def test_a_grant_ends_and_no_clock_revives_it(stage: Stage) -> None:
    """
    Session grants too. Time is the later of the clock and the newest record, in the session and in
    the home.
    """
    ops = stage.agent(
        [*several(2), *several(1)[:1] * 2]
    )  # what waits is superseded by the next message
    async with stage.open(ops) as home:
        await given(stage, home, "approve_session")
        (grant,) = await home.grants()
        assert grant.expires_at > grant.granted_at
        stage.clock.advance(29 * DAY)
        assert (await home.send("ops/a", "again", source=alice)).outcome == "completed"
        stage.clock.advance(2 * DAY)
        assert await home.grants() == ()
        assert (await home.send("ops/a", "late", source=alice)).outcome == "waiting"
        stage.clock.advance(-20 * DAY)
        assert (await home.send("ops/a", "back", source=alice)).outcome == "waiting"
        assert stage.effects.done == ["deploy"] * 2


@in_loop
async def test_the_homes_own_time_ends_a_grant_in_a_session_that_has_not_seen_it(
    stage: Stage,
) -> None:
    """
    The clock goes back before a new session begins: only the home's journal knows how late it is.
    """
    ops = stage.agent(several(6))
    async with stage.open(ops) as home:
        await given(stage, home, "approve_everywhere")
        stage.clock.advance(31 * DAY)
        (other,) = (
            await home.send("ops/late", "something", source=carol)
        ).approvals  # a record of the home, that late
        assert other.requester == "carol"
        stage.clock.advance(-31 * DAY)
        assert await home.grants() == ()
        assert (await home.send("ops/new", "again", source=alice)).outcome == "waiting"
        assert stage.effects.done == ["deploy"]


@in_loop
async def test_a_shorter_remember_for_ends_older_grants_and_a_longer_one_does_not_extend_them(
    stage: Stage,
) -> None:
    ops = stage.agent(several(8))
    async with stage.open(ops) as home:
        await given(stage, home, "approve_session")
        (before,) = await home.grants()
        stage.clock.advance(2 * DAY)
        stage.policy = Policy(remember_for_seconds=DAY)
        assert await home.grants() == ()
        assert (await home.send("ops/a", "again", source=alice)).outcome == "waiting"
        stage.policy = Policy(remember_for_seconds=90 * DAY)
        assert (await home.grants())[0].expires_at == before.expires_at


@in_loop
async def test_a_grant_of_another_answer_is_never_activated_in_its_place(stage: Stage) -> None:
    """
    Another person, or another scope, under the same answer id: the grant that counts is the one
    that the journalled answer proposed.
    """
    ops = stage.agent(several(3))
    stage.policy = ruled(Rule(mode="ask", approvers=("bob",), remember="any"))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        service = home.service
        await service.answer(approval.id, "approve_session", by="alice", answer_id="same")
        (real,) = (await service.home.refresh()).grants.values()
        for changed in ({"granted_by": "bob"}, {"scope": "everywhere"}, {"granted_by": None}):
            forged: GrantProposed = msgspec.structs.replace(
                real, grant=f"g-{sorted(changed)}", **changed
            )
            await service.home.append(forged)
        assert (await home.send("ops/a", "again", source=alice)).outcome == "completed"
        state = await service.home.refresh()
        assert (list(state.grants), state.proposed) == ([real.grant], {})
    events = await stage.events("ops/a")
    assert (len(of(ApprovalRequested, events)), len(of(ApprovalAnswered, events))) == (1, 1)


@in_loop
async def test_a_grant_says_whom_it_lets_do_what_who_gave_it_and_until_when_and_giver_and_requester_may_revoke_it(
    stage: Stage,
) -> None:
    ops = stage.agent(several(6))
    stage.policy = ruled(BOB_MAY)
    async with stage.open(ops) as home:
        for revoker in (bob, alice):
            (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
            await home.answer(approval, "approve_session", by=bob)
            (grant,) = await home.grants()
            assert (grant.requester, grant.granted_by, grant.counts) == ("alice", "bob", True)
            words = 'exactly this, in the conversation ops/a:\n| what: "deploy"'
            assert grant.covers == f"act runs without a prompt whenever alice asks for {words}"
            assert grant.expires_at[:10] == "2023-12-14", (
                "thirty days on the clock that the tests set"
            )
            with pytest.raises(holdfast.Refused) as refused:
                await home.revoke(grant.id, by=carol)
            assert refused.value.code == "no_authority"
            assert "alice or bob" in (refused.value.hint or "")
            await home.revoke(grant.id, by=revoker)
            assert await home.grants() == ()
