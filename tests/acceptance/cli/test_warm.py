"""A process that `tests.warm` starts equals one that a person starts, but for its first moments."""

import json
import os
import signal
from typing import Any

import pytest

from tests.acceptance.cli.conftest import Cli

LOOK = """
import json, os, signal, sys, threading
from pathlib import Path

import holdfast

links = []
for name in os.listdir("/proc/self/fd"):
    try:
        links.append(os.readlink(f"/proc/self/fd/{name}"))
    except FileNotFoundError:
        pass  # the one that the folder was listed with
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE, signal.SIGHUP)]
seen = {
    "open": sorted(link.partition(":[")[0] for link in links if ":[" in link),
    "signals": ["a handler" if callable(each) else int(each) for each in handlers],
    "env": sorted(os.environ.items()),
    "cwd": os.getcwd(),
    "path": sys.path[0],
    "words": sys.argv[1:],
    "streams": [(each.fileno(), each.encoding, each.errors, each.isatty()) for each in (sys.stdin, sys.stdout, sys.stderr)],
    "threads": threading.active_count(),
}
Path("seen.json").write_text(json.dumps(seen))
here = holdfast.Agent("here", model="demo", tools=[])
"""


def _seen(cli: Cli) -> tuple[int, dict[str, Any], dict[str, Any]]:
    ran = cli(
        "--json",
        "--app",
        "look:here",
        "send",
        "notes",
        "hello",
        "--agent",
        "here",
        "--dedup",
        "one",
    )
    told = ran.json
    return ran.code, told, json.loads((cli.cwd / "seen.json").read_text())


def test_a_warm_command_finds_what_a_cold_one_finds(cli: Cli) -> None:
    """Descriptors, signals, variables, folder, words, streams: and it says the same."""
    (cli.cwd / "look.py").write_text(LOOK)
    warm = _seen(cli)
    assert warm == _seen(Cli(cli.home, cli.cwd, None))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_warm_command_dies_of_a_signal_and_its_end_is_reported(cli: Cli, number: int) -> None:
    asked, _ = cli.hold_the_model()
    process = cli.start("--app", "held:held", "send", "notes", "go", "--agent", "held")
    asked.hear()
    os.kill(process.pid, number)
    assert (process.wait() != 0, process.wait() == -number) == (True, number == signal.SIGKILL)
    assert process.poll() == process.returncode
