"""
History under attack, end to end: the command line, real files, a disk that lies.

No denied call is approved later by taking the answer away, and no tool runs whose start is not in
the journal.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.testing import outside
from tests.hostile.campaign.conftest import Cli


def segment(cli: Cli) -> Path:
    return Path(cli.json("sessions", "show", "ops/api")["journal"][-1])


def types_in(cli: Cli) -> list[str]:
    paths = sorted((cli.home / "sessions/ops/api").glob("*.jsonl"))
    return [
        json.loads(line)["type"]
        for path in paths
        for line in path.read_text(errors="replace").splitlines()
        if line.endswith("}")
    ]


def last_batch(path: Path) -> int:
    """Where the last batch begins."""
    lines = path.read_bytes().splitlines(keepends=True)
    ends = [
        number
        for number, line in enumerate(lines, start=1)
        if not json.loads(line).get("more", False)
    ]
    return sum(len(line) for line in lines[: ends[-2]])


@pytest.mark.parametrize(
    "hands", [outside.wipe_newer_slot, outside.copy_older_slot], ids=["wiped", "copied over"]
)
@pytest.mark.parametrize("left", [0, 1], ids=["nothing left", "one byte left"])
def test_an_answer_is_not_undone_by_wiping_a_slot(
    cli: Cli, hands: Callable[[Path, int], None], left: int
) -> None:
    """D4: the last acknowledged batch is cut together with its slot; the denied call never runs."""
    approval = cli.ask()
    assert cli.answer(approval, "deny").code in {0, 6}
    path, table = segment(cli), cli.home / "anchors/0000.anchors"
    os.truncate(path, last_batch(path) + left)
    hands(table, 0)
    verdict = cli("--json", "verify", "ops/api")
    assert verdict.code == 4
    assert "cut_short" in verdict.out
    assert cli.answer(approval, "approve_once").code == 4
    assert cli.ran() == 0


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("when", ["1", "2", "3"])
def test_a_message_over_a_lying_write_is_not_acknowledged(
    cli: Cli, needs: Callable[[str], str], when: str
) -> None:
    """D5: `send` says that nothing was saved, or it is saved; the journal holds either way."""
    cli.json("send", "ops/api", "hello", "--as", "alice")
    strace = [
        needs("strace"),
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(segment(cli)),
        "-e",
        "trace=pwrite64",
    ]
    ran = cli(
        "--json",
        "send",
        "ops/api",
        "again",
        "--as",
        "alice",
        prefix=[*strace, "-e", f"inject=pwrite64:retval=40:when={when}"],
    )
    assert ran.code in {0, 5}, ran
    assert cli("--json", "verify", "ops/api").code == 0
    cli.json("resume", "ops/api")
    assert cli("--json", "verify", "ops/api").code == 0
    if when == "1":
        assert ran.code == 5, "the message itself was lied about"


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("when", ["1", "2", "3", "4"])
def test_an_answer_over_a_lying_write_runs_nothing_without_its_start(
    cli: Cli, needs: Callable[[str], str], when: str
) -> None:
    """T1, P11: a tool that ran has its answer and its start in a journal that holds."""
    approval = cli.ask()
    strace = [
        needs("strace"),
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(segment(cli)),
        "-e",
        "trace=pwrite64",
    ]
    cli.answer(
        approval, "approve_once", prefix=[*strace, "-e", f"inject=pwrite64:retval=40:when={when}"]
    )
    assert cli("--json", "verify", "ops/api").code == 0
    if cli.ran():
        assert {"approval_answered", "tool_started"} <= set(types_in(cli))
    cli("--json", "resume", "ops/api")
    assert cli("--json", "verify", "ops/api").code == 0
    assert cli.ran() <= 1
