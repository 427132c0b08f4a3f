"""`resume`: whatever a crash left, somebody finds the way on."""

import signal
from pathlib import Path

from tests.acceptance.cli.conftest import TURN_FIELDS, Cli

HELD = ("--app", "held:held")


def test_nothing_owed_is_a_success(cli: Cli) -> None:
    assert cli("--json", "resume") == (0, "", "")
    assert not cli.home.exists()
    cli.json("send", "notes", "hello")
    cli.ask()
    ran = cli("--json", "resume")
    assert (ran.code, ran.out) == (0, "")


def test_a_turn_whose_process_was_killed_in_a_model_call_goes_on(cli: Cli) -> None:
    asked, words = cli.hold_the_model()
    cli.json(*HELD, "send", "notes", "go", "--no-wait")
    driving = cli.start(*HELD, "resume", "notes")
    asked.hear()
    driving.send_signal(signal.SIGKILL)
    driving.wait()
    assert cli.json("sessions", "show", "notes")["owes"] != []
    words.say("slept well")
    ran = cli("--json", *HELD, "resume")
    assert (ran.code, set(ran.lines[0])) == (0, TURN_FIELDS)
    assert [(each["session"], each["outcome"], each["reply"]) for each in ran.lines] == [
        ("local/notes", "completed", "slept well")
    ]
    assert cli("--json", "resume") == (0, "", "")


def test_a_stopped_process_leaves_nothing_half_done(cli: Cli) -> None:
    asked, words = cli.hold_the_model()
    for number, how in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        session = f"notes{number}"
        cli.json(*HELD, "send", session, "go", "--no-wait")
        driving = cli.start("--json", *HELD, "resume", session)
        asked.hear()
        driving.send_signal(how)
        out, err = driving.communicate(timeout=60)
        assert (driving.returncode, out) == (130, "")
        assert "holdfast resume" in err
        assert "Traceback" not in err
        words.say("slept well")
        assert cli.json(*HELD, "resume", session)["reply"] == "slept well"
        asked.hear()


def test_a_turn_without_its_model_stays_queued_until_another_model_is_named(cli: Cli) -> None:
    model = cli.script({"say": "never"})
    cli.json("send", "notes", "what time is it?", "--model", model, "--no-wait")
    Path(model.removeprefix("script:")).unlink()
    one = cli("--json", "resume", "notes")
    assert (one.code, one.json["session"], one.json["error"]["code"]) == (
        5,
        "local/notes",
        "cannot_drive",
    )
    taken = cli("--json", "send", "notes", "and then?", "--as", "bob")
    assert (
        taken.code,
        taken.json["error"]["code"],
        cli.json("sessions", "show", "notes")["queued"],
    ) == (5, "cannot_drive", 2)
    assert taken.json["error"]["message"].startswith(
        "the message is kept as t2, but this process can't run"
    )
    assert "--model" in one.json["error"]["hint"]
    every = cli("--json", "resume")
    assert (every.code, [each["error"]["code"] for each in every.lines]) == (5, ["cannot_drive"])
    ran = cli("--json", "resume", "notes", "--model", "demo")
    assert (ran.code, ran.json["outcome"]) == (0, "completed")
    assert ran.json["reply"].startswith("now: ")


def test_another_model_for_all_is_for_those_whose_own_is_gone(cli: Cli) -> None:
    gone, here = cli.script({"say": "never"}), cli.script({"say": "my own words"})
    for session, model in (("a/gone", gone), ("b/here", here)):
        cli.json("send", session, "what time is it?", "--model", model, "--no-wait")
    Path(gone.removeprefix("script:")).unlink()
    first, second = cli("--json", "resume", "--model", "demo").lines
    assert first["reply"].startswith("now: ")
    assert second["reply"] == "my own words"
    assert cli.json("sessions", "show", "b/here")["model"] == here


def test_resume_exits_with_the_gravest_code_of_its_sessions(cli: Cli) -> None:
    gone = cli.script({"say": "never"})
    fails = cli.script({"expect": {"last_tool_result_contains": "never"}, "say": "no"})
    asks = cli.script({"call": [{"tool": "shell", "args": {"command": "true"}}]})
    for session, model in (("a/done", "demo"), ("b/asks", asks), ("c/fails", fails)):
        cli.json("send", session, "hello", "--model", model, "--no-wait")
    ran = cli("--json", "resume")
    assert (ran.code, [each["outcome"] for each in ran.lines]) == (
        1,
        ["completed", "waiting", "failed"],
    )
    cli.json("send", "d/gone", "hello", "--model", gone, "--no-wait")
    Path(gone.removeprefix("script:")).unlink()
    cli.json("send", "e/done", "hello", "--no-wait")
    ran = cli("--json", "resume")
    assert (ran.code, [each["session"] for each in ran.lines]) == (5, ["d/gone", "e/done"])


def test_resume_reports_the_gravest_of_the_turns_that_it_drove(cli: Cli) -> None:
    """Two people's messages wait: the first one's turn ends, the second one's asks, then fails."""
    call = {"call": [{"tool": "shell", "args": {"command": "true"}}]}
    fails = {"expect": {"last_tool_result_contains": "never"}, "say": "no"}
    model = cli.script({"say": "first"}, call, {"say": "third"}, fails, {"say": "fifth"})
    for who in ("alice", "bob"):
        cli.json("send", "ops/api", "go", "--as", who, "--model", model, "--no-wait")
    ran = cli("--json", "resume")
    assert (ran.code, ran.json["turn"], ran.json["outcome"]) == (3, "t2", "waiting")
    assert len(ran.json["approvals"]) == 1
    for who in ("carol", "dora", "erin"):
        cli.json("send", "ops/api", "go", "--as", who, "--no-wait")
    ran = cli("--json", "resume", "ops/api")
    assert (ran.code, ran.json["turn"], ran.json["outcome"]) == (1, "t4", "failed")


def test_a_parked_session_exits_3(cli: Cli) -> None:
    approval = cli.ask()
    ran = cli("--json", "resume", "ops/api")
    assert (ran.code, ran.json["outcome"], [each["id"] for each in ran.json["approvals"]]) == (
        3,
        "waiting",
        [approval["id"]],
    )


def test_two_processes_resume_at_once_and_the_tool_runs_once(cli: Cli) -> None:
    cli.answer(cli.ask(), "approve_once", "--no-wait")
    both = [cli.start("--json", "resume") for _ in range(3)]
    assert [(process.communicate(timeout=60), process.returncode)[1] for process in both] == [
        0,
        0,
        0,
    ]
    assert (cli.ran(), cli.json("sessions", "show", "ops/api")["phase"]) == (1, "idle")


def test_the_first_message_to_an_agent_whose_tool_is_not_here_is_said_to_be_kept(cli: Cli) -> None:
    """Nothing is begun for it: whoever has the tool goes on from the start."""
    cli.settings('[agents.ops]\nmodel = "demo"\ntools = ["bot:missing"]\n')
    taken = cli("--json", "send", "ops/a", "hello")
    assert (taken.code, taken.json["error"]["code"]) == (5, "cannot_drive")
    assert taken.json["error"]["message"].startswith(
        "the message is kept as t1, but this process can't run ops/a: tool 'bot:missing'"
    )
    assert cli.json("sessions", "show", "ops/a")["phase"] == "queued"
