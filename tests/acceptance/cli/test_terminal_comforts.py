"""Small things for people at a terminal: init, explain, prefixes, durations, transcripts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from tests.acceptance.cli.conftest import COMMAND, Cli

BOT = """
import holdfast


@holdfast.tool
def restart(service: str) -> str:
    \"\"\"Restart it.\"\"\"
    return service


ops = holdfast.Agent("ops", model="demo", tools=[restart])
"""


def test_init_makes_a_home_whose_settings_can_be_used_and_changes_no_file(cli: Cli) -> None:
    made = cli.json("init")
    assert made["home"] == str(cli.home)
    assert cli("config", "check").code == 0
    (cli.home / "holdfast.toml").write_text("[serve]\nport = 9000\n")
    again = cli("--json", "init")
    assert (again.code, again.json["error"]["code"]) == (6, "exists")
    assert "9000" in (cli.home / "holdfast.toml").read_text()
    named = cli("--json", "--home", str(cli.home), "init")
    assert f"holdfast --home {cli.home} config check" in named.json["error"]["hint"]


def test_explain_names_the_rule_its_line_the_verdict_and_who_is_asked(cli: Cli) -> None:
    cli.settings('[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n')
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    told = cli.json("config", "explain", "ops/api", "shell", '{"command": "ls"}', "--as", "alice")
    assert (told["verdict"], told["line"], told["may_answer"]) == ("ask", 2, ["bob"])
    assert told["rule"] == "[policy.personal], line 2"
    assert told["remember"] == "never"
    reads = cli.json("config", "explain", "ops/api", "now", "{}", "--as", "alice")
    assert (reads["verdict"], reads["line"]) == ("allow", None)
    assert cli("--json", "config", "explain", "ops/api", "nothing", "--as", "alice").code == 6
    assert cli.ran() == 0


def test_a_terminal_says_states_and_scopes_in_words(cli: Cli) -> None:
    """As the page does; programs get the names with --json."""
    cli.ask()
    assert "state       waits for a person" in cli("sessions", "show", "ops/api").out
    assert "waits for a person" in cli("sessions", "list").out
    told = cli("config", "explain", "ops/api", "shell", "--as", "alice").out
    furthest = "in this conversation, for a folder, or in all conversations of alice"
    assert f"remember  at most {furthest}; the prompt offers those that fit the call" in told


def test_a_terminal_says_in_words_how_a_prompt_ended(cli: Cli) -> None:
    approved = cli.ask("true")["id"]
    cli.json("approvals", "answer", approved, "approve_once", "--as", "alice")
    replaced = cli.ask("echo one")["id"]
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    listed = cli("approvals", "list", "--all").out
    assert "alice approved it once" in listed
    assert "not run: another message was sent" in listed
    assert "alice approved it once" in cli("approvals", "show", approved).out
    assert "Not run: another message was sent instead." in cli("approvals", "show", replaced).out


def test_a_question_that_nobody_answers_is_not_called_denied(cli: Cli) -> None:
    asked = cli("send", "ops/api", "ask me which region?", "--as", "alice").out
    assert "denied if nobody" not in asked
    assert ", then it stays unanswered" in asked


def test_explain_judges_a_conversation_that_has_not_begun(cli: Cli) -> None:
    """Rules are looked at before the first message. Explaining begins no conversation."""
    cli.json("init")
    cli.settings('[policy.personal]\nshell = { ask = ["bob"] }\n')
    told = cli.json("config", "explain", "ops/new", "shell", '{"command": "ls"}', "--as", "alice")
    assert (told["verdict"], told["line"], told["may_answer"]) == ("ask", 2, ["alice", "bob"])
    assert "ops/new has not begun" in cli("config", "explain", "ops/new", "shell").out
    assert cli.json("sessions", "list")["sessions"] == []


def test_explain_says_the_same_as_the_prompt_that_follows(cli: Cli) -> None:
    cli.settings('[policy.personal]\nshell = { ask = ["bob", "carol"] }\n')
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    told = cli.json("config", "explain", "ops/api", "shell", '{"command": "ls"}', "--as", "alice")
    asked = cli.ask("ls")
    assert (told["may_answer"], told["reason"]) == (asked["may_answer"], asked["reason"])


def test_the_app_comes_from_the_variable_or_the_setting(cli: Cli) -> None:
    (cli.cwd / "bot.py").write_text(BOT)
    named = {"HOLDFAST_APP": str(cli.cwd / "bot.py") + ":ops"}
    sent = cli.json("send", "ops/api", "restart service=api", "--as", "alice", env=named)
    assert sent["approvals"][0]["tool"] == "restart"
    cli.settings(f'[tools.python]\napp = "{cli.cwd}/bot.py:ops"\n')
    sent = cli.json("send", "ops/other", "restart service=api", "--as", "alice")
    assert sent["approvals"][0]["tool"] == "restart"


def test_config_check_and_doctor_load_the_app(cli: Cli) -> None:
    (cli.cwd / "bot.py").write_text(BOT)
    cli.settings('[policy.personal]\nrestart = "ask"\n')
    assert cli("config", "check").code == 1
    named = {"HOLDFAST_APP": str(cli.cwd / "bot.py") + ":ops"}
    assert cli("config", "check", env=named).code == 0
    absent = {"HOLDFAST_APP": str(cli.cwd / "bot.py") + ":nobody"}
    missing = cli("config", "check", env=absent)
    assert (missing.code, "nobody" in missing.out) == (1, True)

    def problems(*words: str, **more: Any) -> list[str]:
        lines = cli(*words, **more).out.splitlines()
        return [line for line in lines if line.startswith("problem  settings")]

    assert "nobody" in problems("doctor", env=absent)[0]
    assert "'restart'" in problems("doctor")[0]
    assert problems("doctor", env=named) == []
    assert problems("--app", named["HOLDFAST_APP"], "doctor") == []


def test_fork_takes_the_end_of_the_last_turn(cli: Cli) -> None:
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    first = cli.json("sessions", "fork", "ops/api", "ops/copy")
    assert first["turns"] == 1
    cli.ask(session="ops/new")
    refused = cli("--json", "sessions", "fork", "ops/new")
    assert (refused.code, refused.json["error"]["code"]) == (6, "not_ended")


def test_a_reminder_is_set_by_a_duration(cli: Cli) -> None:
    made = cli.json("reminders", "add", "ops/api", "stand up", "--in", "10m")
    assert cli.json("reminders", "show", made["id"][:6])["id"] == made["id"]
    both = ("reminders", "add", "ops/api", "x", "--in", "10m", "--at", "2030-01-01T00:00Z")
    assert cli(*both).code == 2
    assert cli("reminders", "add", "ops/api", "x", "--in", "soon").code == 2


def test_follow_reads_like_a_conversation_and_raw_gives_records(cli: Cli) -> None:
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    told = cli("sessions", "follow", "ops/api").out
    assert told.startswith("alice:\n| what time is it\n")
    assert "| now: " in told
    raw = cli("sessions", "follow", "ops/api", "--raw").lines
    assert raw == cli("--json", "sessions", "follow", "ops/api").lines
    assert raw[-1]["type"] == "turn_ended"


def test_show_names_the_waiting_prompt_and_a_session_is_found_by_its_beginning(cli: Cli) -> None:
    approval = cli.ask()
    shown = cli("sessions", "show", "ops").out
    assert f"shell ({approval['id']}): alice may answer it" in shown
    assert "approvals answer" not in shown
    cli.ask(session="ops/apl")
    several = cli("--json", "sessions", "show", "ops")
    assert (several.code, several.json["error"]["code"]) == (6, "ambiguous")


def test_show_names_the_command_that_answers_the_waiting_prompt(cli: Cli) -> None:
    (approval,) = cli.json("send", "ops/api", "run: echo hello")["approvals"]
    shown = cli("sessions", "show", "ops/api").out
    answers = f"shell ({approval['id']}): `holdfast approvals answer {approval['id']} approve_once`"
    assert answers in shown


def test_verify_quarantine_and_tokens_take_any_unique_prefix(cli: Cli) -> None:
    cli.json("send", "ops/api", "what time is it")
    cli.json("send", "ops/other", "what time is it")
    (found,) = cli.json("verify", "ops/a")["sessions"]
    assert (found["session"], found["verdict"]) == ("ops/api", "holds")
    assert cli.json("sessions", "quarantine", "ops/a")["session"] == "ops/api"
    cli.json("send", "ops/app", "what time is it")
    both = cli("--json", "verify", "ops/ap")
    assert (both.code, both.json["error"]["code"]) == (6, "ambiguous")
    cli.json("tokens", "add", "alice-laptop", "--as", "alice", "--scopes", "read")
    cli.json("tokens", "add", "bob-phone", "--as", "bob", "--scopes", "read")
    assert cli.json("tokens", "revoke", "alice")["token"] == "alice-laptop"
    assert [each["name"] for each in cli.json("tokens", "list")["tokens"]] == ["bob-phone"]


def test_delete_takes_a_prefix_only_where_it_asks(cli: Cli) -> None:
    """A script that deletes a name twice never deletes another session that begins with it."""
    for name in ("ops/api", "ops/api2"):
        cli.json("send", name, "what time is it")
    assert cli.json("sessions", "delete", "ops/api", "--yes")["deleted"]
    again = cli("--json", "sessions", "delete", "ops/api", "--yes")
    assert (again.code, again.json["error"]["code"]) == (6, "unknown")
    assert "sessions delete ops/api2 --yes" in again.json["error"]["hint"]
    asked = [*COMMAND, "sessions", "delete", "ops/api"]
    with PseudoTerminal(asked, env=cli.env, cwd=str(cli.cwd)) as terminal:
        terminal.wait_until_seen("Delete ops/api2 and its whole history?")
        terminal.type("y\r")
        terminal.wait_until_seen("ops/api2 is deleted")
    assert cli.json("sessions", "list")["sessions"] == []


@pytest.mark.parametrize("quiet", [False, True], ids=["short lines", "quiet"])
def test_serve_keeps_its_address_in_view_and_prints_decisions_unless_it_is_quiet(
    cli: Cli, quiet: bool
) -> None:
    """On a terminal a person sees the address, and one short line for each decision."""
    words = [*COMMAND, "serve", "--port", "0", *(["--quiet"] if quiet else [])]
    with PseudoTerminal(words, env=cli.env, cwd=str(cli.cwd)) as terminal:
        terminal.wait_until_seen("Ctrl-C stops")
        (asked,) = cli.json("send", "ops/api", "run: echo x")["approvals"]
        assert cli("approvals", "answer", asked["id"], "deny").code == 0
        if not quiet:
            terminal.wait_until_seen(f"denied it: {asked['id']} in ops/api")
        terminal.type("\x03")
        terminal.wait_until_over()
        seen = terminal.seen
    assert "http://127.0.0.1:" in seen
    assert ("denied it" in seen) is not quiet
    assert "{" not in seen, "JSON is for programs"


def test_every_command_that_looks_at_a_session_takes_a_unique_beginning(cli: Cli) -> None:
    cli.json("send", "ops/api-of-the-shop", "what time is it", "--as", "alice")
    cli.json("reminders", "add", "ops/api-of-the-shop", "look", "--in", "10m", "--as", "alice")
    listed = cli.json("reminders", "list", "ops/api-of")["reminders"]
    assert [each["session"] for each in listed] == ["ops/api-of-the-shop"]
    assert cli.json("jobs", "list", "ops/api-of")["jobs"] == []
    for words in (["jobs", "list"], ["reminders", "list"]):
        ran = cli("--json", *words, "ops/nothing")
        assert (words, ran.code, ran.json["error"]["code"]) == (words, 6, "unknown")


def test_a_beginning_that_is_too_short_is_reported_as_that(cli: Cli) -> None:
    cli.ask("ls")
    ran = cli("--json", "approvals", "show", "a-")
    assert (ran.code, ran.json["error"]["code"]) == (6, "ambiguous")
    assert "too short" in ran.json["error"]["message"]


def test_resume_of_a_session_that_owes_nothing_says_so(cli: Cli) -> None:
    cli.json("send", "ops/api", "what time is it", "--as", "alice")
    ran = cli("resume", "ops/api")
    assert (ran.code, ran.err) == (0, "nothing was left to run in ops/api; its last turn:\n")
    assert cli("sessions", "quarantine", "ops/api").out == "nothing is in quarantine\n"


def test_show_and_list_say_in_words_what_is_owed_and_what_goes_on_with_it(cli: Cli) -> None:
    """Names of effects are for programs: `--json` keeps them."""
    cli("send", "ops/api", "what time is it", "--no-wait")
    assert cli.json("sessions", "show", "ops/api")["owes"] == ["BeginTurn"]
    shown = cli("sessions", "show", "ops/api").out
    assert (
        "owes        a message to begin with; where no process does it, "
        "`holdfast resume ops/api` does\n" in shown
    )
    assert "owes a message to begin with" in cli("sessions", "list").out
    assert "BeginTurn" not in shown + cli("sessions", "list").out


def test_explain_refuses_arguments_that_are_not_json(cli: Cli) -> None:
    """A slip of the reader is not a verdict about the call."""
    cli("send", "ops/api", "what time is it")
    for slip in ("{", "ls", "[1]"):
        ran = cli("config", "explain", "ops/api", "shell", slip)
        assert (ran.code, ran.out) == (2, "")
        assert 'hint: one JSON object, such as \'{"command": "ls"}\'' in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "tomorrow"), "2026-11-17T09:00 with --tz"),
        (("--at", "2099-01-01T09:00"), "name a --tz such as"),
        (("--cron", "0 9 * * MON"), "--tz: cron '0 9 * * MON' needs one"),
        (("--cron", "x"), "'x' has 1 field\n"),
        (("--every", "1s"), "--every: 1s is not between 1m and 5 years"),
    ],
)
def test_a_wrong_time_of_a_reminder_names_the_option_to_mend(
    cli: Cli, words: tuple[str, ...], said: str
) -> None:
    ran = cli("reminders", "add", "ops/api", "look", *words)
    assert ran.code == 2
    assert said in ran.err


def test_a_reminder_never_comes_before_the_duration_is_over(cli: Cli) -> None:
    """Moments are whole seconds, so the shortest duration must not lie in the past."""
    cli("send", "ops/api", "what time is it")
    begun = datetime.now(UTC)
    made = cli.json("reminders", "add", "ops/api", "look", "--in", "1s")
    assert datetime.fromisoformat(made["next_at"]) >= begun + timedelta(seconds=1)
