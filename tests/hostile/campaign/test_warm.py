"""
A command that is forked from a warm process is the command that people start: what it says, how it
ends, and which calls it makes.
"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from proof.campaigns.campaign import CampaignRig
from proof.campaigns.fork_server import run_warm
from proof.campaigns.syscalls import SyscallFault, run

from tests.hostile.campaign.conftest import wait_until_gone

CALLS = "pwrite64,fdatasync,fsync,write,rename,ftruncate,unlink,mkdir,link,flock,fallocate"


@pytest.fixture
def rig(tmp_path: Path, needs: Callable[[str], str]) -> Iterator[CampaignRig]:
    with closing(CampaignRig(tmp_path, needs("strace"))) as made:
        yield made


@pytest.mark.needs_system("strace")
def test_a_forked_command_says_exits_and_dies_as_one_that_was_started(rig: CampaignRig) -> None:
    for words in (
        ["--json", "sessions", "list"],
        ["--json", "--home", "/dev/null/home", "send", "ops/api", "go"],
    ):
        started = run(
            "",
            [sys.executable, "-m", "holdfast", *words],
            None,
            paths=[],
            env=rig.env,
            cwd=rig.workspace,
            timeout_seconds=100,
        )
        assert rig.say(words) == started
    assert (
        rig.say(rig.begin("act", "answer"), SyscallFault("fdatasync", "kill", 1)).code
        == -signal.SIGKILL
    )
    assert rig.say(["--json", "sessions", "list"]).code == 0, (
        "the next command comes from the same warm process"
    )


@pytest.mark.needs_system("strace")
def test_a_forked_command_makes_the_calls_of_one_that_was_started(
    rig: CampaignRig, needs: Callable[[str], str]
) -> None:
    """Or a sweep would disturb other places than people's disks do."""
    rig.say(["--json", "sessions", "list"])  # it has learned what to import
    warm, cold = rig.folder / "warm", rig.folder / "cold"
    rig.say(rig.begin("act", "send"), trace=(CALLS, warm))
    words = [sys.executable, "-m", "holdfast", *rig.begin("act", "send")]
    subprocess.run(
        [needs("strace"), "-f", "-qq", "-e", f"trace={CALLS}", "-o", cold, *words],
        env=rig.env,
        cwd=rig.workspace,
        check=False,
        capture_output=True,
    )
    assert made(warm) == made(cold)
    assert made(warm)["pwrite64"] > 10


def made(trace: Path) -> Counter[str]:
    """Count the calls. A lock is asked for again as often as it is held, which is a matter of time."""
    calls = Counter(re.findall(r"^\d+ +([a-z0-9_]+)\(", trace.read_text(), re.MULTILINE))
    assert calls.pop("flock") > 0
    return calls


@pytest.mark.needs_system("strace")
def test_a_hanging_command_is_reported_with_its_place_and_is_ended(
    rig: CampaignRig, needs: Callable[[str], str]
) -> None:
    """
    A tool that waits for somebody who never comes; wherever the command has got to when its time is
    up.
    """
    os.mkfifo(rig.workspace / "never")
    bot = rig.workspace / "bot.py"
    bot.write_text(
        bot.read_text().replace(
            'return f"did {what}"', 'return Path(__file__).with_name("never").read_text()'
        )
    )
    words = rig.begin("act", "answer")
    said = run_warm(rig._warm, needs("strace"), words, None, paths=[], timeout_seconds=1)
    assert said.code is None
    assert "(most recent call first)" in said.err
    assert rig.say(["--json", "sessions", "list"]).code == 0


@pytest.mark.needs_system("strace")
def test_nothing_is_left_of_a_sweep_that_is_given_up(rig: CampaignRig) -> None:
    """Its servers would run for ever."""
    with Path(os.devnull).open("w") as nowhere:
        started = rig._warm.start(
            ["--json", "serve", "--port", "0"],
            out=nowhere.fileno(),
            err=nowhere.fileno(),
            limit=None,
            disturbed=True,
        )
    started.go()
    rig.close()
    wait_until_gone(started.pid)
