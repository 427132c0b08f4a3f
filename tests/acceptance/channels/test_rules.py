"""The gateway's rules for chats, on every platform: who is heard, who reads, and what is shown."""

import time

import pytest

from tests.acceptance.channels.conftest import Stage
from tests.acceptance.gateway.conftest import until

pytestmark = pytest.mark.timeout(300)
# A person sees a prompt before its receipt is journalled. If it closes in between, its message is
# updated when the receipt comes, with these words.
LATE_UPDATE = "This prompt is closed."


def contexts(stage: Stage) -> dict[str, tuple[str, str, str]]:
    """By text: person, audience and boundary of each accepted message."""
    return {
        body["text"]: (
            body["context"]["requester"],
            body["context"]["audience"],
            body["context"]["boundary"],
        )
        for body in stage.bodies("input_accepted")
    }


def test_a_person_is_an_id_and_a_place_decides_who_reads(stage: Stage) -> None:
    fake = stage.start().fake
    fake.say(stage.mallory, "what time is it?", name="alice")
    fake.say(stage.mallory, "what time is it?", place=stage.team, name="alice")
    fake.forge(stage.alice, "what time is it, forged?", place=stage.team)
    fake.say(stage.alice, "nothing for you", place=stage.team, mention=False)
    fake.say(stage.alice, "what time is it here?", place=stage.team, name="Renamed")
    fake.say(stage.bob, "what time is it there?", place=stage.public)
    fake.say(stage.alice, "what time was it?", at=int(time.time()) - 3600)
    fake.say(stage.alice, "what time was it long ago?", at=int(time.time()) - 3 * 24 * 3600)
    fake.say(stage.bob, "what time is it now?")
    # Messages that wait in one conversation may become one turn, so "yes" comes after the others.
    until(lambda: len(stage.bodies("turn_ended")) >= 4, "four turns")
    fake.say(stage.alice, "yes")
    until(lambda: len(stage.bodies("turn_ended")) >= 5, "five turns")
    found = contexts(stage)
    late = next(text for text in found if "what time was it?" in text)
    assert late.startswith("(Sent at ")
    assert late.endswith("and read late.)\nwhat time was it?")
    assert found == {
        "what time is it here?": ("alice", "team", "team:ops"),
        "what time is it there?": ("bob", "public", "public"),
        late: ("alice", "personal", "personal:alice"),
        "yes": ("alice", "personal", "personal:alice"),
        "what time is it now?": ("bob", "personal", "personal:bob"),
    }
    until(lambda: len(fake.messages) >= 5, "five replies")
    assert sorted({each.place for each in fake.messages}) == sorted(
        {stage.team, stage.public, stage.alice, stage.bob}
    )
    # The thread of another audience than it began with is refused, with words for its sender.
    stage.gateway.stop()
    before = len(stage.bodies("input_accepted"))
    stage.start(teams={stage.public: "ops"})
    [public] = [each for each in fake.messages if each.place == stage.public]
    fake.say(stage.bob, "what time is it again?", place=stage.public, thread=public.thread)
    words = (
        fake.whispered(stage.bob) if fake.has_whispers else fake.message(stage.public, "other").text
    )
    assert "other readers" in words
    assert len(stage.bodies("input_accepted")) == before
    assert stage.gateway.run("channels", "list")["channels"][0]["people"] == ["alice", "bob"]
    assert stage.gateway.run("channels", "check")["ok"]


def test_long_things_are_split_or_linked_and_every_closing_is_shown(stage: Stage) -> None:
    fake = stage.start(page="https://holdfast.example.com").fake
    fake.say(stage.alice, f"run: echo {'x' * 15_000}")
    prompt = fake.message(stage.alice, "Approval needed")
    assert "https://holdfast.example.com" in prompt.text
    assert "That is not enough to judge" in prompt.text
    assert prompt.labels == ["Deny"]
    [asked] = stage.until_records("approval_requested", 1)
    # A forged approval on the message that did not show everything.
    fake.press(stage.alice, prompt, "", payload=f"{asked['approval']}:0:{asked['digest'][:16]}")
    assert "not known to show everything" in fake.whispered(stage.alice)
    fake.press(stage.alice, prompt, "", payload=f"{asked['approval']}:0:{'0' * 16}")
    assert "another plan" in fake.whispered(stage.alice, 2)
    fake.press(stage.alice, prompt, "Deny")
    fake.wait(lambda: prompt.edits, "the update")
    assert prompt.text.startswith("Denied by alice.")
    [answer] = stage.until_records("approval_answered", 1)
    assert answer["option"] == "deny"

    # A prompt that a later message replaces, and one whose request is cancelled elsewhere.
    stage.until_records("turn_ended", 1)
    fake.say(stage.alice, "run: echo second")
    second = fake.message(stage.alice, "echo second")
    fake.say(stage.alice, "run: echo third")
    fake.wait(lambda: second.edits and not second.buttons, "the update of the second")
    assert second.text.startswith(("Not run: another message was sent instead.", LATE_UPDATE))
    third = fake.message(stage.alice, "echo third")
    [session] = {record["body"]["context"]["session"] for record in stage.records("input_accepted")}
    stage.gateway.run("sessions", "cancel", session)
    fake.wait(lambda: third.edits and not third.buttons, "the update of the third")
    assert third.text.startswith(("Not run: the request was cancelled.", LATE_UPDATE))

    (stage.workspace("long.txt")).write_text("line of text\n" * 1_200)
    fake.say(stage.alice, "read long.txt")
    until(lambda: any(each.text.startswith("(1/") for each in fake.messages), "parts")
    parts = [each.text for each in fake.messages if each.text.startswith("(")]
    count = int(parts[0].partition("/")[2].partition(")")[0])
    until(lambda: sum(each.text.startswith("(") for each in fake.messages) == count, "all parts")
    parts = [each.text for each in fake.messages if each.text.startswith("(")]
    assert [text.partition("/")[0] for text in parts] == [f"({at}" for at in range(1, count + 1)]


def test_each_failure_of_a_send_is_waited_for_settled_or_named(stage: Stage) -> None:
    fake = stage.start().fake
    fake.faults = ["too_many"]
    fake.say(stage.alice, "what time is it?")
    fake.message(stage.alice, "")
    assert stage.until_records("delivery_postponed", 1)[0]["reason"]
    fake.faults = ["reset_after"]
    fake.say(stage.bob, "what time is it?")
    fake.message(stage.bob, "")
    until(
        lambda: len(stage.records("delivery_confirmed") + stage.records("delivery_failed")) == 2,
        "an end",
    )
    failed = [body["code"] for body in stage.bodies("delivery_failed")]
    assert failed == ([] if fake.can_find else ["in_doubt"])
    fake.faults = ["refused"]
    fake.say(stage.alice, "what time is it again?")
    stage.until_records("delivery_failed", len(failed) + 1)
    assert stage.bodies("delivery_failed")[-1]["code"] == "failed" or failed
    assert len(fake.messages) == 2
