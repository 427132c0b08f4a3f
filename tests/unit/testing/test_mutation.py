"""The mutants are what they say, and each is one change."""

import ast
from pathlib import Path

from holdfast.testing.mutation import MODULES, mutants_of, mutated, sampled

ROOT = Path(__file__).parents[3]
SOURCE = """
def may(age, known):
    if not known:
        return False
    return age < 18 and known
"""


def test_every_sort_of_mutant_is_made() -> None:
    found = {each.what: mutated(SOURCE, each) for each in mutants_of("m.py", SOURCE)}
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
    assert sampled(ROOT, count=5, seed=3) == sampled(ROOT, count=5, seed=3)
    assert all((ROOT / "src/holdfast" / module).is_file() for module in MODULES)
    assert all((ROOT / place).exists() for tests in MODULES.values() for place in tests)
