"""
Tables of anchors that are replaced or removed under a process that has them open: what the path
names is what counts, for everybody alike.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BrokenChain, CutShort
from holdfast.ids import SessionId
from holdfast.ports.journal_store import SealMark
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def renamed_over(table: Path) -> None:
    copy = table.with_name("copy")
    shutil.copy2(table, copy)
    copy.replace(table)


def moved_away(table: Path) -> None:
    away = table.with_name("away")
    table.rename(away)
    shutil.copy2(away, table)


@pytest.mark.parametrize("replace", [renamed_over, moved_away])
@in_loop
async def test_an_identical_copy_of_a_table_makes_nobody_deaf(
    files: Any, replace: Callable[[Path], None]
) -> None:
    """
    A backup tool put it there: what others append, seal and delete from then on is seen as before
    (D4, L7).
    """
    await files.create(2)
    async with files.store() as store:
        ours = await store.open(OPS)
        for table in ("_home", "0000.anchors"):
            replace(files.path / "anchors" / table)
        async with files.store() as peer:
            theirs = await peer.open(OPS)
            await theirs.append(files.says(2), since=theirs.head)
            assert not await ours.is_at_head()
            done = await ours.append(files.says(3), since=ours.head)
            assert files.of(done.suffix) == [2, 3]
            await theirs.seal(SealMark("broken", "somebody said so", 1))
            with pytest.raises(BrokenChain):
                await ours.append(files.says(4), since=ours.head)
            await peer.delete(OPS, by="tests")
            assert await store.sessions() == []


@in_loop
async def test_a_table_that_was_removed_under_us_is_cut_short(files: Any) -> None:
    """Nothing is acknowledged to an anchor that nobody else will find."""
    await files.create(2)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(2), since=journal.head)
        (files.path / "anchors/0000.anchors").unlink()
        with pytest.raises(CutShort):
            await journal.append(files.says(3), since=journal.head)
