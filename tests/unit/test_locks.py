"""
Every lock is complete: whatever a pinned distribution requires, extras included, is pinned there in
a version that fits, and the environment has exactly that version.

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
from typing import NamedTuple

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
# Locks with a source and an environment of their own, and the target that makes it.
APART = {"peers": "bench-peers", "locking": "lock"}
_REQUIRES = """
import json
from importlib.metadata import distributions
print(json.dumps({each.metadata["Name"]: (each.version, each.requires or []) for each in distributions()}))
"""


class Distribution(NamedTuple):
    version: str
    requires: Sequence[str] = ()


def gaps(
    pins: Iterable[str], wanted: Iterable[str], installed: Mapping[str, Distribution]
) -> list[str]:
    """
    Follow the requirements, with their extras, from those that are wanted and from every pin. Say
    of each that is not pinned, pinned in a version that does not fit, or installed otherwise.
    """
    known = {canonicalize_name(name): each for name, each in installed.items()}
    pinned = {canonicalize_name(each.name): each for each in map(Requirement, pins)}
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    left = [("the lock's source", Requirement(each), frozenset({""})) for each in wanted]
    left += [("the lock", each, frozenset({""})) for each in pinned.values()]
    while left:
        by, required, extras = left.pop()
        if required.marker is not None and not any(
            required.marker.evaluate({"extra": extra}) for extra in extras
        ):
            continue
        name = canonicalize_name(required.name)
        has = known.get(name)
        if name not in pinned:
            found.add(f"{by} needs {required}")
        elif has is None:
            found.add(f"{name} is not installed")
        elif not pinned[name].specifier.contains(has.version, prereleases=True):
            found.add(f"{name} is installed as {has.version}, not {pinned[name].specifier}")
        elif not required.specifier.contains(has.version, prereleases=True):
            found.add(f"{by} needs {required}, not {has.version}")
        wanted_extras = frozenset({"", *required.extras})
        if (name, wanted_extras) not in seen:
            seen.add((name, wanted_extras))
            left += [
                (name, Requirement(each), wanted_extras) for each in (has.requires if has else ())
            ]
    return sorted(found)


def pins_of(lock: Path) -> list[str]:
    """Return the pins, each with its marker."""
    lines = lock.read_text().splitlines()
    return [
        line.rstrip("\\ ") for line in lines if "==" in line and not line.startswith((" ", "#"))
    ]


def listed_in(source: Path) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in source.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def installed_in(python: str) -> dict[str, Distribution]:
    done = subprocess.run([python, "-c", _REQUIRES], capture_output=True, text=True, check=True)
    return {name: Distribution(*each) for name, each in json.loads(done.stdout).items()}


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
    assert gaps(pins_of(LOCKS / f"{lock}.lock"), wanted, installed_in(sys.executable)) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_lock_of_an_adapter_pins_everything_that_its_framework_requires(adapter: str) -> None:
    environment = ROOT / f".venv-{adapter}"
    if not (environment / ".made").exists():
        pytest.skip("`make test-integrations` makes the environment of the adapter")
    wanted = [*PROJECT["dependencies"], *EXTRAS[adapter]]
    pins = pins_of(LOCKS / f"integrations-{adapter}.lock")
    assert gaps(pins, wanted, installed_in(str(environment / "bin/python"))) == []


@pytest.mark.parametrize("lock", APART)
def test_a_lock_with_an_environment_of_its_own_pins_everything(lock: str) -> None:
    environment = ROOT / f".venv-{lock}"
    if not (environment / ".made").exists():
        pytest.skip(f"`make {APART[lock]}` makes the environment")
    pins, wanted = pins_of(LOCKS / f"{lock}.lock"), listed_in(LOCKS / f"{lock}.in")
    assert gaps(pins, wanted, installed_in(str(environment / "bin/python"))) == []


def test_a_gap_is_found_also_behind_an_extra() -> None:
    installed = {
        "a": Distribution("1", ['b[fast]; extra == "x"', 'c; extra == "y"']),
        "b": Distribution("2", ['d; extra == "fast"']),
        "d": Distribution("3"),
    }
    assert gaps(["a==1", "b==2", "d==3"], ["a[x]"], installed) == []
    assert gaps(["a==1", "b==2"], ["a[x]"], installed) == ['b needs d; extra == "fast"']
    assert gaps(["a==1"], ["a"], installed) == []


def test_a_pin_that_nobody_reaches_is_followed_too() -> None:
    installed = {"a": Distribution("1"), "b": Distribution("2", ["c"])}
    assert gaps(["a==1", "b==2"], ["a"], installed) == ["b needs c"]


def test_a_gap_names_a_distribution_that_is_absent_or_has_another_version() -> None:
    """Nothing can be said about what it requires."""
    installed = {"a": Distribution("1", ["b>=2"]), "b": Distribution("2")}
    assert gaps(["a==1", "b==2"], ["a>=1"], installed) == []
    assert gaps(["a==1", "b==2", "c==1"], ["a"], installed) == ["c is not installed"]
    assert gaps(["a==1", "c==1 ; sys_platform == 'win32'", "b==2"], ["a"], installed) == []
    assert gaps(["a==1", "b==3"], ["a"], installed) == ["b is installed as 2, not ==3"]
    assert gaps(["a==1", "b==2"], ["a", "b<2"], installed) == [
        "the lock's source needs b<2, not 2",
    ]
