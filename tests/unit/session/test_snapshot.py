"""A state as bytes and back is the very state, and goes on the same way."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION
from proof.scenarios.teller import Teller

from holdfast import limits, session
from holdfast.session import persistent as trail
from holdfast.session import transitions
from holdfast.session.authority import context as authority
from holdfast.session.authority import restore as restoring
from holdfast.session.codec import decode
from holdfast.session.evolve import turn as evolve_turn
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.features.memory import items as memory
from holdfast.session.features.reminders import schedule
from holdfast.session.persistent import PersistentList, Window
from holdfast.session.snapshots.layout import layout_of
from holdfast.session.snapshots.session import FOLD, LAYOUT, decode_state, encode_state, layout
from holdfast.session.state import Phase, SessionState, Turn
from holdfast.session.state import turn as state_module
from holdfast.session.view.messages import Usage

HERE = Path(__file__).parents[2]
JOURNALS = sorted((HERE / "proof/golden").glob("session_v*.jsonl"))
STORIES = sorted((HERE / "proof/scenarios").rglob("*.txt"))


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_after_every_record_of_every_kind_the_state_comes_back_as_it_was(journal: Path) -> None:
    state = twin = initial(SESSION, INSTANCE)
    for line in map(json.loads, journal.read_text().splitlines()):
        event = decode(line["type"], line["version"], line["body"].encode())
        state = evolve(state, event, seq=line["seq"], at=line["at"])
        twin = evolve(twin, event, seq=line["seq"], at=line["at"])
        back = decode_state(encode_state(twin))
        assert back == state
        assert back is not None
        twin = back


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_state_at_the_end_of_every_story_comes_back(story: Path) -> None:
    teller = Teller()
    steps = [
        line
        for line in story.read_text().split("----")[0].splitlines()
        if line.strip() and not line.startswith("#")
    ]
    teller.tell(steps)
    assert decode_state(encode_state(teller.pure.state)) == teller.pure.state


def test_decode_state_returns_none_for_another_layout_or_invalid_data() -> None:
    state = SessionState(session=SESSION, instance=INSTANCE)
    assert decode_state(encode_state(state)) == state
    assert decode_state(encode_state(state).replace(LAYOUT.encode(), b"0" * 32)) is None
    for data in (
        b"",
        b"[]",
        b"{}",
        b'["x", 1]',
        f'["{LAYOUT}", ["os.system", "x"]]'.encode(),
        f'["{LAYOUT}", ["SessionState", 1]]'.encode(),
    ):
        assert decode_state(data) is None


def test_no_file_that_a_fold_runs_through_is_left_out_of_the_layout() -> None:
    """
    A snapshot of older code is not read: so a function that is moved to a file of its own stays
    part of what the layout is made of.
    """
    known = {module.__name__ for module in FOLD}
    folder = Path(session.__file__).parent
    used = [
        getattr(each, "__wrapped__", each) for module in FOLD for each in vars(module).values()
    ]  # also of those whose results are kept
    assert {
        f"holdfast.session.evolve.{path.stem}" for path in (folder / "evolve").glob("[a-z]*.py")
    } <= known
    assert {
        each.__module__
        for each in used
        if isinstance(each, FunctionType) and each.__module__.startswith("holdfast.")
    } <= known
    assert {
        each.__module__
        for each in used
        if isinstance(each, type) and each.__module__.startswith("holdfast.session.")
    } <= known


def members() -> Iterator[tuple[type, str]]:
    """Every method and property of our own that a fold could call."""
    for module in FOLD:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name, each in vars(kind).items():
                    code = getattr(
                        each.fget
                        if isinstance(each, property)
                        else getattr(each, "__func__", each),
                        "__code__",
                        None,
                    )
                    if code is not None and code.co_filename == module.__file__:
                        yield kind, name


def test_a_method_or_a_property_that_means_something_else_is_another_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`Turn.phase` and the trail decide what a fold adds up to as much as `evolve` does."""
    found = list(members())
    assert {(Turn, "phase"), (PersistentList, "extend"), (Window, "of"), (Usage, "__add__")} <= set(
        found
    )
    for kind, name in found:
        with monkeypatch.context() as patch:
            is_property = isinstance(vars(kind)[name], property)
            patch.setattr(kind, name, property(lambda _: None) if is_property else lambda *_: None)
            assert layout() != LAYOUT, (kind, name)
    assert layout() == LAYOUT


@pytest.mark.parametrize(("module", "name"), [(limits, "DEDUP_INPUTS"), (trail, "_CHUNK")])
def test_another_bound_of_what_is_remembered_is_another_layout(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    monkeypatch.setattr(module, name, getattr(module, name) + 1)
    assert layout() != LAYOUT


def tables() -> Iterator[tuple[ModuleType, str]]:
    """The tables in the modules that a fold runs through: neither code nor single values."""
    for module in FOLD:
        yield from (
            (module, name)
            for name, each in vars(module).items()
            if isinstance(each, dict | frozenset | tuple) and not name.startswith("__")
        )


def test_another_table_is_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A turn may go from one phase to another because a table says so, and what is not remembered as a
    word stands in one too.
    """
    found = list(tables())
    assert {
        (transitions, "TRANSITIONS"),
        (memory, "_COMMON"),
        (evolve_turn, "_NEEDS_START"),
        (restoring, "_NEVER_BLANK"),
    } <= set(found)
    for module, name in found:
        table = getattr(module, name)
        less = (
            dict(list(table.items())[1:])
            if isinstance(table, dict)
            else type(table)(list(table)[1:])
        )
        with monkeypatch.context() as patch:
            patch.setattr(module, name, less)
            assert layout() != LAYOUT, (module, name)
    assert layout() == LAYOUT


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [
        (memory, "_WORD", re.compile(r"[a-z]+")),
        (authority, "NO_PROVENANCE", authority._DIRECT),
        (schedule, "_SECOND", timedelta(minutes=1)),
        (state_module, "_READY", Phase.DECIDING),
        (
            state_module,
            "Phase",
            StrEnum(
                "Phase",
                {each.name: each.value + "_" for each in Phase},
                module=state_module.__name__,
            ),
        ),
        (schedule, "cron_table", cache(lambda _: None)),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_layout_covers_every_name_that_a_fold_reads(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, other: object
) -> None:
    if callable(other) and not isinstance(other, type):
        other.__module__ = module.__name__
    monkeypatch.setattr(module, name, other)
    assert layout() != LAYOUT


def test_another_default_is_another_layout() -> None:
    """A field that an older record leaves out has its default: of a struct, and of a function."""

    def kept(default: Any, function: FunctionType = lambda: None) -> str:  # type: ignore[assignment]
        return layout_of([function], {"Kept": msgspec.defstruct("Kept", [("field", Any, default)])})

    found = [
        0,
        1,
        "0",
        (),
        frozenset("a"),
        frozenset("b"),
        Phase.READY,
        Phase.DECIDING,
        msgspec.field(default_factory=dict),
    ]
    found += [
        msgspec.field(default_factory=list),
        Usage(),
        Usage(input_tokens=1),
        PersistentList(),
        PersistentList().extend([1]),
        Window(1),
        Window(2),
        None,
    ]
    functions: list[Any] = [
        lambda a=0: a,
        lambda a=1: a,
        lambda *, a=0: a,
        lambda a: a in {1, 2},
        lambda a: a in {1, 3},
    ]
    said = [*map(kept, found), *(kept(0, each) for each in functions)]
    assert len(set(said)) == len(said)
    assert kept(frozenset("ab")) == kept(frozenset("ba"))
    with pytest.raises(TypeError, match="no words for a object"):
        kept(object())


def test_the_layout_is_the_same_in_every_process() -> None:
    """
    A snapshot that only its own process believes would be no use: nothing of it hangs on an address
    or on the order of a set.
    """
    python = [
        sys.executable,
        "-c",
        "from holdfast.session.snapshots.session import LAYOUT; print(LAYOUT)",
    ]
    told = {
        subprocess.run(
            python, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert told == {LAYOUT}


def test_a_window_forgets_the_same_keys_after_it_came_back() -> None:
    state = SessionState(session=SESSION, instance=INSTANCE, delivered=Window(600))
    for number in range(1500):
        state = SessionState(
            session=SESSION, instance=INSTANCE, delivered=state.delivered.add(f"k{number}", "x")
        )
        if number % 97 == 0:
            back = decode_state(encode_state(state))
            assert back is not None
            assert back.delivered.parts() == state.delivered.parts()
