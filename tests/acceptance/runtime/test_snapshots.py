"""
Opening from a snapshot: the same state, and nothing believed that is forged, stale or foreign (D9).
"""

from pathlib import Path
from typing import Any

import pytest

from holdfast.ids import SessionId
from holdfast.runtime.ledger import ledger as ledgers
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

A = SessionId("ops/a")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(ledgers, "SNAPSHOT_EVERY", 10)
    return Stage("files", tmp_path / "home")


async def grown(stage: Stage, *, turns: int = 6, session: str = "ops/a", padding: str = "") -> Path:
    async with stage.open(
        stage.agent([{"say": f"answer {number}"} for number in range(50)])
    ) as home:
        for number in range(turns):
            await home.send(
                session, f"request {number} {padding}", source=alice, dedup=f"k{number}"
            )
    [path] = (stage.folder / "sessions" / session).glob("*.snapshot")
    return path


async def opened(stage: Stage, session: SessionId = A) -> tuple[Any, int]:
    """The state, and how many records had to be folded for it."""
    folded = 0
    fold = Ledger._fold

    def counting(self: Ledger, record: Any) -> None:
        nonlocal folded
        folded += 1
        fold(self, record)

    Ledger._fold = counting  # type: ignore[method-assign]
    try:
        async with stage.open() as home:
            ledger = await Ledger.open(await home.service.world.store.open(session))
            state = ledger.state
            await ledger.close()
    finally:
        Ledger._fold = fold  # type: ignore[method-assign]
    return state, folded


@in_loop
async def test_only_what_came_since_is_folded_and_the_state_is_the_same(files: Stage) -> None:
    path = await grown(files)
    state, few = await opened(files)
    path.unlink()
    whole, all_ = await opened(files)
    assert state == whole
    assert few < 10 < all_


@in_loop
async def test_a_forged_stale_or_foreign_snapshot_is_ignored(files: Stage) -> None:
    path = await grown(files)
    good = path.read_bytes()
    path.unlink()
    truth, all_ = await opened(files)
    other = (await grown(files, session="ops/b")).read_bytes()
    forgeries = [
        good.replace(b"request 0", b"REQUEST 0"),
        good[:-1],
        good[: len(good) // 2],
        other,
        b"",
        b"x" * 5000,
        good.replace(b'"seq":', b'"seq":1', 1),
    ]
    for forged in forgeries:
        path.write_bytes(forged)
        state, folded = await opened(files)
        assert state == truth
        assert folded == all_
        path.unlink()
    path.write_bytes(good)
    assert (await opened(files))[0] == truth


@in_loop
async def test_a_genuine_snapshot_of_a_past_that_is_not_this_journals_is_ignored(
    files: Stage, tmp_path: Path
) -> None:
    """Rolled back and gone on differently: the record it names is another one."""
    import shutil

    await grown(files, turns=2)
    kept = tmp_path / "kept"
    shutil.copytree(files.folder, kept)
    path = await grown(files, turns=6)
    ahead = path.read_bytes()
    shutil.rmtree(files.folder)
    shutil.copytree(kept, files.folder)
    async with files.open(
        files.agent([{"say": f"answer {number}"} for number in range(50)])
    ) as home:
        for number in range(6):
            await home.send("ops/a", f"different {number}", source=alice)
    for each in (files.folder / "sessions" / "ops" / "a").glob("*.snapshot"):
        each.unlink()
    truth, all_ = await opened(files)
    for each in (files.folder / "sessions" / "ops" / "a").glob("*.snapshot"):
        each.unlink()
    path.write_bytes(ahead)
    state, folded = await opened(files)
    assert (state, folded) == (truth, all_)


@in_loop
async def test_a_changed_closed_segment_is_seen_whatever_the_snapshot_says(files: Stage) -> None:
    await grown(files, turns=8, padding="x" * 100_000)
    segments = sorted((files.folder / "sessions" / "ops" / "a").glob("*.jsonl"))
    assert len(segments) > 2
    segment = segments[0]
    segment.write_bytes(segment.read_bytes().replace(b"request 0", b"REQUEST 0"))
    async with files.open() as home:
        assert (await home.service.show("ops/a")).phase == "sealed"
