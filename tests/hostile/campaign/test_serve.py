"""
Something goes wrong at a system call of a real `holdfast serve`, with a client that talks HTTP to
it; see `proof.campaigns.serve_campaign`.

Here a bounded part; the whole in `make test-long` and by `python -m
proof.campaigns.serve_campaign`.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from proof.campaigns.serve_campaign import CALLS, ServeRig, plan
from proof.campaigns.sweep import CaseVerdict, SweepCase, campaign
from proof.campaigns.syscalls import SyscallFault

DISTURBED = [
    SweepCase("act", "serve", SyscallFault(call, harm, when))
    for call, harm, when in (
        ("fdatasync", "kill", 1),
        ("fdatasync", "kill", 4),
        ("fdatasync", "EIO", 3),
        ("fdatasync", "EIO+", 2),
        ("pwrite64", "kill", 6),
        ("pwrite64", "ENOSPC", 8),
        ("pwrite64", "lie", 9),
        ("fsync", "EIO", 2),
        ("rename,renameat,renameat2", "kill", 1),
        ("openat", "EIO", 20),
    )
]


def problems(verdicts: list[CaseVerdict]) -> list[str]:
    return [f"{verdict.case}: {problem}" for verdict in verdicts for problem in verdict.problems]


@pytest.mark.needs_system("strace")
@pytest.mark.timeout(600)  # half a minute on an idle machine
@pytest.mark.xdist_group("campaign")
def test_a_disturbed_server_keeps_every_promise(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    """
    D1, D2, D5, T1, T2, T7, A1, P11: acknowledged is a subset of recovered, one effect at most, and
    a restarted server finishes it.
    """
    verdicts = campaign(DISTURBED, tmp_path, needs("strace"), rig=ServeRig)
    assert problems(verdicts) == []
    assert sum(verdict.hit for verdict in verdicts) >= 3, "the faults must be felt"


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("call", CALLS)
def test_a_server_disturbed_anywhere_keeps_every_promise(
    tmp_path: Path, needs: Callable[[str], str], call: str
) -> None:
    """Every place of every call, with every harm."""
    strace = needs("strace")
    with closing(ServeRig(tmp_path / "counting", strace)) as counting:
        cases = list(plan(counting, calls=[call]))
    assert cases
    assert problems(campaign(cases, tmp_path, strace, rig=ServeRig)) == []
