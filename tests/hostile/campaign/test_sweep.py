"""A sweep in parts, and one that goes on where it was stopped."""

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest
from proof.campaigns.sweep import CaseVerdict, Notes, SweepCase, _part, chosen, sweep
from proof.campaigns.syscalls import SyscallFault

CASES = [
    SweepCase("act", "send", SyscallFault("fsync", harm, when))
    for when in range(1, 8)
    for harm in ("kill", "EIO")
]
BROKEN = CASES[5]


def test_the_parts_are_the_whole_and_share_nothing() -> None:
    parts = [chosen(CASES, part=(which, 4)) for which in (1, 2, 3, 4)]
    assert sorted(case for part in parts for case in part) == sorted(CASES)
    assert {len(part) for part in parts} == {3, 4}
    assert (
        {case.fault.harm for case in chosen(CASES, part=(1, 2))}
        == {case.fault.harm for case in chosen(CASES, every=2)}
        == {"kill", "EIO"}
    )
    assert chosen(CASES, harms=["kill"], every=3) == [
        SweepCase("act", "send", SyscallFault("fsync", "kill", when)) for when in (1, 4, 7)
    ]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "/4", "1/0", "-1/4", "a/b"])
def test_an_unknown_part_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        _part(text)


class Judging:
    """Tries nothing: what is looked at here is what it is given to try."""

    tried: list[SweepCase]

    def __init__(self, *_: object) -> None:
        pass

    def judge(self, case: SweepCase) -> CaseVerdict:
        self.tried.append(case)
        return CaseVerdict(
            case, ("a promise",) if case == BROKEN else (), hit=True, in_doubt=False, sealed=False
        )

    def close(self) -> None:
        pass


@pytest.mark.needs_system("strace")
def test_a_sweep_goes_on_where_it_was_and_tries_again_what_was_broken(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    needs("strace")
    notes = tmp_path / "notes"

    def swept(*words: str) -> tuple[int, list[SweepCase]]:
        Judging.tried = []
        code = sweep(
            [*words, "--notes", str(notes)],
            name="sweep",
            rig=Judging,
            plan=lambda *_: CASES,
            calls=["fsync"],
        )
        return code, sorted(Judging.tried)

    first, second = chosen(CASES, part=(1, 2)), chosen(CASES, part=(2, 2))
    assert swept("--part", "2/2") == (1, sorted(second))
    assert swept() == (1, sorted([*first, BROKEN]))
    assert swept() == (1, [BROKEN])
    assert sorted(Notes(notes).kept) == sorted(set(CASES) - {BROKEN})
