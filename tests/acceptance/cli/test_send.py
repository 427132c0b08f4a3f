"""`send`: every option, every outcome, every bad input, with its exit code."""

import json
import os
import pwd
import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import APPROVAL_FIELDS, TURN_FIELDS, Cli


def test_a_turn_is_driven_to_its_end(cli: Cli) -> None:
    ran = cli("send", "notes", "what time is it?")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("now: ")


def test_send_json_prints_the_promised_fields(cli: Cli) -> None:
    turn = cli.json("send", "notes", "hello")
    assert set(turn) == TURN_FIELDS
    assert (turn["session"], turn["turn"], turn["outcome"], turn["error"], turn["approvals"]) == (
        "local/notes",
        "t1",
        "completed",
        None,
        [],
    )


def test_a_call_that_needs_consent_pauses_the_turn_and_says_how_to_answer(cli: Cli) -> None:
    ran = cli("send", "ops/api", "run: echo hello", "--as", "alice")
    assert ran.code == 3
    assert "echo hello" in ran.out
    assert "alice" in ran.out


def test_the_command_that_answers_can_be_copied_as_it_is_shown(cli: Cli) -> None:
    """
    With the home and the person that this one was given; a command that leaves them out is told
    that there is no such prompt, or that it may not.
    """
    elsewhere = cli.cwd / "another home"
    ran = cli(
        "--home", str(elsewhere), "send", "ops/api", "run: echo ran >> ran.txt", "--as", "alice"
    )
    (typed,) = [line for line in ran.out.splitlines() if line.startswith("  $ ")]
    words = shlex.split(typed.removeprefix("  $ "))
    assert words[0] == "holdfast"
    assert (cli(*words[1:]).code, cli.ran()) == (0, 1)


def test_an_approval_has_the_promised_fields(cli: Cli) -> None:
    approval = cli.ask("echo ran")
    assert set(approval) >= APPROVAL_FIELDS
    assert (
        approval["state"],
        approval["requester"],
        approval["audience"],
        approval["boundary"],
    ) == (
        "requested",
        "alice",
        "personal",
        "personal:alice",
    )
    assert approval["options"] == [
        "approve_once",
        "approve_session",
        "approve_folder",
        "approve_everywhere",
        "edit",
        "deny",
    ]
    assert approval["may_answer"] == ["alice"]


def test_json_is_taken_after_the_command_too(cli: Cli) -> None:
    assert cli("send", "notes", "hello", "--json").json["outcome"] == "completed"
    assert cli("send", "--json", "notes", "hello").json["outcome"] == "completed"
    assert (
        cli("send", "notes", "--home", str(cli.cwd / "other"), "hello", "--json").json["turn"]
        == "t1"
    )


def test_text_may_come_from_stdin(cli: Cli) -> None:
    assert cli("send", "notes", "-", stdin="what time is it?").out.startswith("now: ")


def test_a_turn_that_fails_exits_1(cli: Cli) -> None:
    model = cli.script({"expect": {"last_tool_result_contains": "never"}, "say": "no"})
    ran = cli("--json", "send", "notes", "hello", "--model", model)
    assert (ran.code, ran.json["outcome"], ran.json["error"]["code"]) == (
        1,
        "failed",
        "script_expectation",
    )


def test_send_names_the_next_step_for_every_turn_without_a_reply(cli: Cli) -> None:
    cli.settings("[limits]\nturn_model_calls_max = 1\n")
    words = ("--json", "send", "notes", "what time is it?", "--as", "alice", "--dedup")
    bound = cli(*words, "one").json
    assert (bound["outcome"], bound["error"]["code"]) == ("failed", "turn_model_calls_max")
    assert (
        bound["error"]["hint"]
        == "send another message to go on, or raise turn_model_calls_max in [limits] of holdfast.toml"
    )
    asked = ("--json", "send", "notes", "run: true", "--as", "alice", "--dedup")
    cli(*asked, "two")
    cli(*asked, "three")
    cli("sessions", "cancel", "local/notes", "--as", "alice")
    ended = [cli(*asked, key).json for key in ("two", "three")]
    assert [each["outcome"] for each in ended] == ["superseded", "cancelled"]
    assert {each["error"]["hint"] for each in ended} == {
        "send the message again if it is still wanted"
    }


def test_without_waiting_the_message_is_taken_in_and_left(cli: Cli) -> None:
    turn = cli.json("send", "notes", "what time is it?", "--no-wait", "--dedup", "once")
    assert (turn["outcome"], turn["reply"]) == ("queued", None)
    assert (
        "`holdfast resume local/notes` drives it"
        in cli("send", "notes", "what time is it?", "--no-wait", "--dedup", "once").out
    )
    (driven,) = cli("--json", "resume").lines
    assert (driven["session"], driven["turn"], driven["outcome"]) == (
        "local/notes",
        "t1",
        "completed",
    )


def test_the_same_key_and_text_is_the_same_message(cli: Cli) -> None:
    first = cli.json("send", "notes", "what time is it?", "--dedup", "k1")
    again = cli.json("send", "notes", "what time is it?", "--dedup", "k1")
    assert (again["turn"], again["reply"], again["outcome"]) == (
        first["turn"],
        first["reply"],
        "completed",
    )
    assert cli.json("sessions", "show", "notes")["turns"] == 1
    other = cli("--json", "send", "notes", "something else", "--dedup", "k1")
    assert (other.code, other.json["error"]["code"]) == (6, "dedup_conflict")


def test_a_message_that_takes_the_place_of_a_prompt_closes_it(cli: Cli) -> None:
    approval = cli.ask()
    assert (
        cli.json("send", "ops/api", "what time is it?", "--as", "alice")["outcome"] == "completed"
    )
    late = cli.answer(approval)
    assert (late.code, late.json["result"], late.json["reason"], late.json["outcome"]) == (
        6,
        "failed",
        "superseded",
        "superseded",
    )
    assert cli.ran() == 0


def test_a_plain_yes_is_not_an_answer(cli: Cli) -> None:
    approval = cli.ask()
    ran = cli("--json", "send", "ops/api", "yes", "--as", "alice")
    assert (ran.code, ran.json["outcome"], ran.json["error"]["code"]) == (
        3,
        "waiting",
        "answer_word",
    )
    assert approval["id"] in ran.json["error"]["hint"]
    assert cli.ran() == 0
    assert cli.answer(approval).code == 0


def test_a_plain_yes_to_a_question_explains_how_to_answer_it(cli: Cli) -> None:
    (asked,) = cli.json("send", "notes", "ask me which region?", "--as", "alice")["approvals"]
    ran = cli("--json", "send", "notes", "yes", "--as", "alice")
    assert (ran.code, ran.json["error"]["code"]) == (3, "answer_word")
    assert (
        f"`holdfast approvals answer {asked['id']} answer --reason 'YOUR WORDS'`"
        in ran.json["error"]["hint"]
    )


@pytest.mark.parametrize("channel", ["webhook", "reminder", "none"])
def test_where_nobody_may_answer_nobody_is_asked(cli: Cli, channel: str) -> None:
    call = {"call": [{"tool": "shell", "args": {"command": "echo ran >> ran.txt"}}]}
    model = cli.script(
        call, {"expect": {"last_tool_result_contains": "approval_unattended"}, "say": "done"}
    )
    turn = cli.json(
        "send", "ops/api", "go", "--channel", channel, "--model", model, "--as", "alice"
    )
    assert (turn["outcome"], turn["approvals"]) == ("completed", [])
    assert cli.json("approvals", "list", "--all") == {"approvals": []}
    assert cli.ran() == 0
    (ended,) = [
        each["body"]
        for each in cli("--json", "sessions", "export", "ops/api").lines
        if each["type"] == "call_finished"
    ]
    assert (ended["outcome"], ended["code"]) == (
        "unattended",
        "approval_unattended",
    )  # case 31, also where there is no folder to run it in


def test_a_denied_tool_does_not_say_what_exists(cli: Cli) -> None:
    """A tool that is denied says so of everything alike: files, folders, and what is neither."""
    (cli.cwd / "there.txt").write_text("x")
    shells = [
        {"tool": "shell", "args": {"command": "true", "cwd": folder}}
        for folder in (".", "nowhere", "/", "/nowhere")
    ]
    reads = [{"tool": "read_file", "args": {"path": name}} for name in ("there.txt", "nowhere.txt")]
    model = cli.script({"call": [*shells, *reads]}, {"say": "done"})
    cli.json("send", "ops/api", "go", "--channel", "none", "--model", model, "--workspace", ".")
    ended = [
        each["body"]
        for each in cli("--json", "sessions", "export", "ops/api").lines
        if each["type"] == "call_finished"
    ]
    assert len(ended) == 6
    assert {(each["code"], each["text"]) for each in ended} == {
        (
            "approval_unattended",
            "Not run: shell needs an approval, and nobody is known to have asked for it.",
        ),
        ("denied_by_policy", "Not run: read_file is not allowed for the audience public."),
    }


def test_a_reminder_asks_whom_policy_names(cli: Cli) -> None:
    cli.settings('[policy.personal]\nshell = { ask = ["bob"] }\n')
    model = cli.script(
        {"call": [{"tool": "shell", "args": {"command": "echo ran >> ran.txt"}}]}, {"say": "done"}
    )
    turn = cli.json(
        "send", "ops/api", "go", "--channel", "reminder", "--model", model, "--as", "alice"
    )
    assert (turn["outcome"], turn["approvals"][0]["may_answer"]) == ("waiting", ["bob"])
    assert cli.answer(turn["approvals"][0], who="alice").json["reason"] == "wrong_approver"
    assert cli.answer(turn["approvals"][0], who="bob").code == 0
    assert cli.ran() == 1


def test_an_assertion_is_recorded_as_one(cli: Cli) -> None:
    cli.json("send", "notes", "hello", "--as", "alice")
    (accepted,) = [
        each
        for each in cli("--json", "sessions", "follow", "notes").lines
        if each["type"] == "input_accepted"
    ]
    assert accepted["body"]["context"]["requester"] == "alice"
    assert accepted["body"]["asserted_by"] == pwd.getpwuid(os.getuid()).pw_name


def test_settings_name_the_person_behind_a_login(cli: Cli) -> None:
    login = pwd.getpwuid(os.getuid()).pw_name
    cli.settings(f'[people.zoe]\nlocal = "{login}"\n')
    turn = cli.json("send", "ops/api", "run: echo hi")
    assert turn["approvals"][0]["requester"] == "zoe"


def test_a_workspace_is_remembered_for_the_person_who_gave_it(cli: Cli) -> None:
    elsewhere = cli.cwd / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "found.txt").write_text("here it is")
    cli.json("send", "ops/api", "hello", "--as", "alice", "--workspace", str(elsewhere))
    assert "here it is" in cli.json("send", "ops/api", "read found.txt", "--as", "alice")["reply"]
    assert "here it is" not in (
        cli.json("send", "ops/api", "read found.txt", "--as", "bob")["reply"] or ""
    )


def test_a_missing_workspace_is_not_used_and_no_other_is_guessed(cli: Cli) -> None:
    folder = cli.cwd / "project"
    folder.mkdir()
    assert (
        cli("send", "notes", "list files", "--workspace", str(folder)).out
        == "list_files: [empty]\n"
    )
    folder.rmdir()
    ran = cli("send", "notes", "list files")
    assert "has no workspace" in ran.out
    assert (
        ran.err
        == f"the workspace {folder} is gone, and this message has none; name one with --workspace\n"
    )


def test_a_session_keeps_its_model(cli: Cli) -> None:
    model = cli.script({"say": "one"}, {"say": "two"})
    assert cli.json("send", "notes", "a", "--model", model)["reply"] == "one"
    assert cli.json("send", "notes", "b")["reply"] == "two"
    assert cli.json("send", "notes", "c")["reply"] == "(end of script)"


def test_a_session_whose_agent_is_not_here_keeps_its_model_and_says_who_answers(cli: Cli) -> None:
    cli.settings("[agents.assistant]\n[agents.ops]\n")
    model = cli.script({"say": "one"}, {"say": "two"})
    cli.json("send", "notes", "first", "--agent", "ops", "--model", model)
    cli.settings("[agents.assistant]\n")
    ran = cli("--json", "send", "notes", "second")
    assert (ran.code, ran.json["reply"]) == (0, "two")
    assert (
        ran.err
        == "local/notes talks to the agent 'ops', which is not here: 'assistant' answers instead\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["send", "../etc", "hi"], 2, "malformed"),
        (["send", "Ops/API", "hi"], 2, "malformed"),
        (["send", "a/b/c", "hi"], 2, "malformed"),
        (["send", "", "hi"], 2, "malformed"),
        (["send", "x" * 65, "hi"], 2, "malformed"),
        (["send", "notes"], 2, "usage"),
        (["send", "notes", "hi", "--channel", "carrier-pigeon"], 2, "usage"),
        (["send", "notes", "hi", "--agent", "nobody"], 2, "unknown_agent"),
        (["send", "notes", "hi", "--workspace", "/nowhere/at/all"], 2, "no_workspace"),
        (["send", "notes", "hi", "--as", " "], 2, "malformed"),
        (["send", "notes", "hi", "--as", "ali\u200bce"], 2, "malformed"),
        (["send", "notes", "hi", "--as", "Zoe\u0308"], 2, "malformed"),
        (["send", "notes", "-"], 6, "too_large"),
        (["send", "notes", ""], 6, "malformed"),
        (["send", "notes", " \n"], 6, "malformed"),
        (["send", "notes", "hi", "--what"], 2, "usage"),
        (["sned", "notes", "hi"], 2, "usage"),
        (["--app", "nothing", "send", "notes", "hi"], 2, "bad_app"),
        (["--app", "nothing:here", "send", "notes", "hi"], 2, "bad_app"),
    ],
)  # fmt: skip
def test_bad_input_gets_a_clear_error_and_changes_nothing(
    cli: Cli, words: list[str], code: int, error: str
) -> None:
    too_long = "x" * (256 * 1024 + 1)
    ran = cli("--json", *words, stdin=too_long)
    assert (ran.code, ran.json["error"]["code"]) == (code, error), ran
    assert ran.json["error"]["message"]
    for_people = cli(*words, stdin=too_long)
    assert (for_people.code, for_people.out) == (code, "")
    assert for_people.err.startswith("error: ")
    assert [each["turns"] for each in cli.json("sessions", "list")["sessions"]] in ([], [0])


@pytest.mark.parametrize("model", ["no-such-model", "script:/nowhere.jsonl", "openai:gpt-5"])
def test_a_model_that_is_not_here_is_said_before_anything_is_taken_in(cli: Cli, model: str) -> None:
    env = {"OPENAI_API_KEY": ""}
    ran = cli("--json", "send", "notes", "hi", "--model", model, env=env)
    assert ran.code in {2, 5}, ran
    assert ran.json["error"]["hint"]
    shown = cli("--json", "sessions", "show", "notes")
    assert shown.code == 6 or shown.json["turns"] == 0


def test_an_argument_that_is_not_utf8_is_refused_whole(cli: Cli) -> None:
    ran = cli("--json", "send", "notes", "half a character: \udcff")
    assert (ran.code, ran.json["error"]["code"]) == (6, "malformed")


def test_settings_that_are_not_understood_stop_it_with_line_and_key(cli: Cli) -> None:
    cli.settings('[agents.ops]\nmodle = "demo"\n')
    ran = cli("--json", "send", "notes", "hi")
    assert (ran.code, ran.json["error"]["code"]) == (2, "settings")
    assert "line 2" in ran.json["error"]["message"]
    assert "'model'" in ran.json["error"]["message"]


def test_the_programs_own_agents_and_tools(cli: Cli) -> None:
    (cli.cwd / "bot.py").write_text(
        "import holdfast\n\n"
        "@holdfast.tool\n"
        "def restart_service(service: str) -> str:\n"
        '    """Restart one service."""\n'
        "    with open('restarted.txt', 'a') as file:\n"
        "        file.write(service + '\\n')\n"
        "    return f'{service} restarted'\n\n"
        "ops = holdfast.Agent('ops', model='demo', tools=[restart_service])\n"
    )
    app = ("--json", "--app", "bot:ops")
    asked = cli(*app, "send", "ops/api", "restart_service service=api", "--as", "alice")
    assert asked.code == 3, asked
    approval = asked.json["approvals"][0]
    # Without the program there is nobody to run it: recorded, and handed on.
    handed = cli("--json", "approvals", "answer", approval["id"], "approve_once", "--as", "alice")
    assert (handed.code, handed.json["result"]) == (0, "handed_on")
    assert not (cli.cwd / "restarted.txt").exists()
    without = cli("--json", "resume", "ops/api")
    assert (without.code, without.json["error"]["code"]) == (5, "cannot_drive")
    (driven,) = cli(*app, "resume").lines
    assert (driven["outcome"], (cli.cwd / "restarted.txt").read_text()) == ("completed", "api\n")


def test_an_app_that_is_not_an_agent_is_named(cli: Cli) -> None:
    (cli.cwd / "bad.py").write_text("ops = 1\nraise_later = None\n")
    (cli.cwd / "worse.py").write_text("raise RuntimeError('on import')\n")
    assert "not a holdfast.Agent" in cli("--app", "bad:ops", "send", "a", "b").err
    assert "no attribute" in cli("--app", "bad:opps", "send", "a", "b").err
    assert "RuntimeError: on import" in cli("--app", "worse:ops", "send", "a", "b").err


def test_two_processes_send_at_once_and_each_gets_its_own_turn(cli: Cli) -> None:
    cli.json("send", "notes", "hello")
    both = [
        cli.start("--json", "send", "notes", "what time is it?", "--as", who)
        for who in ("alice", "bob")
    ]
    turns = [json.loads(process.communicate()[0]) for process in both]
    assert [turn["outcome"] for turn in turns] == ["completed", "completed"]
    assert {turn["turn"] for turn in turns} == {"t2", "t3"}
    assert cli.json("verify")["sessions"][0]["verdict"] == "holds"


def test_a_first_message_of_two_processes_makes_one_home(cli: Cli) -> None:
    both = [
        cli.start("--json", "send", session, "hello") for session in ("a/one", "a/two", "a/one")
    ]
    assert [json.loads(process.communicate()[0])["outcome"] for process in both] == [
        "completed"
    ] * 3
    assert [each["session"] for each in cli.json("sessions", "list")["sessions"]] == [
        "a/one",
        "a/two",
    ]


def test_an_unreadable_home_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ran = cli("--json", "--home", str(tmp_path / "file"), "send", "notes", "hi")
    assert ran.code == 2
    assert "not a folder" in ran.json["error"]["message"]


@pytest.mark.parametrize("command", ["send", "resume", "answer"])
def test_a_wait_for_a_model_that_is_away_is_printed(cli: Cli, command: str) -> None:
    """The line says what happened, when the next try is, and how to leave or stop."""
    script = cli.cwd / "away.jsonl"
    call = (
        '{"call": [{"tool": "shell", "args": {"command": "true"}}]}\n'
        if command == "answer"
        else ""
    )
    script.write_text(call + '{"fail": "server"}\n{"fail": "rate_limit"}\n{"say": "at last"}\n')
    words = ("--model", f"script:{script}")
    if command == "send":
        ran = cli("--json", "send", "ops/api", "hello", *words)
    elif command == "resume":
        cli.json("send", "ops/api", "hello", *words, "--no-wait")
        ran = cli("--json", "resume", "ops/api")
    else:
        (asked,) = cli.json("send", "ops/api", "hello", *words)["approvals"]
        ran = cli("--json", "approvals", "answer", asked["id"], "approve_once")
    assert (ran.code, ran.json["reply"]) == (0, "at last")
    first, second = [each for each in ran.err.splitlines() if "did not answer" in each]
    at = r"The next try is at \d\d:\d\d:\d\d\."
    assert re.fullmatch(
        rf"The model did not answer: its server failed\. {at} Ctrl-C leaves: "
        "`holdfast resume ops/api` goes on, `holdfast sessions cancel ops/api` stops the turn\\.",
        first,
    )
    assert re.fullmatch(rf"The model did not answer: it takes no more requests now\. {at}", second)


@pytest.mark.parametrize("words", [("--model", "nope:x"), ("--agent", "nobody")])
def test_a_message_that_nobody_can_answer_leaves_no_session_behind(
    cli: Cli, words: tuple[str, str]
) -> None:
    refused = cli("--json", "send", "ops/api", "hello", *words)
    assert refused.code == 2
    assert cli.json("sessions", "list")["sessions"] == []
