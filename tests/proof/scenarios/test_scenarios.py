"""
The story book: every file is replayed through the real core, and must tell what is committed.
`pytest --rewrite` writes them anew.
"""

import re
from pathlib import Path

import pytest
from proof.scenarios.teller import SEPARATOR, retold

STORIES = sorted(Path(__file__).parent.rglob("*.txt"))

# Cases of the acceptance list that the pure core can meet; the others need I/O, and are tested
# where that is.
CASES = {*range(9, 22), 23, 24, *range(25, 30), 31, *range(33, 49), 50} - {22, 30, 49}


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_every_scenario_still_has_the_same_records(
    story: Path, pytestconfig: pytest.Config
) -> None:
    """The reviewed story is the one that happens."""
    told = story.read_text()
    now = retold(told)
    if pytestconfig.getoption("--rewrite"):
        story.write_text(now)
    else:
        assert now == told


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_no_story_is_empty_or_stuck(story: Path) -> None:
    """
    A story says which promise it is about, tells something, and never shows work that is owed and
    does not move.
    """
    told = story.read_text()
    assert told.startswith("# ")
    assert told.count(f"\n{SEPARATOR}\n") >= 1
    assert "owed, but nothing moves" not in told


def test_every_case_of_a_turn_has_a_story() -> None:
    """The acceptance cases that need no I/O are all told."""
    told = {
        int(number)
        for story in STORIES
        for number in re.findall(r"\d+", re.split(r":", story.read_text().partition("\n")[0])[0])
    }
    assert told >= CASES


def test_a_changed_story_is_noticed() -> None:
    """The comparison is of what is seen, not of the file with itself."""
    assert (
        retold('submit "hello"\n----\n2 SomethingElse\n')
        != 'submit "hello"\n----\n2 SomethingElse\n'
    )
