"""
Opening from a snapshot: the same state, and nothing believed that is forged, stale or foreign (D9).
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.ids import SessionId
from holdfast.ports.snapshots import Snapshot, snapshots_of
from holdfast.runtime.context import Tuning
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.rules import LedgerRules
from holdfast.session.snapshots.session import encode_state
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

A = SessionId("ops/a")
RECORDS_OF_A_TURN = 10  # a snapshot is kept at the end of a turn


@pytest.fixture
def files(tmp_path: Path) -> Stage:
    stage = Stage("files", tmp_path / "home")
    stage.tuning = Tuning(snapshot_every_records=10)
    return stage


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
            journal = await home.service.runtime.world.store.open(session)
            ledger = await Ledger.open(journal, LedgerRules(tuning=stage.tuning))
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
async def test_opening_folds_few_records_however_long_the_session_is(tmp_path: Path) -> None:
    """
    Section 8: nothing grows with the session's length. A process that is killed leaves few records
    to fold, and one that lets the session go leaves fewer.
    """
    stage = Stage("files", tmp_path / "home")
    answers = [{"say": f"answer {number}"} for number in range(100)]
    async with stage.open(stage.agent(answers)) as home:
        for number in range(100):
            await home.send(A, f"request {number}", source=alice)
            ledger = home.service.runtime.sessions.get(A)
            assert ledger is not None
            assert ledger.state.seq - ledger._kept_seq < 200 + RECORDS_OF_A_TURN
        assert ledger.state.seq > 400
    state, folded = await opened(stage)
    assert folded < 50
    assert state == ledger.state


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


@pytest.mark.parametrize("whose", ["of an older record", "of another session"])
@in_loop
async def test_a_snapshot_that_is_not_of_the_record_it_names_is_ignored(
    files: Stage, whose: str
) -> None:
    """Its mac is right: a Holdfast with a bug has written it."""
    path = await grown(files)
    await grown(files, turns=8, session="ops/b")
    path.unlink()
    truth, all_ = await opened(files)
    async with files.open() as home:
        store = home.service.runtime.world.store
        journal, other = await store.open(A), await store.open(SessionId("ops/b"))
        ledger = await Ledger.open(other if whose == "of another session" else journal)
        state = msgspec.structs.replace(
            ledger.state, seq=journal.head.seq if whose == "of another session" else 3
        )
        keeper = snapshots_of(journal)
        assert keeper is not None
        await keeper.keep_snapshot(Snapshot(journal.head, encode_state(state)))
        await ledger.close()
    assert path.exists()
    assert await opened(files) == (truth, all_)


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
