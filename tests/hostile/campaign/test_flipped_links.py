"""
A whole home whose settings let `write_file` and `read_file` run without a prompt, while another
process flips a folder of the workspace to a link and back.

P4: nothing lands outside, and nothing outside is read; see `tests/adapters/tools/test_flipped_links.py` for
each tool alone.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from tests.adapters.tools import link_flipper

TRIES = 120
SECRET = "outside-91c4"
SETTINGS = '[policy.personal]\nwrite_file = "auto"\nread_file = "auto"\n'


@pytest.mark.timeout(600)
def test_a_turn_without_a_prompt_reads_and_writes_nothing_outside_while_links_are_flipped(
    tmp_path: Path,
) -> None:
    home, workspace, outside = tmp_path / "home", tmp_path / "ws", tmp_path / "outside"
    for folder in (home, workspace, outside, workspace / "d"):
        folder.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(SETTINGS)
    (home / "holdfast.toml").chmod(0o600)
    (outside / "f.txt").write_text(SECRET)
    (workspace / "d" / "f.txt").write_text("inside")
    (workspace / "d.other").symlink_to(outside)
    before = asyncio.run(_talk(home, workspace, tries=4))
    assert _outcomes(before) == {"wrote": 2, "read": 2}
    replies = _talk_while_flipped(home, workspace)
    assert not any(SECRET in reply for reply in replies)
    _lead_outside(workspace)
    after = asyncio.run(_talk(home, workspace, tries=4))
    assert _outcomes(after) == {"refused": 4}
    assert not any(SECRET in reply for reply in after)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("f.txt", SECRET)]


def _lead_outside(workspace: Path) -> None:
    """Leave the link in the folder's place, whichever of the two the flipper left there."""
    if not (workspace / "d").is_symlink():
        (workspace / "d").rename(workspace / "d.real")
        (workspace / "d.other").rename(workspace / "d")


def _outcomes(replies: list[str]) -> Counter[str]:
    return Counter(
        "wrote" if "wrote " in reply else "read" if "inside" in reply else "refused"
        for reply in replies
    )


def _talk_while_flipped(home: Path, workspace: Path) -> list[str]:
    words = [sys.executable, link_flipper.__file__, str(workspace), "d", "d.other"]
    flipper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert flipper.stdout is not None
        if flipper.stdout.readline() != b"flipping\n":
            pytest.skip("two names can't be exchanged on this filesystem")
        return asyncio.run(_talk(home, workspace, tries=TRIES))
    finally:
        flipper.communicate()


async def _talk(home: Path, workspace: Path, *, tries: int) -> list[str]:
    alice = holdfast.MessageSource.local("alice")
    agent = holdfast.Agent("ops", model="demo", tools=["write_file", "read_file"])
    replies = []
    async with holdfast.open(home, agents=[agent]) as opened:
        for number in range(tries):
            text = (
                f"write_file path=d/n{number}.txt content=x"
                if number % 2
                else "read_file path=d/f.txt"
            )
            turn = await opened.send(f"ops/s{number % 4}", text, source=alice, workspace=workspace)
            replies.append(f"{turn.reply} {turn.error}")
    return replies
