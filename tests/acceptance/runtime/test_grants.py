"""Remembered approvals: cases 29, 34 to 36b, over every store."""

from typing import Any

import pytest

import holdfast
from holdfast.session.events import ApprovalAnswered, ApprovalRequested
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_pause_and_answer import act, of


def several(times: int) -> list[dict[str, Any]]:
    return [line for _ in range(times) for line in act("deploy", say="ok")]


@pytest.mark.parametrize(
    ("option", "same_session", "other_session", "other_person"),
    [
        ("approve_once", "waiting", "waiting", "waiting"),
        ("approve_session", "completed", "waiting", "waiting"),
        ("approve_everywhere", "completed", "completed", "waiting"),
    ],
)
@in_loop
async def test_a_grant_covers_its_scope_and_its_requester_only(
    stage: Stage, option: str, same_session: str, other_session: str, other_person: str
) -> None:
    """Case 34."""
    ops = stage.agent(several(8))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        assert (await home.answer(approval, option, by=alice)).turn.outcome == "completed"
    async with stage.open(ops) as home:
        assert (await home.send("ops/a", "again", source=alice)).outcome == same_session
        assert (await home.send("ops/b", "elsewhere", source=alice)).outcome == other_session
        assert (await home.send("ops/c", "as another", source=bob)).outcome == other_person


@in_loop
async def test_a_revoked_grant_asks_again_at_the_next_call(stage: Stage) -> None:
    """Case 35."""
    ops = stage.agent(several(3))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        await home.answer(approval, "approve_session", by=alice)
        (grant,) = await home.grants()
        assert (grant.tool, grant.arguments, grant.requester, grant.approval) == (
            "act",
            {"what": "deploy"},
            "alice",
            approval.id,
        )
        for other in (bob, holdfast.MessageSource.team("mallory", "ops")):
            with pytest.raises(holdfast.Refused) as refused:
                await home.revoke(grant.id, by=other)
            assert refused.value.code == "no_authority"
        await home.revoke(grant.id, by=alice)
        assert (await home.send("ops/a", "again", source=alice)).outcome == "waiting"
        assert await home.grants() == ()


@in_loop
async def test_other_arguments_are_not_covered(stage: Stage) -> None:
    ops = stage.agent([*act("deploy"), *act("destroy")])
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        await home.answer(approval, "approve_everywhere", by=alice)
        assert (await home.send("ops/a", "more", source=alice)).outcome == "waiting"


@in_loop
async def test_a_changed_tool_definition_is_not_covered_and_voids_what_was_approved(
    stage: Stage,
) -> None:
    """Case 34: and the parked plan of the old definition is voided at its start."""
    ops = stage.agent(several(3))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        await home.answer(approval, "approve_everywhere", by=alice)

    @holdfast.tool(name="act")
    def changed(what: str) -> str:
        """Do something else entirely."""
        stage.effects.done.append(f"CHANGED {what}")
        return "x"

    other = holdfast.Agent("ops", model=ops.model, tools=[changed])
    async with stage.open(other) as home:
        assert (await home.send("ops/a", "go", source=alice)).outcome == "waiting"
    assert stage.effects.done == ["deploy"]


@pytest.mark.parametrize("stage", ["memory"], indirect=True)  # real disks: tests/hostile/faults
@in_loop
async def test_nothing_runs_when_the_grant_could_not_be_saved(stage: Stage) -> None:
    """Case 29: not_saved, still pending."""
    ops = stage.agent(several(2))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals

        async def broken(*_: Any) -> None:
            raise holdfast.NotSaved("the disk is full")

        real, home.service.home.append = home.service.home.append, broken  # type: ignore[method-assign]
        failed = await home.answer(approval, "approve_session", by=alice)
        assert (failed.result, failed.reason, failed.turn.outcome, stage.effects.done) == (
            "failed",
            "not_saved",
            "waiting",
            [],
        )
        home.service.home.append = real  # type: ignore[method-assign]
        assert (
            await home.answer(approval, "approve_session", by=alice)
        ).turn.outcome == "completed"


@in_loop
async def test_an_answer_that_is_refused_leaves_no_grant_proposed(stage: Stage) -> None:
    """
    Its grant was proposed before the session refused the answer: it is dropped at once, and waits
    for nobody.
    """
    ops = stage.agent(several(1))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        with pytest.raises(holdfast.Refused) as refused:
            await home.service.answer(approval.id, "approve_session", by="alice", digest="another")
        assert refused.value.code == "plan_changed"
        state = await home.service.home.refresh()
        assert (state.proposed, state.grants, stage.effects.done) == ({}, {}, [])


@in_loop
async def test_a_crash_between_answer_and_activation_does_not_forget_the_grant(
    stage: Stage,
) -> None:
    """Case 36b: no grant without a journalled answer, no answer whose grant is forgotten."""
    ops = stage.agent(several(3))
    async with stage.open(ops) as home:
        (approval,) = (await home.send("ops/a", "go", source=alice)).approvals
        service = home.service
        real = service.home.append
        calls = 0

        async def dies_at_second(*events: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            await real(*events)

        service.home.append = dies_at_second  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            await home.answer(approval, "approve_session", by=alice)
        assert await home.grants() == ()
        service.home.append = real  # type: ignore[method-assign]
    async with stage.open(ops) as home:
        await home.resume("ops/a")
        assert (await home.send("ops/a", "again", source=alice)).outcome == "completed"
        assert len(await home.grants()) == 1
    events = await stage.events("ops/a")
    assert (len(of(ApprovalRequested, events)), len(of(ApprovalAnswered, events))) == (1, 1)
