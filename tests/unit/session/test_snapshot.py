"""A state as bytes and back is the very state, and goes on the same way."""

import json
from pathlib import Path
from types import FunctionType

import pytest

from holdfast import session
from holdfast.session.codec import decode
from holdfast.session.evolve import evolve, initial
from holdfast.session.snapshot import FOLD, LAYOUT, decode_state, encode_state
from holdfast.session.state import SessionState
from holdfast.session.trail import Window
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
    used = {each.__module__ for module in FOLD for each in vars(module).values() if isinstance(each, FunctionType)}
    assert {f"holdfast.session.{path.stem}" for path in folder.glob("evolve*.py")} <= known
    assert {name for name in used if name.startswith("holdfast.")} == known


def test_a_window_forgets_the_same_keys_after_it_came_back() -> None:
    state = SessionState(session=SESSION, instance=LIFE, delivered=Window(600))
    for number in range(1500):
        state = SessionState(session=SESSION, instance=LIFE, delivered=state.delivered.add(f"k{number}", "x"))
        if number % 97 == 0:
            back = decode_state(encode_state(state))
            assert back is not None
            assert back.delivered.parts() == state.delivered.parts()
