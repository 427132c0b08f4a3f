"""
Answers: one decision, whoever else answers; bound to what was shown; and what an answer may not do.
"""

import msgspec
import pytest
from proof.scenarios.pure_session import PureSession
from proof.scenarios.teller import Teller

from holdfast.ids import ApprovalId
from holdfast.session.decide.answers import _REFUSALS_JOURNALLED_MAX, answer_approval
from holdfast.session.events import AnswerRefused, ApprovalAnswered, CallFinished, ToolStarted
from holdfast.session.results import Answered


def asked(*more: str) -> tuple[Teller, PureSession, ApprovalId]:
    teller = Teller()
    teller.tell(["submit x", "go", 'calls "delete b=1"', "go", *more])
    return teller, teller.pure, next(iter(teller.pure.state.approvals))


def test_fifty_answers_are_one_decision() -> None:
    """Case 22: half allow, half deny: the first journalled wins, at most one execution."""
    for first in ("approve_once", "deny"):
        teller, pure, approval = asked()
        second = "deny" if first == "approve_once" else "approve_once"
        codes = []
        for number in range(50):
            refusal = (
                pure.answer(approval, (first, second)[number % 2], "alice", answer_id=f"x{number}")
                .decided[-1]
                .refusal
            )
            codes.append(refusal.code if refusal else None)
        teller.tell(["go"])
        assert codes == [None] + ["already_answered"] * 49
        assert sum(isinstance(event, ApprovalAnswered) for event in pure.events()) == 1
        assert sum(isinstance(event, ToolStarted) for event in pure.events()) == (
            first == "approve_once"
        )


def test_a_persons_name_is_never_taken_for_a_word() -> None:
    """The demo, run by the user `nobody`, said that nobody had answered."""
    _, pure, approval = asked()
    stranger = pure.answer(approval, "deny", "nobody", answer_id="x").decided[-1].refusal
    pure.answer(approval, "deny", "alice", answer_id="y")
    late = pure.answer(approval, "approve_once", "nobody", answer_id="z").decided[-1].refusal
    assert stranger is not None
    assert late is not None
    assert (stranger.message, stranger.hint) == (
        "'nobody' may not answer this prompt",
        "'alice' may; it still stands",
    )
    assert late.message == "this was answered already: deny, by 'alice'"


def test_an_approved_call_never_starts_with_other_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P1: the plan is bound as it was, and only the arguments differ at the last look."""
    teller, pure, approval = asked()
    pure.answer(approval, "approve_once", "alice", answer_id="x")
    honest = pure.look
    monkeypatch.setattr(
        pure,
        "look",
        lambda turn, call: msgspec.structs.replace(honest(turn, call), arguments='{"b":2}'),
    )
    teller.tell(["go"])
    events = pure.events()
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert "plan_changed" in [event.code for event in events if isinstance(event, CallFinished)]


def test_an_answer_to_another_plan_leaves_the_prompt_as_it_was() -> None:
    """P1: plan_changed; the right digest then works."""
    _, pure, approval = asked()
    before = len(pure.records)
    refusal = pure.answer(approval, "approve_once", "alice", digest="0" * 64).decided[-1].refusal
    assert refusal is not None
    assert (refusal.code, len(pure.records)) == ("plan_changed", before)
    where = pure.state.approvals[approval]
    call = pure.state.open_call(where[0], where[1])
    assert call is not None
    assert call.approval is not None
    outcome = (
        pure.answer(approval, "approve_once", "alice", digest=call.approval.asked.digest)
        .decided[-1]
        .outcome
    )
    assert isinstance(outcome, Answered)


@pytest.mark.parametrize("name", ["Alice", "alice ", "ALICE", "alicе"])
def test_a_name_that_looks_alike_is_somebody_else(name: str) -> None:
    """P3: case, a space and a Cyrillic letter."""
    _, pure, approval = asked()
    refusal = pure.answer(approval, "approve_once", name).decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "wrong_approver"


@pytest.mark.parametrize("cut", [8, -1])
def test_part_of_an_id_is_not_an_id(cut: int) -> None:
    _, pure, approval = asked()
    refusal = pure.answer(ApprovalId(approval[:cut]), "approve_once", "alice").decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "unknown"


def test_strangers_can_not_fill_the_journal() -> None:
    """Refused tries are audited, up to a bound."""
    _, pure, approval = asked()
    for _ in range(_REFUSALS_JOURNALLED_MAX + 20):
        refusal = pure.answer(approval, "approve_once", "mallory").decided[-1].refusal
        assert refusal is not None
        assert refusal.code == "wrong_approver"
    assert (
        sum(isinstance(event, AnswerRefused) for event in pure.events()) == _REFUSALS_JOURNALLED_MAX
    )


@pytest.mark.parametrize(
    ("option", "arguments"), [("edit", None), ("approve_once", '{"b":"2"}'), ("deny", "{}")]
)
def test_arguments_go_with_an_edit_and_only_with_it(option: str, arguments: str | None) -> None:
    """P8: an approval carries nothing that would run."""
    _, pure, approval = asked()
    refusal = pure.answer(approval, option, "alice", arguments=arguments).decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "option_unavailable"


@pytest.mark.parametrize(
    "option",
    [
        "",
        " ",
        "yes",
        "y",
        "ok",
        "1",
        "approve",
        "APPROVE_ONCE",
        "approve_once ",
        "answer",
        "approve_everything",
    ],
)
def test_only_an_option_that_was_offered_decides(option: str) -> None:
    """
    P6, at the session: whichever channel an answer comes from, silence and plain words approve
    nothing.
    """
    _, pure, approval = asked()
    before = len(pure.records)
    refusal = pure.answer(approval, option, "alice").decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "option_unavailable"
    assert len(pure.records) == before


@pytest.mark.parametrize("words", [None, "", " ", "\n\t"])
def test_a_question_is_not_answered_by_silence(words: str | None) -> None:
    """P6: `answer` needs words."""
    teller = Teller()
    teller.tell(["submit x", "go", """calls 'ask_person {"question":"which?"}'""", "go"])
    pure, approval = teller.pure, next(iter(teller.pure.state.approvals))
    before = len(pure.records)
    refusal = pure.answer(approval, "answer", "alice", reason=words).decided[-1].refusal
    assert refusal is not None
    assert refusal.code == "option_unavailable"
    assert len(pure.records) == before


def test_an_approval_for_once_names_no_grant() -> None:
    """36b: only an answer that should leave a grant behind is bound to one."""
    _, pure, approval = asked()
    pure.do(msgspec.structs.replace(_command(approval), grant="g1"))
    event = pure.events()[-1]
    assert isinstance(event, ApprovalAnswered)
    assert event.grant is None


def _command(approval: ApprovalId):
    from holdfast.session.commands import AnswerApproval

    return AnswerApproval(approval=approval, option="approve_once", by="alice", answer_id="x")


def test_prompts_of_a_turn_are_bounded() -> None:
    """P10: prompt 21 is denied, and the turn goes on."""
    teller = Teller()
    teller.tell(
        [
            "submit x",
            "go",
            "calls " + " ".join(f'"delete b={number}"' for number in range(25)),
            "decide",
        ]
    )
    outcomes = [call.code for call in teller.pure.state.turns["t1"].calls]
    assert outcomes == [None] * 20 + ["prompt_budget"] * 5


def test_parked_turns_of_a_session_are_bounded() -> None:
    from holdfast import limits

    teller = Teller()
    for number in range(limits.PARKED_TURNS_MAX + 1):
        teller.tell([f"submit x by=p{number}", "go", 'calls "delete b=1"', "go"])
    assert teller.pure.state.turns[teller.pure.state.running].calls[0].code == "too_many_parked"


def test_a_batch_is_bounded() -> None:
    teller = Teller()
    teller.tell(
        ["submit x", "go", "calls " + " ".join(f'"look b={number}"' for number in range(65))]
    )
    assert teller.pure.events()[-1].code == "batch_calls_max"


@pytest.mark.parametrize(("early", "is_over"), [(1, False), (0, True)])
def test_the_end_of_a_prompt_is_no_longer_part_of_its_time(early: int, is_over: bool) -> None:
    """P5: at its last moment neither an answer is taken nor the prompt left open."""
    from holdfast.session.decide.answers import expire
    from holdfast.session.decide.commit import decide

    _, pure, approval = asked()
    call = next(call for turn in pure.state.turns.values() for call in turn.waiting)
    assert call.approval is not None
    now = call.approval.asked.expires_at - early
    refusal = decide(pure.state, _command(approval), now=now).refusal
    assert (refusal is not None and refusal.code == "expired") == is_over
    assert bool(expire(pure.state, now).events) == is_over


def test_a_clock_set_back_is_not_believed() -> None:
    """Now is never before the last record, whoever asks `decide` directly."""
    from holdfast.session.decide.commit import decide

    teller, pure, approval = asked("wait 8d", "submit later by=bob")
    decided = decide(pure.state, _command(approval), now=pure.now - 9 * 86_400_000)
    assert decided.refusal is not None
    assert (decided.refusal.code, teller.pure is pure) == ("expired", True)


def question() -> tuple[Teller, PureSession, ApprovalId]:
    teller = Teller()
    teller.tell(
        ["submit x", "go", """calls 'ask_person {"question":"which?"}' "delete b=1" """, "go"]
    )
    return teller, teller.pure, next(iter(teller.pure.state.approvals))


def test_the_same_answer_id_with_other_words_is_another_answer() -> None:
    """P2: the words are the answer to a question; what is said beside an option is not."""
    _, pure, approval = question()
    first = pure.answer(approval, "answer", "alice", reason="blue", answer_id="x").decided[-1]
    assert isinstance(first.outcome, Answered)
    assert not first.outcome.again
    again = pure.answer(approval, "answer", "alice", reason="blue", answer_id="x").decided[-1]
    assert (again.refusal, again.outcome) == (
        None,
        msgspec.structs.replace(first.outcome, again=True),
    )
    other = (
        pure.answer(approval, "answer", "alice", reason="red", answer_id="x").decided[-1].refusal
    )
    assert other is not None
    assert other.code == "already_answered"
    second = next(name for name in pure.state.approvals if name != approval)
    for reason in ("because", "on second thought"):
        decided = pure.answer(second, "deny", "alice", reason=reason, answer_id="y").decided[-1]
        assert isinstance(decided.outcome, Answered)
    assert [event.reason for event in pure.events() if isinstance(event, ApprovalAnswered)] == [
        "blue",
        "because",
    ]


@pytest.mark.parametrize("option", ["approve_once", "deny"])
def test_a_repeated_answer_reports_the_first_one_after_the_turn_is_long_over(
    option: str,
) -> None:
    """P2: idempotent for good, and only for the same person's same option."""
    teller, pure, approval = asked()
    pure.answer(approval, option, "alice", answer_id="x")
    teller.tell(["go", "says done", "go"])
    assert not pure.state.turns
    before = len(pure.records)
    outcome = pure.answer(approval, option, "alice", answer_id="x").decided[-1].outcome
    assert isinstance(outcome, Answered)
    assert (outcome.option, outcome.again, outcome.waiting) == (option, True, False)
    for changed in ({"by": "bob"}, {"option": "approve_session"}, {"answer_id": "y"}):
        refusal = (
            pure.do(msgspec.structs.replace(_command(approval), **{"option": option, **changed}))
            .decided[-1]
            .refusal
        )
        assert refusal is not None
        assert refusal.code == "already_answered"
    assert len(pure.records) == before


@pytest.mark.parametrize(
    "told", [["go", "says done", "go"], ["crash", "recover", "go", "says done", "go"]]
)
def test_a_question_that_is_over_takes_no_other_words_under_the_same_answer_id(
    told: list[str],
) -> None:
    """
    P2: decided under the lock, so that two answers at once with one id are never both told as
    taken.
    """
    teller = Teller()
    teller.tell(["submit x", "go", """calls 'ask_person {"question":"which?"}'""", "go"])
    pure, approval = teller.pure, next(iter(teller.pure.state.approvals))
    pure.answer(approval, "answer", "alice", reason="blue", answer_id="x")
    teller.tell(told)
    assert not pure.state.turns
    before = len(pure.records)
    again = pure.answer(approval, "answer", "alice", reason="blue", answer_id="x").decided[-1]
    assert isinstance(again.outcome, Answered)
    assert (again.refusal, again.outcome.again) == (None, True)
    for reason in ("red", "Blue", "", None):
        refusal = (
            pure.answer(approval, "answer", "alice", reason=reason, answer_id="x")
            .decided[-1]
            .refusal
        )
        assert refusal is not None
        assert refusal.code == "already_answered"
    assert len(pure.records) == before


def test_an_edit_that_is_over_takes_no_other_arguments_under_the_same_answer_id() -> None:
    """P2: as with words."""
    teller, pure, approval = asked()
    pure.answer(approval, "edit", "alice", arguments='{"b":2}', answer_id="x")
    teller.tell(["go"])
    assert approval not in pure.state.approvals
    again = pure.answer(approval, "edit", "alice", arguments='{"b":2}', answer_id="x").decided[-1]
    assert (again.refusal, again.outcome.again) == (None, True)
    refusal = (
        pure.answer(approval, "edit", "alice", arguments='{"b":3}', answer_id="x")
        .decided[-1]
        .refusal
    )
    assert refusal is not None
    assert refusal.code == "already_answered"


def test_a_prompt_whose_call_is_not_there_is_unknown() -> None:
    """Fails closed, should state ever disagree with itself: nothing is recorded, nothing runs."""
    _, pure, approval = asked()
    turn, _, seq = pure.state.approvals[approval]
    open_turn = pure.state.turns[turn]
    bare = msgspec.structs.replace(open_turn.calls[0], approval=None)
    without = msgspec.structs.replace(
        pure.state, turns={turn: msgspec.structs.replace(open_turn, calls=(bare,))}
    )
    for state in (
        msgspec.structs.replace(pure.state, approvals={approval: (turn, "c-none", seq)}),
        without,
    ):
        decided = answer_approval(state, _command(approval), pure.now)
        assert decided.events == ()
        assert decided.refusal is not None
        assert decided.refusal.code == "unknown"
