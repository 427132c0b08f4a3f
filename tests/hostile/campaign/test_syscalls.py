"""
Something goes wrong at a system call of a real process in a full approval turn, run through the
command line; see `proof.campaigns.campaign`.

Here a bounded part, spread evenly, with every write and sync of the journal; the whole in `make
test-long` and by `python -m proof.campaigns.campaign`.
"""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from proof.campaigns.campaign import CALLS, CampaignRig, harms_for, plan
from proof.campaigns.sweep import CaseVerdict, SweepCase, campaign
from proof.campaigns.syscalls import LIMIT, SyscallFault

# An answer is four commits, each a write, a sync and the anchor's write, and the anchor's sync;
# with `shell` five. Kills at all of them, each error at some.
KILLED = [
    *(
        SweepCase("act", "answer", SyscallFault("pwrite64", "kill", when))
        for when in (1, 2, 4, 6, 7, 9)
    ),
    *(
        SweepCase("act", "answer", SyscallFault("fdatasync", "kill", when))
        for when in (1, 2, 3, 4, 5)
    ),
    *(SweepCase("shell", "answer", SyscallFault("fdatasync", "kill", when)) for when in (2, 3, 4)),
    SweepCase("act", "answer", SyscallFault("write", "kill", 1)),
    SweepCase("act", "send", SyscallFault("fdatasync", "kill", 2)),
    SweepCase("act", "send", SyscallFault("fsync", "kill", 9)),
    SweepCase("act", "send", SyscallFault("rename,renameat,renameat2", "kill", 1)),
]
REFUSED = [
    *(SweepCase("act", "answer", SyscallFault("pwrite64", "EIO", when)) for when in (1, 4, 6, 8)),
    *(
        SweepCase("act", "answer", SyscallFault("fdatasync", "EIO", when)) for when in (1, 3, 4, 5)
    ),  # the last: the anchor's
    SweepCase("act", "answer", SyscallFault("write", "EIO", 1)),
    SweepCase("act", "answer", SyscallFault("fdatasync", "EIO+", 3)),
    SweepCase("act", "answer", SyscallFault("pwrite64", "ENOSPC+", 6)),
    SweepCase("shell", "answer", SyscallFault("fdatasync", "ENOSPC+", 4)),
    SweepCase("act", "answer", SyscallFault("pwrite64", "EDQUOT", 4)),
    SweepCase("act", "answer", SyscallFault("pwrite64", "EINTR", 1)),
    SweepCase("act", "answer", SyscallFault("openat", "EIO", 12)),
    SweepCase("act", "send", SyscallFault("mkdir,mkdirat", "ENOSPC", 4)),
    SweepCase("act", "send", SyscallFault("link,linkat", "EIO", 1)),
    SweepCase("act", "answer", SyscallFault("pwrite64", "lie", 1)),
    SweepCase("act", "answer", SyscallFault("pwrite64", "short lie", 4)),
    *(
        SweepCase("act", "answer", SyscallFault(LIMIT, "short", when))
        for when in (4300, 5300, 6300)
    ),
]


def problems(verdicts: list[CaseVerdict]) -> list[str]:
    return [f"{verdict.case}: {problem}" for verdict in verdicts for problem in verdict.problems]


@pytest.mark.needs_system("strace")
@pytest.mark.timeout(300)  # half a minute on an idle machine
@pytest.mark.xdist_group("campaign")
@pytest.mark.parametrize("cases", [KILLED, REFUSED], ids=["killed", "refused"])
def test_a_disturbed_turn_keeps_every_promise(
    tmp_path: Path, needs: Callable[[str], str], cases: list[SweepCase]
) -> None:
    """
    D1, D2, D5, T1, T2, A1, P11: acknowledged is a subset of recovered, one effect at most, and the
    turn is finished in the end.
    """
    verdicts = campaign(cases, tmp_path, needs("strace"), rig=CampaignRig)
    assert problems(verdicts) == []
    assert sum(verdict.hit for verdict in verdicts) >= len(cases) // 3, "the faults must be felt"


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("call", [*CALLS, LIMIT])
def test_a_turn_disturbed_anywhere_keeps_every_promise(
    tmp_path: Path, needs: Callable[[str], str], call: str
) -> None:
    """Every place of every call, with every harm."""
    strace = needs("strace")
    with closing(CampaignRig(tmp_path / "counting", strace)) as counting:
        cases = [each for each in plan(counting, calls=[call]) if each.fault.call == call]
    assert cases
    assert problems(campaign(cases, tmp_path, strace, rig=CampaignRig)) == []


def test_every_harm_of_the_list_is_planned() -> None:
    """
    EIO, ENOSPC, EDQUOT, EINTR, once and for good, short and lying writes; for every call that
    changes the disk.
    """
    assert {
        "kill",
        "EIO",
        "EIO+",
        "ENOSPC",
        "ENOSPC+",
        "EDQUOT",
        "EINTR",
        "lie",
        "short lie",
    } == set(harms_for("pwrite64"))
    wanted = {
        "write",
        "pwrite64",
        "fsync",
        "fdatasync",
        "rename",
        "renameat",
        "ftruncate",
        "openat",
        "unlink",
        "unlinkat",
        "mkdir",
    }
    assert wanted <= {name for call in CALLS for name in call.split(",")}
