"""The plan of a compaction, and what a summary must not lose."""

from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.session.authority.context import Audience
from holdfast.session.events import Compacted
from holdfast.session.evolve.fold import evolve
from holdfast.session.persistent import PersistentList
from holdfast.session.state import SessionState, View, ViewEntry
from holdfast.session.view.build import shared_messages
from holdfast.session.view.compaction import (
    CompactionRules,
    Plan,
    extract,
    names_in,
    plan_shared,
    required_facts,
    with_facts,
)
from holdfast.session.view.messages import (
    AssistantMessage,
    CallPart,
    Message,
    NoteMessage,
    ResultMessage,
    UserMessage,
)
from holdfast.session.view.sizes import chars


def state_with(
    *entries: list[Message], summary: str | None = None, compactions: int = 0
) -> SessionState:
    trail: PersistentList[ViewEntry] = PersistentList()
    for number, messages in enumerate(entries, 1):
        trail = trail.add(ViewEntry(TurnId(f"t{number}"), tuple(messages)))
    size = len(summary or "") + sum(chars(messages) for messages in entries)
    view = View(summary, trail, compactions, chars=size)
    return SessionState(
        session=SessionId("local/a"), instance=InstanceId("i"), view=view, compactions=compactions
    )


def turn(text: str, size: int = 400) -> list[Message]:
    call = CallPart(CallId(f"c-{text}"), "look", "{}")
    return [
        UserMessage(text, "alice"),
        AssistantMessage("", (call,)),
        ResultMessage(call.call, "look", "ok", "x" * size),
        AssistantMessage(f"did {text}"),
    ]


def made(*messages: Message, earlier: str | None = None) -> Plan:
    return Plan(
        part="shared",
        count=1,
        earlier=earlier,
        messages=messages,
        size_before=1000,
        tokens_per_char=0.25,
        compactions=0,
    )


def test_only_whole_turns_are_summarised_so_no_call_is_parted_from_its_result() -> None:
    state = state_with(*(turn(f"r{n}") for n in range(10)))
    plan = plan_shared(state, goal=0, keep_turns=4)
    assert plan is not None
    assert plan.count == 6
    calls = {
        call.call
        for message in plan.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    assert calls == {
        message.call for message in plan.messages if isinstance(message, ResultMessage)
    }


def test_no_more_is_summarised_than_the_goal_asks_for() -> None:
    state = state_with(*(turn(f"r{n}", size=4000) for n in range(10)))
    plan = plan_shared(state, goal=6000, keep_turns=2)
    assert plan is not None
    assert plan.count == 5


def test_with_only_the_last_turns_there_is_nothing_to_plan() -> None:
    assert plan_shared(state_with(turn("a"), turn("b")), goal=0, keep_turns=4) is None


def test_a_second_summary_starts_from_the_first() -> None:
    state = state_with(*(turn(f"r{n}") for n in range(6)), summary="they greeted", compactions=1)
    plan = plan_shared(state, goal=0, keep_turns=4)
    assert plan is not None
    assert (plan.earlier, plan.compactions) == ("they greeted", 1)


def test_names_of_files_addresses_tickets_and_ids_are_facts() -> None:
    text = "Look at src/app/main.py and notes.txt, https://example.org/x?y=1, OPS-17, #42, 3f2a9c1d and/or e.g. the rest."
    assert names_in(text) == (
        "src/app/main.py",
        "notes.txt",
        "https://example.org/x?y=1",
        "OPS-17",
        "#42",
        "3f2a9c1d",
    )


def test_the_summary_must_name_calls_in_doubt_and_failed_requests() -> None:
    call = CallPart(CallId("c-1"), "pay", '{"to": "bob"}')
    plan = made(
        UserMessage("pay bob", "alice"),
        AssistantMessage("", (call,)),
        ResultMessage(call.call, "pay", "in_doubt", "unknown"),
        NoteMessage("This request failed: overflow"),
    )
    assert required_facts(plan) == ("pay c-1: in_doubt", "pay bob (failed: overflow)")


def test_a_summary_that_leaves_a_fact_out_gets_it_as_a_list_and_the_next_one_keeps_it() -> None:
    summary = with_facts("They spoke of main.py.", ("main.py", "OPS-17"))
    assert summary == "They spoke of main.py.\n\nKept word for word:\n- OPS-17"
    assert "OPS-17" in required_facts(made(UserMessage("hi", None), earlier=summary))


def test_facts_are_bounded_and_the_newest_stay() -> None:
    plan = made(*(UserMessage(f"see file{n}.py", None) for n in range(500)))
    facts = required_facts(plan)
    assert (len(facts), facts[-1]) == (64, "file499.py")


def test_without_a_model_the_first_words_of_each_turn_are_kept_within_bounds() -> None:
    plan = made(*turn("tidy up"), earlier="alice asked: hello")
    assert (
        extract(plan, chars_max=1000)
        == "alice asked: hello\nalice asked: tidy up\nanswered:  [called look]\nanswered: did tidy up"
    )
    short = extract(
        made(*(UserMessage(f"request {n}", "alice") for n in range(100))), chars_max=100
    )
    assert short.startswith("(")
    assert short.endswith("alice asked: request 99")
    assert len(short) < 160


def test_the_threshold_is_the_setting_else_three_quarters_of_the_window_else_a_size() -> None:
    assert CompactionRules(at_tokens=10).threshold(200_000) == 10
    assert CompactionRules().threshold(200_000) == 150_000
    assert CompactionRules().threshold(None) == 100_000


def test_a_summary_is_for_the_narrowest_reader_set_of_what_it_took_in() -> None:
    """
    A team's turn loses a summary that holds a private turn, rather than see it; a person's own turn
    has it.
    """
    trail: PersistentList[ViewEntry] = PersistentList()
    for number, audience in enumerate((Audience.TEAM, Audience.PERSONAL, Audience.PUBLIC), 1):
        trail = trail.add(
            ViewEntry(TurnId(f"t{number}"), (NoteMessage(f"said {number}"),), audience)
        )
    state = SessionState(
        session=SessionId("local/a"), instance=InstanceId("i"), view=View(None, trail)
    )
    event = Compacted(
        summary="all of it", turns=2, tokens_before=9, tokens_after=3, trigger="manual"
    )
    view = evolve(state, event, seq=1, at=1).view
    seen = {
        audience: " ".join(each.text for each in shared_messages(view, audience))
        for audience in Audience
    }
    assert view.summary_audience is Audience.PERSONAL
    assert [
        "all of it" in seen[each] for each in (Audience.PUBLIC, Audience.TEAM, Audience.PERSONAL)
    ] == [False, False, True]
    assert all("said 3" in text for text in seen.values())
