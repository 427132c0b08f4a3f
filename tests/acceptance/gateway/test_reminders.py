"""
A server fires reminders by itself: what came due while it was down, what is set while it runs, by
one timer, and shows them to whom they belong.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.gateway.server.drive_scheduler import DriveScheduler
from holdfast.ids import SessionId
from holdfast.session.events import TurnEnded
from holdfast.testing.loop import in_loop
from tests.acceptance.cli.test_reminders import iso_of, set_earlier
from tests.acceptance.gateway.conftest import Gateway
from tests.acceptance.runtime.conftest import Stage, alice, seen

# from setting it to its time: usually enough to be set before it is due; if not, it is fired all
# the same
SOON_SECONDS = 4


@pytest.mark.about_files
def test_the_gateway_fires_an_overdue_reminder_once_at_its_start(gateway: Gateway) -> None:
    set_earlier(gateway.home, "what time is it?", seconds_ago=4 * 3600, every="1h")
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_ended", outcome="completed")
        accepted = [
            data
            for name, _, data in stream.heard
            if name == "record" and data["type"] == "input_accepted"
        ]
    assert [(each["body"]["kind"], "missed too" in each["body"]["text"]) for each in accepted] == [
        ("reminder", True)
    ]


@pytest.mark.about_files
def test_a_reminder_that_is_set_while_it_serves_is_fired_in_time(gateway: Gateway) -> None:
    """
    The timer waits for one an hour away, and is set anew by a notice of another process; the rescan
    would be half a minute late.
    """
    set_earlier(gateway.home, "much later", seconds_ago=60, session="ops/later", every="1h")
    gateway.run("send", "ops/api", "hello", "--as", "alice")
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    made = set_earlier(
        gateway.home, "what time is it?", seconds_ago=0, at=iso_of(time.time() + SOON_SECONDS)
    )
    with gateway.events(client, "ops/api") as stream:
        fired = stream.until_record("reminder_fired", reminder=made.id)
        stream.until_record("turn_ended", turn=fired["body"]["turn"], outcome="completed")
    assert (fired["body"].get("missed", 0), fired["body"].get("next_at")) == (0, None)


@pytest.mark.about_files
def test_a_reminder_that_may_ask_prompts_its_creator_over_http(gateway: Gateway) -> None:
    set_earlier(
        gateway.home,
        "run: echo once >> ran.txt",
        seconds_ago=90,
        every="60s",
        may_prompt=True,
        workspace=gateway.work,
    )
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    prompt = gateway.waiting(client)
    assert (prompt["channel"], prompt["may_answer"]) == ("reminder", ["alice"])
    stranger = gateway.client(gateway.token("bob"))
    assert stranger.get("/v1/approvals").json()["approvals"] == []


@pytest.mark.about_files
def test_a_sessions_reminders_are_shown_to_tokens_of_their_reader_set_alone(
    gateway: Gateway,
) -> None:
    """
    The text of a person's own reminder reaches no token that speaks in a wider reader set, also in a
    session that both take part in.
    """
    gateway.start()
    team = gateway.client(gateway.token("alice", audience="team:ops"))
    gateway.send(team, "ops/api", "what time is it?")
    with gateway.events(team, "ops/api") as stream:
        stream.until_record("turn_ended")
    set_earlier(gateway.home, "CANARY", seconds_ago=0, every="1h")
    own = gateway.client(gateway.token("alice")).get("/v1/sessions/ops/api").json()
    assert [each["text"] for each in own["reminders"]] == ["CANARY"]
    seen_by_team = team.get("/v1/sessions/ops/api")
    assert (
        seen_by_team.status_code,
        seen_by_team.json()["reminders"],
        "CANARY" in seen_by_team.text,
    ) == (200, [], False)
    with gateway.events(team, "ops/api") as stream:
        gateway.send(team, "ops/api", "what time is it?")
        stream.until_record("turn_ended", turn="t2")
        assert "CANARY" not in str(stream.heard)


@in_loop
async def test_one_timer_waits_for_the_earliest_and_is_set_anew_when_an_earlier_one_is_set(
    tmp_path: Path,
) -> None:
    """
    However many stand, a server at rest has the tasks it has with none; what another process sets
    is waited for at once, and a clock that jumps is noticed.
    """
    stage = Stage("files", tmp_path / "home")
    agent = stage.agent([{"say": "looked"}] * 3)
    async with stage.open(agent) as home, stage.open(agent) as other, asyncio.TaskGroup() as group:
        drives = DriveScheduler(home.service)
        running = group.create_task(drives.run())
        await until_true(lambda: drives.rescans > 0)
        idle = len(asyncio.all_tasks())
        for number in range(30):
            made = await other.remind(
                f"ops/s{number}", "look around", source=alice, every=f"{60 - number}m"
            )
            drives.wake(SessionId(f"ops/s{number}"))  # as the notice of another process does
            await until_true(lambda: drives.running == 0)
            assert drives.next_reminder == round(
                datetime.fromisoformat(made.next_at).timestamp() * 1000
            )
        assert len(asyncio.all_tasks()) == idle
        stage.clock.jump(32 * 60)  # two are due; nobody waited that long
        drives._sooner.set()  # or wait for the timer
        for number in (29, 28):
            await seen(home, f"ops/s{number}", TurnEnded, outcome="completed")
        await until_true(lambda: drives.running == 0)
        due = [each.session for each in await home.reminders() if each.fired]
        assert sorted(due) == ["ops/s28", "ops/s29"]
        running.cancel()


async def until_true(true: Callable[[], bool]) -> None:
    """The other tasks run on meanwhile; a bound, so that nothing hangs."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0)
