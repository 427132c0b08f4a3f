"""
`holdfast chat` in a real terminal: what a person sees, types, and can't do by accident. Each wait
is for words on the screen.
"""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.commands.demo.pseudo_terminal import PseudoTerminal
from holdfast.cli.shared.identity import login
from tests.warm import WarmStart

SESSION = "ops/talk"
CTRL_A, CTRL_C, CTRL_D, CTRL_K = "\x01", "\x03", "\x04", "\x0b"


class Desk:
    """A home, a workspace beside it, and terminals on both."""

    def __init__(self, folder: Path, stack: ExitStack, warm: WarmStart | None) -> None:
        self._warm = warm
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        self._stack = stack

    def program(self) -> list[str]:
        return [sys.executable, "-P", "-m", "holdfast", "--home", str(self.home)]

    def chat(self, *more: str, program: Sequence[str] | None = None) -> PseudoTerminal:
        words = self.program() if program is None else [*program, "--home", str(self.home)]
        return self._stack.enter_context(
            PseudoTerminal([*words, "chat", SESSION, *more], cwd=str(self.work))
        )

    def run(self, *arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
        own = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
        } | env
        if self._warm is not None and self._warm.begins_like(own):
            done = self._warm.run(
                ["--home", str(self.home), "--json", *arguments],
                cwd=self.work,
                env=own,
                stdin="",
                seconds=60,
            )
        else:
            done = subprocess.run(
                [*self.program(), "--json", *arguments],
                cwd=self.work,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env=own,
            )
        return done.returncode, json.loads(done.stdout.splitlines()[0])

    def ran(self) -> list[str]:
        log = self.work / "log.txt"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def desk(tmp_path: Path, warm: WarmStart | None) -> Iterator[Desk]:
    with ExitStack() as stack:
        yield Desk(tmp_path, stack, warm)


ASK = "run: echo done >> log.txt\r"
Opened = Callable[[], PseudoTerminal]


def asked(terminal: PseudoTerminal, text: str = ASK) -> str:
    """Say it, and wait for the prompt that it leads to; returns what was shown."""
    terminal.wait_until_seen("you> ")
    terminal.type(text)
    return terminal.wait_until_seen("answer> ")


def test_a_bare_enter_a_yes_and_an_abbreviation_decide_nothing(desk: Desk) -> None:
    """Only an option's own name or number counts (P6)."""
    chat = desk.chat()
    shown = asked(chat)
    assert "echo done >> log.txt" in shown
    assert "1  approve_once: Runs exactly this call, once." in shown
    assert "d  deny: Nothing runs." in shown
    chat.type("\r")
    chat.wait_until_seen("answer> ")
    for word in ("yes", "approve", "y", "0", "7"):
        chat.type(f"{word}\r")
        chat.wait_until_seen("Nothing was decided")
        chat.wait_until_seen("answer> ")
    assert (desk.ran(), len(desk.run("approvals", "list")[1]["approvals"])) == ([], 1)
    chat.type("1\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == ["done"]


def test_keys_pressed_before_the_prompt_was_seen_answer_nothing(desk: Desk) -> None:
    """Text that is typed ahead is thrown away when a question appears."""
    chat = desk.chat()
    asked(chat, ASK + "approve_once\r")
    chat.type("deny\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == []


def test_a_prompt_still_stands_after_kill_9(desk: Desk) -> None:
    """A person who comes back is told, and asked the same thing (case 27)."""
    chat = desk.chat()
    asked(chat)
    assert chat.kill() == -9
    again = desk.chat()
    again.wait_until_seen("a prompt still stands: shell")
    again.wait_until_seen("answer> ")
    again.type("approve_once\r")
    again.wait_until_seen("you> ")
    assert desk.ran() == ["done"]


def test_an_answer_from_another_process_closes_the_prompt_on_the_screen(desk: Desk) -> None:
    """A person who saw it is told, and can't answer it any more (P5)."""
    chat = desk.chat()
    asked(chat)
    waiting = desk.run("approvals", "list")[1]["approvals"][0]["id"]
    code, answered = desk.run("approvals", "answer", waiting, "approve_once")
    assert (code, answered["outcome"]) == (0, "completed")
    chat.wait_until_seen(f"You approved it once ({waiting}).")
    chat.wait_until_seen("you> ")
    assert desk.ran() == ["done"]


def test_a_message_from_another_process_is_shown(desk: Desk) -> None:
    """The journal is the conversation, whoever adds to it."""
    chat = desk.chat()
    chat.wait_until_seen("you> ")
    chat.type("what time is it\r")
    chat.wait_until_seen("| now: ")
    chat.wait_until_seen("you> ")
    desk.run("send", SESSION, "read nothing.txt")
    chat.wait_until_seen("| read nothing.txt")
    chat.wait_until_seen("| read_file failed")


@pytest.mark.parametrize(
    "died", [False, pytest.param(True, marks=pytest.mark.long)], ids=["stays", "killed and back"]
)
def test_a_jobs_result_comes_under_its_own_name_and_is_answered_at_once(
    desk: Desk, died: bool
) -> None:
    """
    Its output is not a person's message; the half of a message that was typed meanwhile is still there
    (T7, M2).
    """
    os.mkfifo(desk.work / "hold")
    chat = desk.chat()
    asked(chat, "shell command='cat hold' background=true\r")
    chat.type("approve_once\r")
    begun = chat.wait_until_seen("you> ")
    assert "- shell goes on in the background; `holdfast jobs follow j-" in begun
    if died:
        chat.kill()
        chat = desk.chat()
        chat.wait_until_seen("you> ")
    chat.type("half a mess")
    chat.wait_until_seen("half a mess")
    with (desk.work / "hold").open("w") as gate:  # somebody reads: the job runs
        gate.write("the word\n")
    told = chat.wait_until_seen("| the word")
    assert "a job:" in told
    assert f"{login()}:" not in told
    assert re.search(r"The job j-\w+ \(shell\) finished after \d+ s\.", told)
    assert "What follows is" not in told, "that sentence is for the model"
    chat.wait_until_seen(
        "has ended: the word"
    )  # the model's answer to it: its turn was driven, and nobody had to ask
    chat.wait_until_seen("half a mess")
    chat.type("age\r")
    chat.wait_until_seen(
        "I did not understand that."
    )  # the line itself is drawn behind `you> ` too
    chat.wait_until_seen("you> ")
    code, shown = desk.run("sessions", "show", SESSION)
    assert (code, shown["turns"], shown["owes"], shown["jobs"]) == (0, 3, [], [])


def test_a_jobs_result_waits_while_a_person_is_about_to_answer_a_prompt(desk: Desk) -> None:
    """It is told above the prompt, disturbs nobody, and is driven once the prompt is answered."""
    os.mkfifo(desk.work / "hold")
    chat = desk.chat()
    asked(chat, "shell command='cat hold' background=true\r")
    chat.type("approve_once\r")
    asked(chat)
    chat.type("den")
    with (desk.work / "hold").open("w") as gate:
        gate.write("the word\n")
    chat.wait_until_seen("| the word")
    chat.type("y\r")
    chat.wait_until_seen("You denied it")
    chat.wait_until_seen("has ended: the word")
    chat.wait_until_seen("you> ")
    assert desk.ran() == []


def test_ctrl_c_cancels_the_running_turn_durably(desk: Desk) -> None:
    """The started call ends in doubt, and the journal says who cancelled (T6)."""
    chat = desk.chat()
    asked(chat, "run: sleep 1000\r")
    chat.type("approve_once\r")
    chat.wait_until_seen("runs shell: ")
    chat.type(CTRL_C)
    chat.wait_until_seen("Stopped by you.")
    chat.wait_until_seen("in doubt: it was stopped while it ran")
    chat.wait_until_seen("you> ")
    _, shown = desk.run("sessions", "show", SESSION)
    assert (shown["phase"], shown["owes"]) == ("idle", [])


def test_ctrl_c_leaves_what_waits_for_others(desk: Desk) -> None:
    """It means the turn that runs, and no other."""
    desk.run("send", SESSION, "run: echo bob", "--as", "bob")
    chat = desk.chat()
    chat.wait_until_seen("bob may answer it")
    asked(chat, "run: sleep 1000\r")
    chat.type("approve_once\r")
    chat.wait_until_seen("runs shell: ")
    chat.type(CTRL_C)
    chat.wait_until_seen("Stopped by you.")
    chat.wait_until_seen("you> ")
    assert [each["may_answer"] for each in desk.run("approvals", "list")[1]["approvals"]] == [
        ["bob"]
    ]


def test_prompts_that_wait_for_somebody_else_are_named_too(desk: Desk) -> None:
    """`/prompts` is never silent: it says whose answer is missing, or that none is."""
    chat = desk.chat()
    chat.wait_until_seen("you> ")
    chat.type("/prompts\r")
    chat.wait_until_seen("Nothing waits for an answer.")
    desk.home.joinpath("holdfast.toml").write_text(
        '[policy.personal]\nshell = { ask = ["bob"], requester_may_answer = false }\n'
    )
    chat.wait_until_seen("you> ")
    chat.type(ASK)
    chat.wait_until_seen("asks bob about shell")
    chat.wait_until_seen("you> ")
    chat.type("/prompts\r")
    (waiting,) = desk.run("approvals", "list")[1]["approvals"]
    chat.wait_until_seen(f"- bob may answer shell: echo done >> log.txt ({waiting['id']})")


def test_a_sentence_at_a_prompt_decides_nothing_and_the_reply_names_later(desk: Desk) -> None:
    chat = desk.chat()
    asked(chat)
    chat.type("never mind, list the files\r")
    chat.wait_until_seen("d for deny. To write a message instead, type /later first.")
    chat.wait_until_seen("answer> ")


def test_arguments_that_are_not_json_can_be_mended_where_they_were_typed(desk: Desk) -> None:
    """A slip costs one character, not the whole text."""
    chat = desk.chat()
    asked(chat)
    chat.type("5\r")
    chat.wait_until_seen("arguments> ")
    chat.type(f'{CTRL_A}{CTRL_K}{{"command": "echo mended >> log.txt"\r')
    chat.wait_until_seen("Correct them, or press Ctrl-C.")
    chat.wait_until_seen("arguments> ")
    chat.type("}\r")
    chat.wait_until_seen("| echo mended >> log.txt")
    chat.wait_until_seen("answer> ")
    chat.type("1\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == ["mended"]


def test_ctrl_c_at_a_prompt_leaves_it_standing(desk: Desk) -> None:
    """It is not an answer; the person may go on talking, or come back to it."""
    chat = desk.chat()
    asked(chat)
    chat.type(CTRL_C)
    chat.wait_until_seen("The prompt stays open.")
    chat.wait_until_seen("you> ")
    assert len(desk.run("approvals", "list")[1]["approvals"]) == 1
    chat.type("/prompts\r")
    chat.wait_until_seen("answer> ")
    chat.type("deny\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == []


def test_a_call_with_a_known_risk_shows_it_and_needs_the_tools_name_too(desk: Desk) -> None:
    """The reason stands beside the marked part. A second, explicit step approves."""
    chat = desk.chat()
    shown = asked(chat, 'run: eval "echo done" >> log.txt\r')
    assert "^ `eval` runs text that is known only when it runs." in " ".join(shown.split())
    chat.type("1\r")
    chat.wait_until_seen("Type shell to approve.")
    chat.wait_until_seen("shell? ")
    chat.type("yes\r")
    chat.wait_until_seen("Nothing was decided")
    chat.wait_until_seen("answer> ")
    assert desk.ran() == []
    chat.type("1\r")
    chat.wait_until_seen("shell? ")
    chat.type("shell\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == ["done"]


def test_edited_arguments_are_shown_again_before_they_run(desk: Desk) -> None:
    """An edit is a new plan with a prompt of its own (case 36a)."""
    chat = desk.chat()
    asked(chat)
    chat.type("edit\r")
    chat.wait_until_seen("arguments> ")
    chat.type(CTRL_A + CTRL_K + '{"command": "echo other >> log.txt"}\r')
    shown = chat.wait_until_seen("answer> ")
    assert "| echo other >> log.txt" in shown
    assert desk.ran() == []
    chat.type("approve_once\r")
    chat.wait_until_seen("you> ")
    assert desk.ran() == ["other"]


def test_a_question_is_answered_in_words_and_grants_nothing(desk: Desk) -> None:
    """`ask_person` parks like an approval; its answer is text for the model."""
    chat = desk.chat()
    asked(chat, "ask me: which region?\r")
    chat.type("eu-1, please\r")
    chat.wait_until_seen("eu-1, please")
    chat.wait_until_seen("| ask_person: ")
    assert desk.run("grants", "list")[1] == {"grants": []}


def test_a_question_with_choices_takes_a_number_and_declining_is_not_an_answer(desk: Desk) -> None:
    """A choice is text like any other. The key that denies elsewhere declines here."""
    chat = desk.chat()
    shown = asked(chat, 'ask_person question="which colour?" choices=["red", "blue"]\r')
    assert "2  blue" in shown
    chat.type("2\r")
    chat.wait_until_seen("You answered blue")
    chat.wait_until_seen("| ask_person: ")
    asked(chat, "ask me: really?\r")
    chat.type("d\r")
    chat.wait_until_seen("You denied it")
    chat.wait_until_seen("you> ")
    chat.type("/cancel\r")
    chat.wait_until_seen("nothing is open here")


def test_a_prompt_that_a_message_replaced_is_shown_as_closed(desk: Desk) -> None:
    """Superseded, durably and visibly (P5, case 24)."""
    chat = desk.chat()
    asked(chat)
    chat.type("/later\r")
    chat.wait_until_seen("you> ")
    (waiting,) = desk.run("approvals", "list")[1]["approvals"]
    chat.type("what time is it\r")
    chat.wait_until_seen("would close what waits")
    chat.wait_until_seen("send? ")
    chat.type("\r")
    chat.wait_until_seen("Not sent.")
    chat.wait_until_seen("you> ")
    assert desk.run("approvals", "list")[1]["approvals"][0]["id"] == waiting["id"]
    chat.type("what time is it\r")
    chat.wait_until_seen("send? ")
    chat.type("send\r")
    chat.wait_until_seen("is closed. Not run: another message was sent")
    after = chat.wait_until_seen("| now: ")
    assert "ot run" not in after  # once is enough
    assert desk.ran() == []


def test_the_chat_says_what_a_turn_used(desk: Desk) -> None:
    chat = desk.chat()
    chat.wait_until_seen("you> ")
    chat.type("what time is it\r")
    chat.wait_until_seen("| now: ")
    chat.wait_until_seen("- ")
    assert re.fullmatch(r"\d+ tokens in, \d+ out", chat.wait_until_seen(" out"))


def test_help_works_while_a_prompt_waits(desk: Desk) -> None:
    chat = desk.chat()
    asked(chat)
    chat.type("/help\r")
    chat.wait_until_seen("d  deny")
    chat.wait_until_seen("/later")
    chat.wait_until_seen("answer> ")
    assert desk.ran() == []


@pytest.mark.parametrize("key", ["d", "deny"])
def test_deny_has_one_key_whatever_else_is_offered(desk: Desk, key: str) -> None:
    """An unremembered command offers fewer options. Their keys stay the same."""
    chat = desk.chat()
    shown = asked(chat, "run: make\r")
    assert "2  approve_session" not in shown
    assert "5  edit:" in shown
    assert "d  deny:" in shown
    chat.type("2\r")
    chat.wait_until_seen("Nothing was decided")
    chat.wait_until_seen("answer> ")
    chat.type(f"{key}\r")
    chat.wait_until_seen("You denied it")


def test_a_models_text_cannot_pass_for_a_prompt(desk: Desk) -> None:
    """Behind a bar on every line, with control characters made visible."""
    forged = "ok\x1b[2J\r\n--- shell asks for approval ---\n" + "x" * 500
    (desk.work / "script").write_text(json.dumps({"say": forged}) + "\n")
    chat = desk.chat("--model", f"script:{desk.work}/script")
    chat.wait_until_seen("you> ")
    chat.type("hello\r")
    said = chat.wait_until_seen("x\nyou> ").partition("| ok")[2].splitlines()
    assert said[0].startswith("\\u001b[2J")
    assert all(line.startswith("| ") for line in said[1:-1])


def test_the_chat_history_keeps_messages_and_only_its_owner_reads_it(desk: Desk) -> None:
    """Messages, not answers; readable by nobody else. Ctrl-D leaves with 0."""
    chat = desk.chat()
    asked(chat)
    chat.type("deny\r")
    chat.wait_until_seen("you> ")
    chat.type(CTRL_D)
    assert chat.wait_until_over() == 0
    history = desk.home / "chat_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "echo done" in history.read_text()
    assert "deny" not in history.read_text()


def test_a_changed_byte_ends_the_talk(desk: Desk) -> None:
    """A session that can't be believed does not go on: sealed, exit 4."""
    chat = desk.chat()
    asked(chat)
    journal = Path(desk.run("sessions", "show", SESSION)[1]["journal"][-1])
    journal.write_bytes(journal.read_bytes().replace(b"echo done", b"echo dona"))
    chat.type("approve_once\r")
    assert chat.wait_until_over() == 4
    assert desk.ran() == []


CLOCK = """
# `holdfast`, with a clock that this file's own folder sets: by so many seconds as `later` says.
from pathlib import Path

from holdfast.adapters.clock import SystemClock
from holdfast.cli.main import main

LATER, now_ms = Path(__file__).with_name("later"), SystemClock.now_ms
SystemClock.now_ms = lambda self: now_ms(self) + int(LATER.read_text()) * 1000
main()
"""


def test_an_expired_prompt_is_reported_closed_and_denied(desk: Desk) -> None:
    """Past its time an answer is refused, and the closing is journalled (case 28)."""
    program, later = desk.work / "clock.py", desk.work / "later"
    program.write_text(CLOCK)
    later.write_text("0")
    chat = desk.chat(program=[sys.executable, "-P", str(program)])
    asked(chat)
    week = desk.work / "week"
    week.write_text(str(8 * 24 * 3600))  # a prompt stands for seven days
    week.replace(later)
    chat.type("approve_once\r")
    chat.wait_until_seen("is closed. Nobody answered in time")
    chat.wait_until_seen("shell: not run: nobody answered in time.")
    chat.wait_until_seen(
        "this prompt is closed: its time is over"
    )  # the refusal of the answer comes after what it set going
    chat.wait_until_seen("you> ")
    assert desk.ran() == []


def test_chat_needs_a_terminal_and_a_person(desk: Desk) -> None:
    """A pipe can't be asked, and a tool may not answer."""
    code, told = desk.run("chat", SESSION)
    assert (code, told["error"]["code"]) == (2, "no_terminal")
    code, told = desk.run("chat", SESSION, HOLDFAST_TOOL="c-1")
    assert (code, told["error"]["code"]) == (6, "started_by_tool")
    assert not desk.home.exists()
