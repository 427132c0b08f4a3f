"""
Stored text reaches no terminal as a control sequence: each command that shows it, in a real
pseudo-terminal.

Every row first proves that the payload was in what it shows: its escaped form must be there.
"""

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.cli.conftest import Cli

# A colour, clearing the screen, a title, a hyperlink, 8-bit CSI, right-to-left override, DEL,
# backspace, carriage return, a line separator.
PAYLOAD = "P\x1b[31m\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\x\x9b2J\u202e\x7f\x08\rQ\u2028R[bold]S"
# From our own tables, in a terminal: bold heads. No stored text can make these, since its ESC is
# escaped.
OURS = re.compile(r"\x1b\[[0-9;]*m")
OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
)


def on_a_terminal(cli: Cli, *words: str) -> str:
    ours, theirs = pty.openpty()
    process = cli.start(
        *words,
        env={"TERM": "xterm-256color"},
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        text=False,
    )
    os.close(theirs)
    shown = b""
    try:
        while more := os.read(ours, 65536):
            shown += more
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.wait(timeout=60)
    return shown.decode()


def check(shown: str, name: str = "") -> None:
    """The payload is there, in a form that no terminal obeys."""
    words = shown.replace("\r\n", "\n")  # the terminal's own line ends
    flat = re.sub(r"\s", "", OURS.sub("", words))
    assert re.search(r"P(\\x1b|\\u001b|\\\\u001b|\\\\\\\\u001b|\\\\x1b)\[31m", flat), (name, shown)
    found = OBEYED.search(OURS.sub("", words))
    assert found is None, (name, found, shown)


@pytest.fixture
def stored(cli: Cli) -> Cli:
    """
    A home with the payload in the text, the reply, an argument, an output, reasons, a reminder,
    memory, a job and an import.
    """
    cli.settings('[policy.personal]\nremember = "auto"\n')
    said = cli.script({"say": f"reply {PAYLOAD}"})
    assert cli("send", "said", f"hello {PAYLOAD}", "--as", "alice", "--model", said).code == 0
    asks = cli.script(
        {"call": [{"tool": "shell", "args": {"command": f"printf %s '{PAYLOAD}'"}}]},
        {"say": "done"},
    )
    assert cli("send", "asked", "go", "--as", "alice", "--model", asks).code == 3
    denied = cli.script(
        {"call": [{"tool": "shell", "args": {"command": "echo x"}}]}, {"say": f"so {PAYLOAD}"}
    )
    waits = cli.json("send", "denied", "go", "--as", "alice", "--model", denied)
    assert cli(
        "approvals",
        "answer",
        waits["approvals"][0]["id"],
        "deny",
        "--reason",
        f"no {PAYLOAD}",
        "--as",
        "alice",
    ).code in (0, 1)
    assert (
        cli("reminders", "add", "said", f"remind {PAYLOAD}", "--every", "1d", "--as", "alice").code
        == 0
    )
    remembers = cli.script(
        {"call": [{"tool": "remember", "args": {"text": f"note {PAYLOAD}"}}]}, {"say": "done"}
    )
    ran = cli.json("send", "noted", "remember it", "--as", "alice", "--model", remembers)
    for each in ran["approvals"]:
        assert cli("approvals", "answer", each["id"], "approve_once", "--as", "alice").code == 0
    return cli


TABLE = {
    "sessions follow": ("sessions", "follow", "said", "--after", "0"),
    "sessions export --markdown": ("sessions", "export", "said", "--markdown"),
    "sessions export": ("sessions", "export", "said"),
    "sessions export, a denial": ("sessions", "export", "denied", "--markdown"),
    "sessions export, of a prompt": ("sessions", "export", "asked", "--markdown"),
    "sessions search": ("sessions", "search", "reply"),
    "approvals list": ("approvals", "list"),
    "reminders list": ("reminders", "list"),
    "memory list": ("memory", "list"),
    "an error that repeats it": ("sessions", "show", f"x{PAYLOAD}"),
    "an unknown option": (f"--x{PAYLOAD}",),
    "an unknown command": (f"x{PAYLOAD}",),
    "an unknown session": ("approvals", "show", PAYLOAD),
    "an unknown agent": ("send", "said", "hello", "--agent", PAYLOAD),
    "an unknown folder": ("send", "said", "hello", "--workspace", PAYLOAD),
    "an unknown file": ("sessions", "import", "new", PAYLOAD),
    "a home that is not there": ("--home", f"/nowhere/{PAYLOAD}", "keys", "rotate"),
}
AS_JSON = (
    "sessions follow",
    "sessions export --markdown",
    "sessions search",
    "approvals list",
    "reminders list",
    "memory list",
)


def test_no_command_hands_a_terminal_what_it_would_obey(stored: Cli) -> None:
    for name, words in TABLE.items():
        check(on_a_terminal(stored, *words), name)
    for name in AS_JSON:
        check(on_a_terminal(stored, "--json", *TABLE[name]), f"--json {name}")
    (approval,) = stored.json("approvals", "list")["approvals"]
    check(on_a_terminal(stored, "approvals", "show", approval["id"]), "approvals show")


def test_an_exported_conversation_is_safe_to_print_later(stored: Cli, tmp_path: Path) -> None:
    """In a file and in a pipe, too: somebody will `cat` it."""
    check(stored("sessions", "export", "said", "--markdown").out, "pipe")
    assert (
        stored("sessions", "export", "said", "--markdown", "-o", str(tmp_path / "said.md")).code
        == 0
    )
    check((tmp_path / "said.md").read_text(), "file")


def test_records_that_are_exported_to_a_file_are_the_stored_bytes(stored: Cli) -> None:
    """Only a terminal is shown escapes: a file must verify."""
    lines = stored.shell(f"{' '.join(stored.command)} sessions export said > said.jsonl").returncode
    assert lines == 0
    journal = Path(stored.json("sessions", "show", "said")["journal"][0]).read_bytes()
    assert (stored.cwd / "said.jsonl").read_bytes() == journal
    assert "\x9b".encode() in journal
