"""
An answer that was taken is never told as refused, whatever hinders what comes after it; and a
refused one moves nothing.
"""

from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.adapters.inmemory import Fault
from holdfast.errors import NotSaved, Refused
from holdfast.home import Agent
from holdfast.ids import ApprovalId, SessionId
from holdfast.session.authority.policy import Policy
from holdfast.session.events import ApprovalAnswered, CallFinished, ToolStarted
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_delegates import acts, hands, pair

S = SessionId("ops/api")
DEPLOY: list[dict[str, Any]] = [
    {"call": [{"tool": "act", "args": {"what": "deploy"}}]},
    {"say": "deployed"},
]


class Striking(Stage):
    """
    A stage where something happens to the disk when policy is read, which is right before a call or
    a model call is started; until it has.
    """

    strike: Callable[[], bool] | None = None

    @property
    def policy(self) -> Policy:
        if self.strike is not None and self.strike():
            self.strike = None
        return Policy()

    @policy.setter
    def policy(self, policy: Policy) -> None:
        """As it is."""


@pytest.fixture
def striking(tmp_path: Path) -> Striking:
    return Striking("memory", tmp_path / "home")


def agent_whose_tool(does: Callable[[], None]) -> Agent:
    @holdfast.tool
    def act(what: str) -> str:
        """Do something, while somebody does something to the disk."""
        does()
        return f"did {what}"

    return Agent("ops", model=ScriptModel(list(DEPLOY)), tools=[act])


async def kinds(stage: Stage) -> list[type]:
    return [
        type(each)
        for each in await stage.events(S)
        if isinstance(each, ApprovalAnswered | ToolStarted | CallFinished)
    ]


@in_loop
async def test_a_failed_start_keeps_the_answer_for_the_next_driver(
    striking: Striking,
) -> None:
    ops = striking.agent(DEPLOY)
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        # The answer itself reads policy first, for the ways of consent that count.
        reads = chain([False], repeat(True))
        striking.strike = lambda: (
            next(reads) and not striking.disk.fail_next(Fault.NOT_SAVED, session=S)
        )
        answer = await home.answer(approval, "approve_once", by=alice)
        assert (answer.result, answer.turn.error.code if answer.turn.error else None) == (
            "handed_on",
            "not_saved",
        )
        assert (await kinds(striking), striking.effects.done) == ([ApprovalAnswered], [])
        (turn,) = await home.resume(S)
    assert (turn.outcome, striking.effects.done) == ("completed", ["deploy"])


@pytest.mark.parametrize(
    ("strikes", "outcome", "code"),
    [
        (
            lambda stage: stage.disk.fail_next(Fault.IN_DOUBT_NOT_WRITTEN, session=S),
            "running",
            "in_doubt",
        ),
        (lambda stage: stage.disk.flip(S, 2), "sealed", "takeover"),
    ],
    ids=["in doubt", "a takeover"],
)
@in_loop
async def test_a_failure_after_the_start_still_reports_the_call_as_started(
    striking: Striking, strikes: Callable[[Stage], None], outcome: str, code: str
) -> None:
    """
    The tool ran: `started`, with what went wrong after it; nobody may read that it can be tried
    again.
    """
    ops = agent_whose_tool(lambda: strikes(striking))
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        answer = await home.answer(approval, "approve_once", by=alice)
    assert (
        answer.result,
        answer.turn.outcome,
        answer.turn.error.code if answer.turn.error else None,
    ) == ("started", outcome, code)
    assert answer.reason is not None


# --- of a delegate's prompt


@in_loop
async def test_an_end_that_a_delegate_could_not_report_is_reported_with_the_request_above(
    striking: Striking,
) -> None:
    """
    The delegate did what was approved. Its parent's journal could not be written, which is
    reported.
    """
    ops = pair(striking.effects, hands(), acts("deploy"))
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        striking.disk.fail_next(Fault.NOT_SAVED, session=S)
        answer = await home.answer(approval, "approve_once", by=alice)
        assert (
            answer.result,
            answer.turn.session,
            answer.turn.error.code if answer.turn.error else None,
        ) == ("started", S, "not_saved")
        await home.resume()
        assert (await home.session(S)).phase == "idle"
    assert striking.effects.done == ["deploy"]


@in_loop
async def test_a_failure_of_the_parent_is_reported_and_the_answer_counts(
    striking: Striking,
) -> None:
    ops = pair(striking.effects, hands(), acts("deploy"))
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        above = striking.disk.living(S).entries
        parked = len(above)
        striking.strike = lambda: (
            len(above) > parked and not striking.disk.fail_next(Fault.NOT_SAVED, session=S)
        )
        answer = await home.answer(approval, "approve_once", by=alice)
        assert (answer.result, answer.turn.session, answer.turn.outcome) == (
            "started",
            approval.session,
            "completed",
        )
        assert (
            answer.reason is not None,
            answer.turn.error.code if answer.turn.error else None,
        ) == (True, "not_saved")
        (turn,) = await home.resume(S)
    assert (turn.outcome, turn.reply, striking.effects.done) == (
        "completed",
        "all done",
        ["deploy"],
    )


@in_loop
async def test_a_delegates_own_failure_is_not_an_error_of_the_request_above(
    striking: Striking,
) -> None:
    ops = pair(
        striking.effects,
        hands(),
        [
            *acts("deploy")[:1],
            {"fail": "server"},
            {"fail": "server"},
            {"fail": "server"},
            {"fail": "server"},
        ],
    )
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        answer = await home.answer(approval, "approve_once", by=alice)
    assert (
        answer.result,
        answer.reason,
        answer.turn.session,
        answer.turn.outcome,
        answer.turn.error,
    ) == ("started", None, S, "completed", None)


@in_loop
async def test_the_parents_resume_raises_the_failure_of_its_delegate(striking: Striking) -> None:
    ops = pair(striking.effects, hands(), acts("deploy"))
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        await home.answer(approval, "approve_once", by=alice, wait=False)
        striking.disk.fail_next(Fault.NOT_SAVED, session=SessionId(approval.session))
        with pytest.raises(NotSaved):
            await home.resume(S)
        (turn,) = await home.resume(S)
    assert (turn.outcome, striking.effects.done) == ("completed", ["deploy"])


# --- refused


@in_loop
async def test_a_refused_answer_drives_nothing(striking: Striking) -> None:
    """A person who may not answer does not move another's turn either."""
    ops = striking.agent(DEPLOY)
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        assert (
            await home.answer(approval, "approve_once", by=alice, wait=False)
        ).result == "handed_on"
        refused = await home.answer(approval, "deny", by=bob)
        assert (refused.result, refused.reason) == ("failed", "already_answered")
        assert (await kinds(striking), striking.effects.done) == ([ApprovalAnswered], [])


@in_loop
async def test_an_answer_without_wait_drives_nothing_even_when_the_prompt_expired(
    striking: Striking,
) -> None:
    ops = striking.agent(DEPLOY)
    async with striking.open(ops) as home:
        (approval,) = (await home.send(S, "deploy it", source=alice)).approvals
        striking.clock.advance(8 * 24 * 3600)
        late = await home.answer(approval, "approve_once", by=alice, wait=False)
        assert (late.result, late.reason, late.turn.reply) == ("failed", "expired", None)


@in_loop
async def test_an_answer_to_no_prompt_is_refused(striking: Striking) -> None:
    async with striking.open(striking.agent(DEPLOY)) as home:
        with pytest.raises(Refused) as told:
            await home.service.answer(ApprovalId("a-nosuch"), "approve_once", by="alice")
    assert (told.value.code, told.value.message) == ("unknown", "no approval a-nosuch")
