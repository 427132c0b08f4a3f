"""
The table is the law: every pair of phase and event is legal exactly if listed, and a record that
breaks it is not believed.
"""

from itertools import product
from typing import Any, get_args

import msgspec
import pytest
from msgspec import Raw
from proof.scenarios.teller import Teller

from holdfast.errors import BrokenChain, InvariantBroken
from holdfast.session.commands import StartTurn
from holdfast.session.decide import commit as deciding
from holdfast.session.decide.decision import Decided
from holdfast.session.events import (
    ApprovalAnswered,
    ApprovalClosed,
    ApprovalRequested,
    Blob,
    CallAllowed,
    CallFinished,
    CallMade,
    CallsProposed,
    Compacted,
    DelegateStarted,
    Event,
    JobSubmitted,
    MemoryRecalled,
    ModelAnswered,
    ModelCallFailed,
    ModelCallLost,
    ModelCallStarted,
    SessionBorn,
    SessionEvent,
    StateKept,
    ToolStarted,
    TurnCancelled,
    TurnCompacted,
    TurnEnded,
    TurnImported,
    TurnParked,
    TurnResumed,
    TurnStarted,
)
from holdfast.session.evolve.fold import evolve, fold
from holdfast.session.state import Phase, SessionState
from holdfast.session.transitions import TRANSITIONS, IllegalTransition, check

TURN_EVENTS = (
    ModelCallStarted, ModelAnswered, ModelCallFailed, ModelCallLost, CallsProposed, CallAllowed, ApprovalRequested, ApprovalAnswered, ApprovalClosed,
    StateKept, ToolStarted, DelegateStarted, JobSubmitted, CallFinished, MemoryRecalled, TurnCompacted, TurnParked, TurnResumed, TurnCancelled, TurnEnded,
)  # fmt: skip


@pytest.mark.parametrize(("before", "event"), list(product(Phase, TURN_EVENTS)))
def test_a_move_is_legal_exactly_if_listed(before: Phase, event: type[Event]) -> None:
    sample = tried(event, {"approval": None, "call": "c-none", "number": 0})
    legal = set()
    for after in Phase:
        try:
            check(before, sample, after)
        except IllegalTransition:
            continue
        legal.add(after)
    assert legal == set(TRANSITIONS.get((before, event), ()))


def test_the_table_speaks_of_events_of_a_turn_only() -> None:
    assert {event for _, event in TRANSITIONS} == set(TURN_EVENTS)
    assert set(TURN_EVENTS) < set(get_args(SessionEvent))


# One story to each phase, and one well-formed event of each type to try there.
ASKED = ("submit x", "go")
WAYS: dict[Phase, tuple[str, ...]] = {
    Phase.READY: ("submit x", "begin"),
    Phase.CALLING_MODEL: ASKED,
    Phase.DECIDING: (*ASKED, 'calls "delete b=1" "tidy b=2"'),
    Phase.RUNNING: (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide"),
    Phase.PARKED: (*ASKED, 'calls "delete b=1"', "go"),
    Phase.CANCELLING: (*ASKED, 'calls "delete b=1" "tidy b=2"', "decide", "start c2", "cancel"),
    Phase.ENDED: (*ASKED, "says bye"),
}


def told(phase: Phase) -> tuple[SessionState, dict[str, Any]]:
    teller = Teller()
    teller.tell(WAYS[phase])
    state = teller.pure.state
    turn = state.turns.get("t1")
    assert (turn.phase if turn else Phase.ENDED) is phase
    call = turn.calls[0] if turn and turn.calls else None
    facts = {
        "call": call.call if call else "c-none",
        "approval": call.approval.asked if call and call.approval else None,
        "number": turn.model_calls if turn else 1,
    }
    return state, facts


def tried(event: type[Event], facts: dict[str, Any]) -> Any:
    asked, call, number = facts["approval"], facts["call"], facts["number"]
    prompt = asked.approval if asked else "a-none"
    samples: dict[type[Event], Any] = {
        MemoryRecalled: MemoryRecalled(turn="t1", degraded="late"),
        ModelCallStarted: ModelCallStarted(turn="t1", number=number + 1, epoch=1, model="demo"),
        ModelAnswered: ModelAnswered(turn="t1", number=number, text="x", calls=(CallMade(call="c-new", tool="look", arguments="{}"),)),
        ModelCallFailed: ModelCallFailed(turn="t1", number=number, kind="server", message="", final=False),
        ModelCallLost: ModelCallLost(turn="t1", number=number),
        CallsProposed: CallsProposed(turn="t1", number=number + 1, calls=()),
        StateKept: StateKept(turn="t1", blob=Blob(adapter="t/1", size=1, text="x")),
        CallAllowed: CallAllowed(turn="t1", call=call, by="policy", arguments="{}", digest="d"),
        ApprovalRequested: ApprovalRequested(
            approval="a-new", turn="t1", call=call, tool="delete", definition="d", arguments="{}", binding="b", display="x", digest="d", options=(),
            may_answer=("alice",), expires_at=2**50,
        ),
        ApprovalAnswered: ApprovalAnswered(approval=prompt, turn="t1", call=call, option="approve_once", by="alice", answer_id="x", digest="d"),
        ApprovalClosed: ApprovalClosed(approval=prompt, turn="t1", call=call, closed_as="expired"),
        ToolStarted: ToolStarted(turn="t1", call=call, tool="delete", arguments="{}", digest="d", contract="once", allowed_by="policy", epoch=1),
        DelegateStarted: DelegateStarted(
            turn="t1", call=call, agent="helper", session="delegate/x", instance="life-2", arguments="{}", digest="d", allowed_by="policy", epoch=1
        ),
        JobSubmitted: JobSubmitted(
            job="j-new", turn="t1", call=call, tool="delete", arguments="{}", digest="d", contract="once", context=Raw(b"{}"), agent="ops", model="demo",
            epoch=1, host="process", process={}, seconds_max=1.0, bytes_max=1,
        ),
        CallFinished: CallFinished(turn="t1", call=call, outcome="denied", text=""),
        TurnCompacted: TurnCompacted(turn="t1", summary="x", part="base", messages=1, tokens_before=2, tokens_after=1, trigger="size"),
        TurnParked: TurnParked(turn="t1"),
        TurnResumed: TurnResumed(turn="t1", epoch=9, after="crash"),
        TurnCancelled: TurnCancelled(turn="t1", by="alice"),
        TurnEnded: TurnEnded(turn="t1", outcome="completed"),
    }  # fmt: skip
    return samples[event]


@pytest.mark.parametrize(
    ("phase", "event"), [pair for pair in product(Phase, TURN_EVENTS) if pair not in TRANSITIONS]
)
def test_an_unlisted_record_is_not_believed(phase: Phase, event: type[Event]) -> None:
    """T4: on replay it is a broken chain that names the record, and the state is as it was."""
    state, facts = told(phase)
    with pytest.raises(BrokenChain) as broken:
        fold(state, [(77, 1, tried(event, facts))])
    assert broken.value.at_seq == 77


@pytest.mark.parametrize(
    "pair",
    [
        pair
        for pair in TRANSITIONS
        if pair[1]
        in (ModelCallStarted, ModelAnswered, ModelCallFailed, ModelCallLost, TurnCancelled)
    ],
)
def test_a_listed_record_leads_where_the_table_says(pair: tuple[Phase, type[Event]]) -> None:
    state, facts = told(pair[0])
    after = evolve(state, tried(pair[1], facts), seq=state.seq + 1, at=0).turns["t1"].phase
    assert after in TRANSITIONS[pair]


def test_an_illegal_decision_of_ours_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own decide: InvariantBroken, before anything is written."""
    state, facts = told(Phase.READY)
    monkeypatch.setattr(
        deciding, "decide", lambda *_args, **_more: Decided((tried(TurnParked, facts),))
    )
    with pytest.raises(InvariantBroken, match="StartTurn decided on something illegal"):
        deciding.commit(state, [StartTurn(epoch=1)], now=0)


# --- what the table alone can't say


def broken(steps: tuple[str, ...], event: Any) -> str:
    teller = Teller()
    teller.tell(steps)
    real = {name: value for value, name in teller._names.items()}
    body = msgspec.to_builtins(event)
    event = msgspec.convert(
        {
            key: real.get(value, value) if isinstance(value, str) else value
            for key, value in body.items()
        },
        type(event),
    )
    with pytest.raises(BrokenChain) as found:
        fold(teller.pure.state, [(50, 0, event)])
    return str(found.value)


TWO = (*ASKED, 'calls "delete b=1" "delete b=2"', "go")
APPROVED = (*ASKED, 'calls "delete b=1"', "go", "answer a1 approve_once", "resume t1")
STARTED = (*ASKED, 'calls "tidy b=1"', "decide", "start c1")
PURE = (*ASKED, 'calls "look b=1"', "decide", "start c1")


def start(call: str = "c1", **changes: Any) -> ToolStarted:
    made = ToolStarted(
        turn="t1",
        call=call,
        tool="delete",
        arguments="{}",
        digest="d",
        contract="once",
        allowed_by="policy",
        epoch=2,
        run=1,
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("steps", "event", "why"),
    [
        (("submit x",), TurnStarted(turn="t1", inputs=("i2",), epoch=1), "inputs are not the next"),
        (("submit x",), TurnStarted(turn="t7", inputs=("i1",), epoch=1), "inputs are not the next"),
        (
            (*ASKED, "submit y"),
            TurnStarted(turn="t2", inputs=("i2",), epoch=1),
            "another turn runs",
        ),
        (
            ("submit x",),
            SessionBorn(session="ops/api", instance="life-1", origin="created", by="x"),
            "the first record of another instance",
        ),
        (
            ("submit x", "begin"),
            ModelCallStarted(turn="t1", number=2, epoch=1, model="m"),
            "number 2 after 0",
        ),
        (ASKED, ModelAnswered(turn="t1", number=2, text=""), "not the call that is out"),
        (
            ASKED,
            ModelCallFailed(turn="t1", number=2, kind="x", message="", final=False),
            "not the call that is out",
        ),
        (ASKED, ModelCallLost(turn="t1", number=2), "not the call that is out"),
        (("submit x", "begin"), CallsProposed(turn="t1", number=1, calls=()), "external"),
        (
            (*TWO, "answer a1 approve_once"),
            TurnResumed(turn="t1", epoch=2, after="pause"),
            "not all of its answers",
        ),
        (
            (*APPROVED, "crash", "recover"),
            TurnResumed(turn="t1", epoch=1, after="crash"),
            "epoch 1 after 2",
        ),
        (
            (
                *ASKED,
                'calls "delete b=1"',
                "go",
                "submit y by=bob",
                "begin",
                "answer a1 approve_once",
            ),
            TurnResumed(turn="t1", epoch=2, after="pause"),
            "t2 runs",
        ),
        (STARTED, TurnParked(turn="t1"), "without a person"),
        (STARTED, start(contract="once", allowed_by="policy"), "must not run twice"),
        (PURE, start(contract="pure", epoch=1, run=2), "runs already"),
        (APPROVED, start(allowed_by="policy"), "not what was allowed"),
        (APPROVED, start(allowed_by="a1", digest="other"), "not what was allowed"),
        (
            (*TWO, "answer a1 approve_once", "answer a2 deny"),
            start(call="c2"),
            "the call is finished",
        ),
        (
            (*TWO, "answer a2 deny"),
            CallFinished(turn="t1", call="c2", outcome="denied", text=""),
            "the call is finished",
        ),
        (APPROVED, CallFinished(turn="t1", call="c1", outcome="ok", text=""), "never started"),
        (
            APPROVED,
            CallFinished(turn="t1", call="c1", outcome="in_doubt", text=""),
            "never started",
        ),
        (
            APPROVED,
            CallFinished(turn="t1", call="c1", outcome="timed_out", text=""),
            "never started",
        ),
        *(
            (STARTED, CallFinished(turn="t1", call="c1", outcome=outcome, text=""), "it started")
            for outcome in ("superseded", "cancelled", "denied", "unattended", "voided")
        ),
        (STARTED, CallFinished(turn="t1", call="c-none", outcome="ok", text=""), "no such call"),
        (STARTED, TurnEnded(turn="t1", outcome="completed"), "a call has no result"),
        (TWO, TurnEnded(turn="t1", outcome="superseded"), "a call has no result"),
        (
            (*TWO, "answer a1 approve_once"),
            ApprovalAnswered(
                approval="a1",
                turn="t1",
                call="c1",
                option="deny",
                by="alice",
                answer_id="y",
                digest="d",
            ),
            "the call is approved",
        ),
        (
            TWO,
            ApprovalAnswered(
                approval="a1",
                turn="t1",
                call="c2",
                option="deny",
                by="alice",
                answer_id="y",
                digest="d",
            ),
            "no such open prompt",
        ),
        (
            TWO,
            ApprovalClosed(approval="a1", turn="t1", call="c2", closed_as="expired"),
            "no such prompt to close",
        ),
        (
            (*ASKED, "calls 'ask_person {}'", "go"),
            CallFinished(turn="t1", call="c1", outcome="ok", text=""),
            "never started",
        ),
        (
            ("submit x", "go", "says done"),
            Compacted(summary="s", turns=2, tokens_before=9, tokens_after=1, trigger="manual"),
            "more than there is",
        ),
        (("submit x",), TurnImported(turn="t9", messages=(), source="x"), "before anything else"),
    ],
    ids=str,
)
def test_a_record_that_can_not_follow_is_not_believed(
    steps: tuple[str, ...], event: Any, why: str
) -> None:
    """T1, T2, T4, T6: guards of the fold itself, whoever wrote the record."""
    assert why in broken(steps, event)


def test_a_supersede_of_what_does_not_wait_is_not_believed() -> None:
    teller = Teller()
    teller.tell((*STARTED, "submit y"))
    event = msgspec.structs.replace(
        teller.pure.events()[-1], input="i3", turn="t3", supersedes=("t1",)
    )
    with pytest.raises(BrokenChain, match="nothing takes its place"):
        fold(teller.pure.state, [(50, 0, event)])


def test_a_start_on_a_closed_prompt_is_not_believed() -> None:
    """P5: closed is closed, whatever became of the result."""
    teller = Teller()
    teller.tell((*APPROVED, "policy personal.delete=deny", "start c1", "crash losing=1"))
    call = teller.pure.state.turns["t1"].calls[0]
    event = start(call=call.call, allowed_by=call.allowed_by, digest=call.digest)
    with pytest.raises(BrokenChain, match="its prompt was closed"):
        fold(teller.pure.state, [(50, 0, event)])


def test_an_approved_start_while_a_sibling_waits_is_not_believed() -> None:
    """Case 13."""
    teller = Teller()
    teller.tell((*ASKED, 'calls "delete b=1" "delete b=2"', "decide", "answer a1 approve_once"))
    call = teller.pure.state.turns["t1"].calls[0]
    event = start(call=call.call, allowed_by=call.allowed_by, digest=call.digest)
    with pytest.raises(BrokenChain, match="sibling still needs"):
        fold(teller.pure.state, [(50, 0, event)])
