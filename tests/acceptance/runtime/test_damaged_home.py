"""
L4, P9: a process that runs on over a changed journal of its home. Nothing counts that rests on the
home's record any more, although the process remembers what was there.
"""

from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Untrusted
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import alice


def change_a_byte(home: Path, word: bytes) -> None:
    """In place, with the same size, in the last record that holds the word."""
    (segment,) = (home / "home").glob("*.jsonl")
    data = segment.read_bytes()
    at = data.rindex(word)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def agent(ran: list[str]) -> holdfast.Agent:
    @holdfast.tool
    def restart(what: str) -> str:
        """Restart something."""
        ran.append(what)
        return "restarted"

    return holdfast.Agent("ops", model="demo", tools=[restart])


@pytest.mark.parametrize("word", [b"grant_activated", b"session_created", b"home_created"])
@in_loop
async def test_no_grant_counts_once_the_homes_journal_was_changed(
    tmp_path: Path, word: bytes
) -> None:
    """The grant is in memory, and the bytes that vouch for it are not what was written."""
    ran: list[str] = []
    async with holdfast.open(tmp_path / "home", agents=[agent(ran)]) as home:
        asked = await home.send("ops/a", "restart what=api", source=alice)
        await home.answer(asked.approvals[0], "approve_everywhere", by=alice)
        again = await home.send("ops/a", "restart what=api", source=alice)
        assert (again.outcome, ran) == ("completed", ["api", "api"])
        change_a_byte(tmp_path / "home", word)
        with pytest.raises(Untrusted):
            await home.send("ops/a", "restart what=api", source=alice)
        assert ran == ["api", "api"]


@in_loop
async def test_nothing_is_created_over_a_changed_journal_of_the_home(tmp_path: Path) -> None:
    """An acknowledged creation on top of a broken record would be lost with it."""
    async with holdfast.open(tmp_path / "home", agents=[agent([])]) as home:
        await home.send("ops/a", "hello", source=alice)
        change_a_byte(tmp_path / "home", b"session_created")
        with pytest.raises(Untrusted):
            await home.send("ops/b", "hello", source=alice)
    assert not (tmp_path / "home/sessions/ops/b").exists()
