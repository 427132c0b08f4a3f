"""Prompts, hints and notes name exactly what the reader may do, and what a message closed."""

from tests.acceptance.cli.conftest import Cli

TWO_PEOPLE = '[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n'


def test_a_message_that_closes_a_prompt_reports_it(cli: Cli) -> None:
    approval = cli.ask()
    ran = cli("--json", "send", "ops/api", "what time is it", "--as", "alice")
    assert ran.json["superseded"] == [approval["id"]]
    again = cli.ask()
    told = cli("send", "ops/api", "what time is it", "--as", "alice")
    closed = f"shell: {again['arguments']['command']} ({again['id']})"
    assert f"Your message closed what waited, and it did not run: {closed}" in told.out
    assert cli.ran() == 0


def test_a_message_that_closes_nothing_reports_nothing(cli: Cli) -> None:
    cli.ask()
    sent = cli.json("send", "ops/api", "what time is it", "--as", "bob")
    assert sent["superseded"] == []


def test_a_reader_who_may_not_answer_gets_no_command_that_answers(cli: Cli) -> None:
    cli.settings(TWO_PEOPLE)
    told = cli("send", "ops/api", "run: echo hello", "--as", "alice")
    assert "approvals answer" not in told.out
    assert "You are alice and may not answer this prompt." in told.out
    (approval,) = cli.json("approvals", "list")["approvals"]
    assert "approvals answer" not in cli("approvals", "show", approval["id"]).out
    shown = cli("sessions", "show", "ops/api").out
    assert "bob may answer it" in shown
    assert "approvals answer" not in shown


def test_the_reason_names_the_rule_and_its_line(cli: Cli) -> None:
    cli.settings("# people\n" + TWO_PEOPLE)
    (approval,) = cli.json("send", "ops/api", "run: echo hello", "--as", "alice")["approvals"]
    assert approval["reason"] == "Your settings ask before shell ([policy.personal], line 3)."


def test_the_risks_stand_beside_the_marked_part(cli: Cli) -> None:
    command = "rm -rf ./build && git push --force origin main"
    (approval,) = cli.json("send", "ops/api", f"run: {command}", "--as", "alice")["approvals"]
    marked = [
        (each["kind"], approval["display"][each["start"] : each["end"]])
        for each in approval["risks"]
    ]
    assert marked == [
        ("destructive", "rm -rf ./build"),
        ("force_push", "git push --force origin main"),
    ]
    shown = cli("approvals", "show", approval["id"]).out
    assert "! rm -rf ./build  <- `rm` deletes files, and they cannot be brought back." in shown


def test_a_harmless_command_has_no_risk_however_long(cli: Cli) -> None:
    command = " && ".join(["echo a"] * 60)
    (approval,) = cli.json("send", "ops/api", f"run: {command}", "--as", "alice")["approvals"]
    assert approval["risks"] == []


def test_an_answer_that_another_process_must_drive_is_one_sentence(cli: Cli) -> None:
    """It exits 0 and says that the answer is saved, and neither "running" nor "error"."""
    folder = cli.cwd / "project"
    folder.mkdir()
    asked = ("send", "ops/api", "run: echo ran >> ran.txt", "--as", "alice")
    (approval,) = cli.json(*asked, "--workspace", str(folder))["approvals"]
    folder.rename(cli.cwd / "away")
    ran = cli("approvals", "answer", approval["id"], "approve_once", "--as", "alice")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Your answer is saved. It runs when")
    assert str(folder) in ran.out
    assert ran.out.count("\n") == 1
    assert "put the folder back; `holdfast resume ops/api` goes on then" in ran.out


def test_an_answer_whose_agent_is_missing_names_the_one_command_that_brings_it(cli: Cli) -> None:
    """One remedy that fits, and not a list of all of them."""
    (cli.cwd / "bot.py").write_text(
        "import holdfast\n\n\n@holdfast.tool\n"
        'def deploy(target: str) -> str:\n    """Deploy it."""\n    return "deployed"\n\n\n'
        'ops = holdfast.Agent("ops", model="demo", tools=[deploy])\n'
    )
    (approval,) = cli.json("--app", "bot:ops", "send", "ops/api", "deploy target=web")["approvals"]
    ran = cli("approvals", "answer", approval["id"], "approve_once")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Your answer is saved. It runs when another process goes on; this process can't run "
        "ops/api: no agent 'ops' (`holdfast --app MODULE:AGENT resume ops/api` brings it from your "
        "program, or `holdfast sessions cancel ops/api` gives the turn up).\n"
    )


def test_a_plain_yes_of_a_person_who_may_not_answer_names_who_may(cli: Cli) -> None:
    """The hint names no command that answers, because the sender may not use one."""
    cli.settings(TWO_PEOPLE)
    (approval,) = cli.json("send", "ops/api", "run: echo hello", "--as", "alice")["approvals"]
    ran = cli("--json", "send", "ops/api", "yes", "--as", "alice")
    assert (ran.code, ran.json["error"]["code"]) == (3, "answer_word")
    assert ran.json["error"]["hint"] == (
        f"bob may answer it; `holdfast approvals show {approval['id']}` shows it"
    )
