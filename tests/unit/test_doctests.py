"""Every example in a docstring runs as it is printed."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
EXAMPLES = sorted(
    path for path in PACKAGE.rglob("*.py") if re.search(r"^ *>>> ", path.read_text(), re.MULTILINE)
)


def module_of(path: Path) -> str:
    return ".".join(("holdfast", *path.relative_to(PACKAGE).with_suffix("").parts))


@pytest.mark.parametrize("path", EXAMPLES, ids=module_of)
def test_the_examples_of_a_module_run_as_printed(path: Path) -> None:
    assert doctest.testmod(import_module(module_of(path))).failed == 0
