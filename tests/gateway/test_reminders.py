"""A server fires reminders by itself: what came due while it was down, what is set while it runs, by one timer, and shows them to whom they belong."""

import time

from tests.cli.test_reminders import iso_of, set_earlier
from tests.gateway.conftest import Gateway

SOON_SECONDS = 4  # from setting it to its time: usually enough to be set before it is due; if not, it is fired all the same


def test_what_came_due_while_nothing_ran_is_fired_at_the_start_and_once(gateway: Gateway) -> None:
    set_earlier(gateway.home, "what time is it?", seconds_ago=4 * 3600, every="1h")
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_ended", outcome="completed")
        accepted = [data for name, _, data in stream.heard if name == "record" and data["type"] == "input_accepted"]
    assert [(each["body"]["kind"], "missed too" in each["body"]["text"]) for each in accepted] == [("reminder", True)]


def test_a_reminder_that_is_set_while_it_serves_is_fired_in_time(gateway: Gateway) -> None:
    """The timer waits for one an hour away, and is set anew by a notice of another process; the rescan would be half a minute late."""
    set_earlier(gateway.home, "much later", seconds_ago=60, session="ops/later", every="1h")
    gateway.run("send", "ops/api", "hello", "--as", "alice")
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    made = set_earlier(gateway.home, "what time is it?", seconds_ago=0, at=iso_of(time.time() + SOON_SECONDS))
    with gateway.events(client, "ops/api") as stream:
        fired = stream.until_record("reminder_fired", reminder=made.id)
        stream.until_record("turn_ended", turn=fired["body"]["turn"], outcome="completed")
    assert (fired["body"].get("missed", 0), fired["body"].get("next_at")) == (0, None)


def test_a_reminder_that_may_ask_prompts_its_creator_over_http(gateway: Gateway) -> None:
    set_earlier(gateway.home, "run: echo once >> ran.txt", seconds_ago=90, every="60s", may_prompt=True, workspace=gateway.work)
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    prompt = gateway.waiting(client)
    assert (prompt["channel"], prompt["may_answer"]) == ("reminder", ["alice"])
    stranger = gateway.client(gateway.token("bob"))
    assert stranger.get("/v1/approvals").json()["approvals"] == []


def test_a_sessions_reminders_are_shown_to_tokens_of_their_circle_alone(gateway: Gateway) -> None:
    """The text of a person's own reminder reaches no token that speaks in a wider circle."""
    set_earlier(gateway.home, "CANARY", seconds_ago=10, every="1h")
    gateway.run("send", "ops/api", "what time is it?", "--as", "alice")
    gateway.start()
    own = gateway.client(gateway.token("alice")).get("/v1/sessions/ops/api").json()
    assert [each["text"] for each in own["reminders"]] == ["CANARY"]
    for person, audience in (("alice", "team:ops"), ("bob", "personal"), ("alice", "public")):
        found = gateway.client(gateway.token(person, audience=audience)).get("/v1/sessions/ops/api")
        assert "CANARY" not in found.text
