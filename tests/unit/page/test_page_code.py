"""The page's own code, run by node against recorded journals and the corpus of hostile texts."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.corpus import HOSTILE_TEXTS

from holdfast.gateway.routes.page import page_files
from holdfast.state_words import state_words

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "proof" / "golden"
PAGE = HERE.parents[2] / "src" / "holdfast" / "gateway" / "page"
COLUMNS_MAX = 100


@pytest.mark.needs_system("node")
@pytest.mark.parametrize("name", sorted(each.name for each in HERE.glob("*.test.mjs")))
def test_the_tests_of_the_page_hold(name: str, tmp_path: Path, needs: Callable[[str], str]) -> None:
    """The files are those that the server would send, with the words that it adds."""
    for each, (content, _, _) in page_files().items():
        path = tmp_path / "page" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "page" / "package.json").write_text('{"type": "module"}')
    corpus = tmp_path / "corpus.json"
    corpus.write_text(json.dumps(HOSTILE_TEXTS))
    done = subprocess.run(
        [needs("node"), "--test", str(HERE / name)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "HOLDFAST_PAGE": str(tmp_path / "page"),
            "HOLDFAST_GOLDEN": str(GOLDEN),
            "HOLDFAST_CORPUS": str(corpus),
        },
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "# pass 0" not in done.stdout


def test_the_page_is_written_at_a_hundred_columns() -> None:
    wide = [
        f"{path.relative_to(PAGE)}:{number}"
        for path in sorted(PAGE.rglob("*"))
        if path.suffix in {".js", ".css", ".html"}
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert wide == []


def test_every_state_that_a_journal_can_hold_has_words() -> None:
    """The command line and the page take them from one file."""
    from typing import get_args

    from holdfast.session import events
    from holdfast.session.state import Phase

    words = state_words()
    assert {each.value for each in Phase} <= words.phases.keys()
    assert set(get_args(events.CallOutcome)) <= words.calls.keys()
    assert set(get_args(events.ClosedAs)) <= words.closed.keys() & words.calls.keys()
    assert set(get_args(events.TurnOutcome)) <= words.turns.keys()
    assert set(get_args(events.JobOutcome)) <= words.calls.keys()


def test_the_page_is_served_whole() -> None:
    """Each import and each style sheet names a file that the server has."""
    import re
    from posixpath import dirname, join, normpath

    files = page_files()
    for name, (content, _, _) in files.items():
        for given in re.findall(r'from "(\.[^"]+)"', content.decode()):
            assert normpath(join(dirname(name), given)) in files, (name, given)
    for given in re.findall(r'"/assets/([^"]+)"', files["index.html"][0].decode()):
        assert given in files
