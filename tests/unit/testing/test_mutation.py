"""The mutants are what they say, and each is one change."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from proof.mutation.command import MODULES, sampled
from proof.mutation.fork_server import graft
from proof.mutation.mutants import left_out, mutants_of, mutated

ROOT = Path(__file__).parents[3]
SOURCE = """
def may(age, known):
    if not known:
        return False
    return age < 18 and known
"""


def test_every_sort_of_mutant_is_made() -> None:
    found = {each.what: ast.unparse(mutated(SOURCE, each)) for each in mutants_of("m.py", SOURCE)}
    assert sorted(found) == [
        "`18` becomes `19`",
        "`False` becomes `True`",
        "`age < 18 and known` becomes `age < 18 or known`",
        "`age < 18` becomes `age <= 18`",
        "`not known` becomes `known`",
        "`return age < 18 and known` returns nothing",
        "the guard `if not known` is taken out",
    ]
    whole = ast.unparse(ast.parse(SOURCE))
    assert all(changed != whole and ast.parse(changed) for changed in found.values())
    assert "if" not in found["the guard `if not known` is taken out"]


def test_a_seed_takes_the_same_sample_and_every_named_module_exists() -> None:
    few = ("journal/chain.py", "journal/strict.py")
    assert sampled(ROOT, count=5, seed=3, modules=few) == sampled(
        ROOT, count=5, seed=3, modules=few
    )
    assert all((ROOT / "src/holdfast" / module).is_file() for module in MODULES)
    assert all(
        (ROOT / place).exists()
        for tests in MODULES.values()
        for places in tests
        for place in places
    )


WHERE = """
LIMIT = 3

class Door(Struct, frozen=True):
    code: int = 7

    @property
    def open(self, when=1):
        def inner():
            return self.code == 7
        return inner()

def told(name):
    if (
        name
        == 5
    ):
        raise Refused(f"{name + 1} is not a name")
"""


def test_each_mutant_says_where_it_is_and_which_lines_would_meet_it() -> None:
    found = {
        (each.what.split(" becomes")[0], each.function, each.lines)
        for each in mutants_of("m.py", WHERE)
    }
    assert found == {
        ("`3`", None, (2, 2)),
        ("`7`", None, (5, 5)),
        ("`1`", None, (8, 8)),
        ("`return inner()` returns nothing", "Door.open", (11, 11)),
        ("`return self.code == 7` returns nothing", "Door.open", (10, 10)),
        ("`self.code == 7`", "Door.open", (10, 10)),
        ("`7`", "Door.open", (10, 10)),
        ("the guard `if name == 5` is taken out", "told", (14, 17)),
        ("`name == 5`", "told", (14, 17)),
        ("`5`", "told", (14, 17)),
    }


def test_skipped_entries_are_counted_with_their_reason() -> None:
    """Two in the text of an error, one that says how a struct may be used."""
    assert left_out(WHERE) == {
        "a text for people": 2,
        "a struct that nobody changes is frozen or not": 1,
    }


LIVING = """
class Door:
    @property
    def open(self):
        return 1 == 1
    @classmethod
    def made(cls):
        return True
def told():
    return 2 < 2
"""


def test_every_holder_of_a_function_runs_the_mutant() -> None:
    module = ModuleType("living")
    exec(compile(LIVING, "living.py", "exec"), vars(module))  # noqa: S102  # a module of this test's own
    module.__file__ = "living.py"
    told, door = module.told, module.Door()
    assert (told(), door.open, door.made()) == (False, True, True)
    for each in mutants_of("living.py", LIVING):
        if each.what in {
            "`2 < 2` becomes `2 <= 2`",
            "`1 == 1` becomes `1 != 1`",
            "`True` becomes `False`",
        }:
            graft(module, mutated(LIVING, each), each.function or "")
    assert (told(), door.open, door.made()) == (True, False, False)


REPORT = """
- `journal/chain.py`, line 1: `return max(self._keys, default=0)` returns nothing.
- `journal/strict.py`, line 1: the guard `if same and (any_integer or raw.translate(_AS_ZEROS).find(_LONG_DIGITS) < 0)` is taken out.
- `journal/record.py`, line 1: `2 * MAC_BYTES` becomes `2 + MAC_BYTES`.
- `journal/record.py`, line 1: `len(_MAC) + 2 * MAC_BYTES` becomes `len(_MAC) - 2 * MAC_BYTES`.
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_change_that_matters_is_noticed_and_one_that_does_not_survives(tmp_path: Path) -> None:
    """
    As a person runs it: in a fork, and in a copy for what is read at import; what a report lists
    and is not a mutant is passed over.
    """
    again, report = tmp_path / "again.md", tmp_path / "report.md"
    again.write_text(REPORT)
    modules = ["journal/chain.py", "journal/strict.py", "journal/record.py"]
    words = [
        sys.executable,
        "-m",
        "proof.mutation.command",
        "--again",
        str(again),
        "--report",
        str(report),
        "--modules",
        *modules,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 mutants: 2 noticed, 1 survives" in done.stdout
    assert [line.split(", line ")[0] for line in report.read_text().splitlines()] == [
        "- `journal/strict.py`"
    ]
