"""
`approvals answer`: taken once, by the right person, for exactly what was shown; everything else is
refused and runs nothing.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.acceptance.cli.conftest import COMMAND, TURN_FIELDS, Cli


def test_the_answer_runs_the_call_and_drives_the_turn_to_its_end(cli: Cli) -> None:
    ran = cli.answer(cli.ask())
    assert (ran.code, set(ran.json)) == (0, TURN_FIELDS | {"result", "reason"})
    assert (ran.json["result"], ran.json["reason"], ran.json["outcome"], cli.ran()) == (
        "started",
        None,
        "completed",
        1,
    )


def test_people_read_the_reply(cli: Cli) -> None:
    approval = cli.ask("echo hello")
    ran = cli("approvals", "answer", approval["id"], "approve_once", "--as", "alice")
    assert (ran.code, ran.err) == (0, "")
    assert "hello" in ran.out


def test_a_denial_runs_nothing_and_the_turn_goes_on(cli: Cli) -> None:
    ran = cli.answer(cli.ask(), "deny", "--reason", "not today")
    assert (ran.code, ran.json["outcome"], cli.ran()) == (0, "completed", 0)


@pytest.mark.parametrize(
    ("option", "more", "who", "code", "reason"),
    [
        ("approve_once", (), "bob", 6, "wrong_approver"),
        ("approve_once", (), "Alice", 6, "wrong_approver"),
        ("approve_twice", (), "alice", 6, "option_unavailable"),
        ("yes", (), "alice", 6, "option_unavailable"),
        ("approve_once", ("--digest", "0" * 64), "alice", 6, "plan_changed"),
        ("edit", (), "alice", 6, "option_unavailable"),
        ("edit", ("--arguments", '{"command": 7}'), "alice", 6, "malformed"),
        ("edit", ("--arguments", '{"command": 7}'), "bob", 6, "wrong_approver"),
        ("approve_once", ("--arguments", '{"command": "ls"}'), "alice", 6, "option_unavailable"),
    ],
)
def test_a_refused_answer_says_why_and_the_prompt_stands(
    cli: Cli, option: str, more: tuple[str, ...], who: str, code: int, reason: str
) -> None:
    approval = cli.ask()
    ran = cli.answer(approval, option, *more, who=who)
    assert (ran.code, ran.json["result"], ran.json["reason"], ran.json["error"]["code"]) == (
        code,
        "failed",
        reason,
        reason,
    )
    assert (ran.json["session"], ran.json["turn"], ran.json["outcome"]) == (
        "ops/api",
        "t1",
        "waiting",
    )
    assert cli.ran() == 0
    assert [
        each["body"]["by"]
        for each in cli("--json", "sessions", "export", "ops/api").lines
        if each["type"] == "answer_refused"
    ] == ([who] if reason == "wrong_approver" else [])
    assert cli.answer(approval, "approve_once", "--digest", approval["digest"]).code == 0
    assert cli.ran() == 1
    late = cli.answer(approval, "edit", "--arguments", '{"command": 7}')
    assert (late.code, late.json["reason"]) == (6, "already_answered")


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', "{" * 200]
)
def test_arguments_are_read_strictly(cli: Cli, text: str) -> None:
    ran = cli("--json", "approvals", "answer", "a-x", "edit", "--arguments", text)
    assert (ran.code, ran.json["error"]["code"]) == (2, "malformed")


def test_a_unique_beginning_of_an_id_names_the_prompt(cli: Cli) -> None:
    approval = cli.ask()
    assert cli.json("approvals", "show", approval["id"][:8])["id"] == approval["id"]
    ran = cli.answer({"id": approval["id"][:8]})
    assert (ran.code, ran.json["result"], cli.ran()) == (0, "started", 1)


def test_a_key_answers_as_the_option_of_that_key_does(cli: Cli) -> None:
    """Deny is `d` on the command line too, and the keys do not depend on the prompt."""
    assert "  d  deny" in cli("send", "ops/api", "run: echo hello", "--as", "alice").out
    ran = cli.answer(cli.ask(), "d")
    assert (ran.code, ran.json["outcome"], cli.ran()) == (0, "completed", 0)


def test_text_that_begins_no_id_or_several_names_nothing(cli: Cli) -> None:
    approval = cli.ask()
    for part, reason in (
        ("a-", "ambiguous"),
        ("", "ambiguous"),
        (approval["id"].upper(), "unknown"),
        ("a-" + "x" * 26, "unknown"),
    ):
        ran = cli.answer({"id": part})
        assert (ran.code, ran.json["result"], ran.json["reason"]) == (6, "failed", reason)
        assert (ran.json["session"], ran.json["turn"]) == (None, None)
    assert cli.ran() == 0


def test_without_a_home_there_is_nothing_to_answer_and_none_is_made(cli: Cli) -> None:
    ran = cli.answer({"id": "a-" + "x" * 26})
    assert (ran.code, ran.json["reason"]) == (6, "unknown")
    assert not cli.home.exists()


def test_the_same_answer_again_is_the_same_answer_and_another_is_refused(cli: Cli) -> None:
    approval = cli.ask()
    first = cli.answer(approval, "approve_once", "--answer-id", "mine")
    again = cli.answer(approval, "approve_once", "--answer-id", "mine")
    assert (first.code, again.code, again.json["result"], again.json["outcome"]) == (
        0,
        0,
        "started",
        "completed",
    )
    changed = cli.answer(approval, "deny", "--answer-id", "mine")
    other = cli.answer(approval, "approve_once", "--answer-id", "other")
    assert [(each.code, each.json["reason"]) for each in (changed, other)] == [
        (6, "already_answered")
    ] * 2
    assert cli.ran() == 1


def test_twenty_answers_at_once_run_it_once(cli: Cli) -> None:
    approval = cli.ask()
    words = ("--json", "approvals", "answer", approval["id"])
    started = [
        cli.start(*words, "approve_once" if number % 2 else "deny", "--as", "alice")
        for number in range(20)
    ]
    answers = [json.loads(process.communicate()[0]) for process in started]
    codes = [process.returncode for process in started]
    taken = [answer for answer in answers if answer["result"] != "failed"]
    assert len(taken) == 1
    assert {answer["reason"] for answer in answers if answer["result"] == "failed"} == {
        "already_answered"
    }
    assert sorted(codes) == [0] + [6] * 19
    decided = cli.json("approvals", "show", approval["id"])["option"]
    assert cli.ran() == (1 if decided == "approve_once" else 0)


def test_siblings_wait_for_each_other(cli: Cli) -> None:
    calls = [
        {"tool": "shell", "args": {"command": f"echo {name} >> ran.txt"}} for name in ("one", "two")
    ]
    model = cli.script({"call": calls}, {"say": "both done"})
    turn = cli.json("send", "ops/api", "go", "--model", model, "--as", "alice")
    first, second = turn["approvals"]
    deferred = cli.answer(first)
    assert (deferred.code, deferred.json["result"], deferred.json["outcome"], cli.ran()) == (
        3,
        "deferred",
        "waiting",
        0,
    )
    done = cli.answer(second)
    assert (done.code, done.json["result"], done.json["reply"], cli.ran()) == (
        0,
        "started",
        "both done",
        2,
    )


def test_edited_arguments_are_shown_again(cli: Cli) -> None:
    approval = cli.ask()
    edited = cli.answer(approval, "edit", "--arguments", '{"command": "echo edited >> ran.txt"}')
    assert (edited.code, edited.json["outcome"], cli.ran()) == (3, "waiting", 0)
    (again,) = edited.json["approvals"]
    assert again["id"] != approval["id"]
    assert "echo edited" in again["display"]
    assert cli.answer(again).code == 0
    assert (cli.cwd / "ran.txt").read_text() == "edited\n"


def test_an_edit_runs_nothing_and_says_so_also_when_it_comes_again(cli: Cli) -> None:
    """
    P2: `started` is said of a call that began; an edit, and the sibling that is held by it, wait
    for what is shown again.
    """
    calls = [
        {"tool": "shell", "args": {"command": f"echo {name} >> ran.txt"}} for name in ("one", "two")
    ]
    turn = cli.json(
        "send",
        "ops/api",
        "go",
        "--model",
        cli.script({"call": calls}, {"say": "both done"}),
        "--as",
        "alice",
    )
    first, second = turn["approvals"]
    approve = (first, "approve_once", "--answer-id", "first")
    edit = (
        second,
        "edit",
        "--arguments",
        '{"command": "echo edited >> ran.txt"}',
        "--answer-id",
        "second",
    )
    told = [cli.answer(*words) for words in (approve, edit, edit, approve)]
    assert [(each.code, each.json["result"], each.json["outcome"]) for each in told] == [
        (3, "deferred", "waiting")
    ] * 4
    assert cli.ran() == 0
    assert cli.answer(told[1].json["approvals"][0]).json["reply"] == "both done"
    told = [cli.answer(*words) for words in (approve, edit)]
    assert [(each.code, each.json["result"], each.json["outcome"]) for each in told] == [
        (0, "started", "completed")
    ] * 2
    assert cli.ran() == 2


@pytest.mark.parametrize(
    ("stop", "reason", "outcome"),
    [
        (("send", "ops/api", "something else"), "superseded", "superseded"),
        (("sessions", "cancel", "ops/api"), "cancelled", "cancelled"),
    ],
)
def test_an_answer_whose_call_was_stopped_before_it_began_is_never_reported_as_started(
    cli: Cli, stop: tuple[str, ...], reason: str, outcome: str
) -> None:
    calls = [
        {"tool": "shell", "args": {"command": f"echo {name} >> ran.txt"}} for name in ("one", "two")
    ]
    turn = cli.json(
        "send",
        "ops/api",
        "go",
        "--model",
        cli.script({"call": calls}, {"say": "done"}),
        "--as",
        "alice",
    )
    assert (
        cli.answer(turn["approvals"][0], "approve_once", "--answer-id", "mine").json["result"]
        == "deferred"
    )
    assert cli(*stop, "--as", "alice").code == 0
    again = cli.answer(turn["approvals"][0], "approve_once", "--answer-id", "mine")
    assert (again.code, again.json["result"], again.json["reason"], again.json["outcome"]) == (
        6,
        "failed",
        reason,
        outcome,
    )
    assert cli.ran() == 0


def test_a_question_is_answered_in_words(cli: Cli) -> None:
    model = cli.script(
        {"call": [{"tool": "ask_person", "args": {"question": "Which region?"}}]},
        {"expect": {"last_tool_result_contains": "eu-1"}, "say": "fine"},
    )
    (asked,) = cli.json("send", "ops/api", "go", "--model", model, "--as", "alice")["approvals"]
    ran = cli.answer(asked, "answer", "--reason", "eu-1")
    assert (ran.code, ran.json["reply"]) == (0, "fine")


def test_recorded_without_waiting_and_driven_later(cli: Cli) -> None:
    recorded = cli.answer(cli.ask(), "approve_once", "--no-wait")
    assert (recorded.code, recorded.json["result"], recorded.json["outcome"], cli.ran()) == (
        0,
        "handed_on",
        "running",
        0,
    )
    assert cli.json("sessions", "show", "ops/api")["owes"] != []
    (driven,) = cli("--json", "resume").lines
    assert (driven["outcome"], cli.ran()) == ("completed", 1)


def test_a_tool_can_not_answer(cli: Cli) -> None:
    approval = cli.ask()
    ran = cli.answer(approval, env={"HOLDFAST_TOOL": "c-x"})
    assert (ran.code, ran.json["result"], ran.json["reason"]) == (6, "failed", "started_by_tool")
    assert cli.ran() == 0


def test_nor_can_a_process_that_a_tool_started_with_a_clean_environment(cli: Cli) -> None:
    approval = cli.ask()
    # The parent has the variable, the command itself has not.
    program = (
        "import os, subprocess, sys; own = {k: v for k, v in os.environ.items() if k != 'HOLDFAST_TOOL'}; "
        "sys.exit(subprocess.run(sys.argv[1:], env=own).returncode)"
    )
    words = [
        *COMMAND,
        "--json",
        "approvals",
        "answer",
        approval["id"],
        "approve_once",
        "--as",
        "alice",
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**cli.env, "HOLDFAST_TOOL": "c-x"},
        cwd=cli.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (6, "started_by_tool")
    assert cli.ran() == 0


def test_grants_are_not_revoked_by_a_tool(cli: Cli) -> None:
    ran = cli("--json", "grants", "revoke", "g-x", env={"HOLDFAST_TOOL": "c-x"})
    assert (ran.code, ran.json["error"]["code"]) == (6, "started_by_tool")


def test_killed_between_the_pause_and_the_answer_it_still_stands(cli: Cli) -> None:
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": "echo ran >> ran.txt"}}]}, {"say": "done"}
    )
    sender = cli.start("--json", "send", "ops/api", "go", "--as", "alice", "--model", model)
    assert sender.stdout is not None
    approval = json.loads(sender.stdout.readline())["approvals"][0]
    sender.kill()
    assert cli.json("approvals", "list")["approvals"] == [approval]
    ran = cli.answer(approval)
    assert (ran.code, ran.json["reply"], cli.ran()) == (0, "done", 1)


def test_killed_while_the_tool_ran_it_is_in_doubt_and_never_run_again(cli: Cli) -> None:
    os.mkfifo(cli.cwd / "gate")
    approval = cli.ask("echo ran >> ran.txt; echo here > gate; sleep 60")
    answering = cli.start(
        "--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice"
    )
    (cli.cwd / "gate").read_text()  # the tool is at it
    answering.send_signal(signal.SIGKILL)
    answering.wait()
    resumed = cli("--json", "resume")
    (driven,) = resumed.lines
    assert (driven["session"], driven["outcome"], cli.ran()) == ("ops/api", "completed", 1)
    assert "In doubt: shell was started and its outcome is unknown." in resumed.err, (
        "the person is told, as the model is (T2)"
    )
    assert "echo ran >> ran.txt; echo here > gate; sleep 60" in resumed.err
    (finished,) = [
        each
        for each in cli("--json", "sessions", "follow", "ops/api").lines
        if each["type"] == "call_finished"
    ]
    assert finished["body"]["outcome"] == "in_doubt"
    again = cli.answer(approval)
    assert (again.code, again.json["reason"]) == (6, "already_answered")
    assert cli.ran() == 1


def test_an_answer_to_a_deleted_session_reaches_nothing(cli: Cli) -> None:
    approval = cli.ask()
    assert cli("sessions", "delete", "ops/api", "--yes").code == 0
    cli.ask()
    late = cli.answer(approval)
    assert (late.code, late.json["reason"]) == (6, "unknown")
    assert cli.ran() == 0


def test_policy_that_was_tightened_meanwhile_holds(cli: Cli) -> None:
    """A5, P5; and a script that asks again with the same answer id is not told that it ran."""
    approval = cli.ask()
    cli.settings('[policy.personal]\nshell = "deny"\n')
    for _ in range(2):
        ran = cli.answer(approval, "approve_once", "--answer-id", "mine")
        assert (ran.code, ran.json["result"], ran.json["reason"], ran.json["outcome"]) == (
            6,
            "failed",
            "voided",
            "completed",
        )
        assert (
            ran.json["error"]["message"]
            == "nothing ran: shell is not allowed for the audience personal"
        )
    assert cli.ran() == 0


def test_a_workspace_that_is_not_here_is_waited_for_and_one_that_was_replaced_voids(
    cli: Cli,
) -> None:
    """
    Case 50, P1: whoever drives a turn on has its folder, or leaves it; another folder of that name
    is not what was approved.
    """
    folder, away = cli.cwd / "project", cli.cwd / "away"
    folder.mkdir()
    asked = ("send", "ops/api", "run: echo ran >> ran.txt", "--as", "alice")
    (first,) = cli.json(*asked, "--workspace", str(folder))["approvals"]
    folder.rename(away)
    taken = cli.answer(first)
    assert (taken.code, taken.json["result"], taken.json["error"]["code"]) == (
        0,
        "handed_on",
        "cannot_drive",
    )
    assert str(folder) in taken.json["error"]["message"]
    assert (cli("--json", "resume", "ops/api").code, (away / "ran.txt").exists()) == (5, False)
    away.rename(folder)
    assert cli("--json", "resume", "ops/api").json["outcome"] == "completed"
    assert (folder / "ran.txt").read_text() == "ran\n"
    (second,) = cli.json(*asked)["approvals"]
    folder.rename(away)
    folder.mkdir()
    voided = cli.answer(second)
    assert (voided.code, voided.json["reason"]) == (6, "voided")
    assert (
        voided.json["error"]["message"]
        == f"nothing ran: the workspace {folder} is not the folder any more that it was when this was asked for"
    )
    assert (list(folder.iterdir()), (away / "ran.txt").read_text()) == ([], "ran\n")
    assert cli.answer(cli.json(*asked)["approvals"][0]).code == 0, (
        "a later message means the folder of then"
    )
    assert (folder / "ran.txt").read_text() == "ran\n"
