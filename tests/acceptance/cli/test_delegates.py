"""
Delegates from the command line: settings name them, prompts show who asks for whom, an answer
drives everybody on.
"""

from tests.acceptance.cli.conftest import APPROVAL_FIELDS, Cli

SETTINGS = """
[agents.ops]
tools = ["write_file", "now"]
delegates = ["researcher"]
[agents.researcher]
tools = ["write_file", "shell"]
"""
TASK = "delegate_researcher task='write_file path=found.txt content=green'"


def test_a_delegates_prompt_is_listed_shown_and_answered_like_any_other(cli: Cli) -> None:
    cli.settings(SETTINGS)
    turn = cli.json("send", "ops/api", TASK, "--as", "alice")
    (approval,) = turn["approvals"]
    child = approval["session"]
    assert (turn["session"], turn["outcome"], approval["path"]) == (
        "ops/api",
        "waiting",
        ["ops", "researcher"],
    )
    assert set(approval) >= APPROVAL_FIELDS
    assert [each["id"] for each in cli.json("approvals", "list")["approvals"]] == [approval["id"]]
    assert "ops > researcher asks" in cli("approvals", "show", approval["id"]).out
    listed = {each["session"]: each["parent"] for each in cli.json("sessions", "list")["sessions"]}
    assert listed == {"ops/api": None, child: "ops/api"}
    assert [each["session"] for each in cli.json("sessions", "show", "ops/api")["delegates"]] == [
        child
    ]
    assert cli.json("sessions", "show", child)["parent"]["session"] == "ops/api"
    assert "works for ops/api" in cli("sessions", "list").out
    refused = cli.answer(approval, who="bob")
    assert (refused.code, refused.json["reason"]) == (6, "wrong_approver")
    answered = cli.answer(approval)
    assert (
        answered.code,
        answered.json["session"],
        answered.json["outcome"],
        answered.json["result"],
    ) == (0, "ops/api", "completed", "started")
    assert (cli.cwd / "found.txt").read_text() == "green"
    types = [line["type"] for line in cli("--json", "sessions", "follow", "ops/api").lines]
    assert [each for each in types if each.startswith("delegate_")] == [
        "delegate_started",
        "delegate_ended",
    ]
    assert {each["verdict"] for each in cli.json("verify")["sessions"]} == {"holds"}


def test_a_parent_goes_on_when_its_delegates_approved_call_may_no_longer_run(
    cli: Cli,
) -> None:
    """
    T7: the answer is refused as voided, and nothing of the request is left for somebody else to
    drive.
    """
    cli.settings(SETTINGS)
    (approval,) = cli.json("send", "ops/api", TASK, "--as", "alice")["approvals"]
    cli.settings(SETTINGS + '[policy.personal]\nwrite_file = "deny"\n')
    ran = cli.answer(approval)
    assert (ran.code, ran.json["result"], ran.json["reason"]) == (6, "failed", "voided")
    shown = cli.json("sessions", "show", "ops/api")
    assert (shown["phase"], shown["owes"], (cli.cwd / "found.txt").exists()) == ("idle", [], False)


def test_a_repeated_answer_reports_the_prompt_that_a_delegate_waits_for(cli: Cli) -> None:
    """
    The turn's present outcome is the one that `send` tells: its delegate's prompt is what it waits
    for.
    """
    cli.settings(SETTINGS)
    both = [
        {"tool": "delegate_researcher", "args": {"task": TASK.partition("'")[2].rstrip("'")}},
        {"tool": "write_file", "args": {"path": "own.txt", "content": "x"}},
    ]
    turn = cli.json(
        "send",
        "ops/api",
        "go on",
        "--as",
        "alice",
        "--model",
        cli.script({"call": both}, {"say": "done"}),
    )
    own, below = sorted(turn["approvals"], key=lambda each: each["session"] != "ops/api")
    told = [cli.answer(own, "approve_once", "--answer-id", "mine") for _ in range(2)]
    assert [(each.code, each.json["result"], each.json["outcome"]) for each in told] == [
        (3, "started", "waiting")
    ] * 2
    assert [[each["id"] for each in ran.json["approvals"]] for ran in told] == [[below["id"]]] * 2
    assert cli.answer(below).json["reply"] == "done"


def test_a_delegates_session_takes_no_messages(cli: Cli) -> None:
    cli.settings(SETTINGS)
    (approval,) = cli.json("send", "ops/api", TASK, "--as", "alice")["approvals"]
    for session in (approval["session"], "delegate/nosuch"):
        ran = cli("--json", "send", session, "hello", "--as", "alice")
        assert (ran.code, ran.json["error"]["code"]) == (6, "delegate")
    cancelled = cli.json("sessions", "cancel", "ops/api", "--as", "alice")
    assert [each["outcome"] for each in cancelled["turns"]] == ["cancelled"]
    assert cli.json("approvals", "list")["approvals"] == []
    assert not (cli.cwd / "found.txt").exists()


def test_settings_that_name_an_unknown_agent_are_reported_with_the_nearest_name(cli: Cli) -> None:
    cli.settings(SETTINGS.replace('delegates = ["researcher"]', 'delegates = ["reseacher"]'))
    ran = cli("--json", "config", "check")
    assert ran.code == 2
    assert "no agent 'reseacher'; did you mean 'researcher'?" in ran.out


def test_a_parent_goes_on_when_its_delegate_is_cancelled(cli: Cli) -> None:
    """
    T7: the delegate's session is cancelled by name; nothing of the request above is left for
    `resume`.
    """
    cli.settings(SETTINGS)
    (approval,) = cli.json("send", "ops/api", TASK, "--as", "alice")["approvals"]
    cancelled = cli.json("sessions", "cancel", approval["session"], "--as", "alice")
    assert [each["outcome"] for each in cancelled["turns"]] == ["cancelled"]
    shown = cli.json("sessions", "show", "ops/api")
    assert (shown["phase"], shown["owes"]) == ("idle", [])
    assert not (cli.cwd / "found.txt").exists()
    assert {each["verdict"] for each in cli.json("verify")["sessions"]} == {"holds"}
