"""
Every lock is complete: whatever a pinned distribution requires, extras included, is pinned there.

The locks are installed with `--no-deps`, because pip does not find the pin of a distribution that
another one requires with an extra. So nothing else would notice a gap before the import.
"""

import itertools
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# An adapter's framework has a lock and an environment of its own.
ADAPTERS = [each for each in EXTRAS if (LOCKS / f"integrations-{each}.lock").exists()]
OURS = [each for each in EXTRAS if each not in ADAPTERS]
_REQUIRES = """
import json
from importlib.metadata import distributions
print(json.dumps({each.metadata["Name"]: each.requires or [] for each in distributions()}))
"""


def gaps(
    pinned: Iterable[str], wanted: Iterable[str], requires: Mapping[str, Sequence[str]]
) -> list[str]:
    """
    Follow the requirements, with their extras, from those that are wanted. Return `NAME needs
    OTHER` for each that is not pinned.
    """
    known = {canonicalize_name(name): list(each) for name, each in requires.items()}
    names = {canonicalize_name(name) for name in pinned}
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [("the lock's source", Requirement(each), frozenset({""})) for each in wanted]
    while left:
        by, required, extras = left.pop()
        if required.marker is not None and not any(
            required.marker.evaluate({"extra": extra}) for extra in extras
        ):
            continue
        name = canonicalize_name(required.name)
        if name not in names:
            found.add(f"{by} needs {required}")
        wanted_extras = frozenset({"", *required.extras})
        if (name, wanted_extras) not in seen:
            seen.add((name, wanted_extras))
            left += [(name, Requirement(each), wanted_extras) for each in known.get(name, ())]
    return sorted(found)


def pinned_in(lock: Path) -> list[str]:
    return [line.partition("==")[0] for line in lock.read_text().splitlines() if "==" in line[:100]]


def listed_in(source: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in source.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def requires_in(python: str) -> dict[str, list[str]]:
    done = subprocess.run([python, "-c", _REQUIRES], capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("lock", ["runtime", *OURS, "test", "build"])
def test_a_lock_pins_everything_that_its_distributions_require(lock: str) -> None:
    """The environment of the tests has all of these installed."""
    base: list[str] = PROJECT["dependencies"]
    wanted = {
        "build": listed_in(LOCKS / "build.in"),
        "runtime": base,
        "test": [
            *base,
            *itertools.chain(*(EXTRAS[each] for each in OURS)),
            *listed_in(LOCKS / "test.in"),
        ],
    }.get(lock, [*base, *EXTRAS.get(lock, [])])
    requires = requires_in(sys.executable)
    pinned = pinned_in(LOCKS / f"{lock}.lock")
    assert gaps(pinned, wanted, requires) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_lock_of_an_adapter_pins_everything_that_its_framework_requires(adapter: str) -> None:
    environment = ROOT / f".venv-{adapter}"
    if not (environment / ".made").exists():
        pytest.skip("`make test-integrations` makes the environment of the adapter")
    wanted = [*PROJECT["dependencies"], *EXTRAS[adapter]]
    pinned = pinned_in(LOCKS / f"integrations-{adapter}.lock")
    assert gaps(pinned, wanted, requires_in(str(environment / "bin/python"))) == []


def test_the_peers_lock_pins_everything_that_its_distributions_require() -> None:
    python = ROOT / ".venv-peers/bin/python"
    if not (ROOT / ".venv-peers/.made").exists():
        pytest.skip("`make bench-peers` makes the environment of the peers")
    pinned = pinned_in(LOCKS / "peers.lock")
    assert gaps(pinned, listed_in(LOCKS / "peers.in"), requires_in(str(python))) == []


def test_a_gap_is_found_also_behind_an_extra() -> None:
    requires = {"a": ['b[fast]; extra == "x"', 'c; extra == "y"'], "b": ['d; extra == "fast"']}
    assert gaps(["a", "b", "d"], ["a[x]"], requires) == []
    assert gaps(["a", "b"], ["a[x]"], requires) == ['b needs d; extra == "fast"']
    assert gaps(["a"], ["a"], requires) == []
