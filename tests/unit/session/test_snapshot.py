"""A state as bytes and back is the very state, and goes on the same way."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from holdfast import limits, session
from holdfast.session import trail
from holdfast.session.codec import decode
from holdfast.session.evolve import evolve, initial
from holdfast.session.messages import Usage
from holdfast.session.snapshot import FOLD, LAYOUT, decode_state, encode_state, layout
from holdfast.session.state import SessionState, Turn
from holdfast.session.trail import Trail, Window
from holdfast.testing.pure_session import LIFE, SESSION
from holdfast.testing.scenarios import Teller

HERE = Path(__file__).parents[2]
JOURNALS = sorted((HERE / "golden").glob("session_v*.jsonl"))
STORIES = sorted((HERE / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_after_every_record_of_every_kind_the_state_comes_back_as_it_was(journal: Path) -> None:
    state = twin = initial(SESSION, LIFE)
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
    steps = [line for line in story.read_text().split("----")[0].splitlines() if line.strip() and not line.startswith("#")]
    teller.tell(steps)
    assert decode_state(encode_state(teller.pure.state)) == teller.pure.state


def test_what_is_of_another_layout_or_no_state_is_none() -> None:
    state = SessionState(session=SESSION, instance=LIFE)
    assert decode_state(encode_state(state)) == state
    assert decode_state(encode_state(state).replace(LAYOUT.encode(), b"0" * 32)) is None
    for data in (b"", b"[]", b"{}", b'["x", 1]', f'["{LAYOUT}", ["os.system", "x"]]'.encode(), f'["{LAYOUT}", ["SessionState", 1]]'.encode()):
        assert decode_state(data) is None


def test_no_file_that_a_fold_runs_through_is_left_out_of_the_layout() -> None:
    """A snapshot of older code is not read: so a function that is moved to a file of its own stays part of what the layout is made of."""
    known = {module.__name__ for module in FOLD}
    folder = Path(session.__file__).parent
    used = [each for module in FOLD for each in vars(module).values()]
    assert {f"holdfast.session.{path.stem}" for path in folder.glob("evolve*.py")} <= known
    assert {each.__module__ for each in used if isinstance(each, FunctionType) and each.__module__.startswith("holdfast.")} <= known
    assert {each.__module__ for each in used if isinstance(each, type) and each.__module__.startswith("holdfast.session.")} <= known


def members() -> Iterator[tuple[type, str]]:
    """Every method and property of our own that a fold could call."""
    for module in FOLD:
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                for name, each in vars(kind).items():
                    code = getattr(each.fget if isinstance(each, property) else getattr(each, "__func__", each), "__code__", None)
                    if code is not None and code.co_filename == module.__file__:
                        yield kind, name


def test_a_method_or_a_property_that_means_something_else_is_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Turn.phase` and the trail decide what a fold adds up to as much as `evolve` does."""
    found = list(members())
    assert {(Turn, "phase"), (Trail, "extend"), (Window, "of"), (Usage, "__add__")} <= set(found)
    for kind, name in found:
        with monkeypatch.context() as patch:
            is_property = isinstance(vars(kind)[name], property)
            patch.setattr(kind, name, property(lambda _: None) if is_property else lambda *_: None)
            assert layout() != LAYOUT, (kind, name)
    assert layout() == LAYOUT


@pytest.mark.parametrize(("module", "name"), [(limits, "DEDUP_INPUTS"), (trail, "_CHUNK")])
def test_another_bound_of_what_is_remembered_is_another_layout(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> None:
    monkeypatch.setattr(module, name, getattr(module, name) + 1)
    assert layout() != LAYOUT


def test_the_layout_is_the_same_in_every_process() -> None:
    """A snapshot that only its own process believes would be no use: nothing of it hangs on an address or on the order of a set."""
    python = [sys.executable, "-c", "from holdfast.session.snapshot import LAYOUT; print(LAYOUT)"]
    told = {subprocess.run(python, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout.strip() for seed in ("1", "2")}
    assert told == {LAYOUT}


def test_a_window_forgets_the_same_keys_after_it_came_back() -> None:
    state = SessionState(session=SESSION, instance=LIFE, delivered=Window(600))
    for number in range(1500):
        state = SessionState(session=SESSION, instance=LIFE, delivered=state.delivered.add(f"k{number}", "x"))
        if number % 97 == 0:
            back = decode_state(encode_state(state))
            assert back is not None
            assert back.delivered.parts() == state.delivered.parts()
