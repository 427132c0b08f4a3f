"""
A home is opened from a kept fold of its journal where there is one: a cache, of which nothing that
is promised depends.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.home import registry
from holdfast.adapters.files.home.registry import FileRegistry
from holdfast.errors import NewerVersion, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import Record
from holdfast.ports.journal_store import Draft
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.testing.loop import in_loop

KEPT = "home/home.snapshot"
SMALL = {"segment_bytes": 2048}  # a segment for every few creations


@pytest.fixture(autouse=True)
def _kept_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SNAPSHOT_EVERY", 8)


async def create(files: Any, names: str, **settings: Any) -> None:
    async with files.store(**settings) as store:
        for name in names:
            await (
                await store.create(
                    SessionId(f"ops/{name}"), InstanceId("i1"), [], origin="created", by="tests"
                )
            ).close()


async def opened(files: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], int]:
    """The state that a new process knows of the home, and how many records it parsed for it."""
    folded: list[int] = []
    fold = FileRegistry.fold

    def counted(self: FileRegistry, record: Record) -> None:
        folded.append(record.seq)
        fold(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(FileRegistry, "fold", counted)
        store = await FileStore.open_existing(files.path, **SMALL)
    assert store is not None
    try:
        # A copy, since Python 3.13.0 may empty the values of a `__dict__` whose object was
        # collected.
        return dict(vars(store._own.registry.state)), len(folded)
    finally:
        await store.close()


@in_loop
async def test_a_home_is_opened_from_what_was_kept_and_what_came_since(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is the same as without; only what came since is parsed."""
    await create(files, "abcdefghijkl", **SMALL)
    assert (files.path / KEPT).exists()
    state, few = await opened(files, monkeypatch)
    (files.path / KEPT).unlink()
    truth, all_ = await opened(files, monkeypatch)
    assert state == truth
    assert sorted(truth["sessions"]) == [f"ops/{each}" for each in "abcdefghijkl"]
    assert few < 8 < all_


@in_loop
async def test_a_forged_foreign_or_half_kept_home_is_ignored(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = type(files)(tmp_path / "other")
    await create(other, "abcdefghijkl")
    await create(files, "abcdefghijkl", **SMALL)
    good = (files.path / KEPT).read_bytes()
    (files.path / KEPT).unlink()
    truth, all_ = await opened(files, monkeypatch)
    foreign = (other.path / KEPT).read_bytes()
    for forged in (
        good.replace(b"ops/a", b"ops/z"),
        good[:-1],
        good[: len(good) // 2],
        b"",
        b"x" * 5000,
        foreign,
    ):
        (files.path / KEPT).write_bytes(forged)
        assert await opened(files, monkeypatch) == (truth, all_)


@in_loop
async def test_a_home_kept_of_another_past_is_ignored(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Rolled back and gone on differently, under the same key: the record it names is another one, or
    not there at all.
    """
    await create(files, "ab", **SMALL)
    back = tmp_path / "back"
    shutil.copytree(files.path, back)
    await create(files, "cdefghijkl", **SMALL)
    ahead = (files.path / KEPT).read_bytes()
    for names in ("", "mnopqrstuvwxyz"):
        shutil.rmtree(files.path)
        shutil.copytree(back, files.path)
        await create(files, names, **SMALL)
        (files.path / KEPT).unlink(missing_ok=True)
        truth, all_ = await opened(files, monkeypatch)
        (files.path / KEPT).write_bytes(ahead)
        assert await opened(files, monkeypatch) == (truth, all_)
        assert sorted(truth["sessions"]) == [f"ops/{each}" for each in "ab" + names]
        async with files.store(**SMALL) as store:
            ledger = HomeLedger(store)
            assert vars(await ledger.refresh()) == truth
            await ledger.close()


@in_loop
async def test_a_home_snapshot_hides_no_change_of_the_homes_journal(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that the kept fold covers are verified in every opening all the same."""
    await create(files, "abcdefghijklmnop", **SMALL)
    assert (await opened(files, monkeypatch))[1] < 8
    segments = sorted((files.path / "home").glob("*.jsonl"))
    assert len(segments) > 2
    for segment in segments[:-1]:
        whole = segment.read_bytes()
        segment.write_bytes(
            whole.replace(b'"by":"tests"', b'"by":"TESTS"', 1)
            if b'"by":"tests"' in whole
            else whole.replace(b"h-", b"H-", 1)
        )
        async with files.store(**SMALL) as store:
            with pytest.raises(Untrusted):
                await store.create(
                    SessionId("ops/late"), InstanceId("i1"), [], origin="created", by="tests"
                )
        segment.write_bytes(whole)
        (files.path / "home/home.sealed").unlink()


@in_loop
async def test_grants_and_tokens_are_known_from_what_was_kept(files: Any) -> None:
    """The runtime's own fold of the home starts there too, and comes to the same."""
    token = b'{"name":"%s","digest":"d","person":"carol","scopes":["read"],"audience":"team","expires_at":null,"by":"alice"}'
    async with files.store() as store:
        home = await store.home()
        await home.append(lambda _: [Draft("token_added", 1, token % b"before")], since=home.head)
    await create(files, "abcdefghij")
    async with files.store() as store:
        assert store._own.registry._kept_seq > 0
        home = await store.home()
        await home.append(lambda _: [Draft("token_added", 1, token % b"after")], since=home.head)
        found = HomeLedger(store)
        state = dict(vars((await found.refresh()).copy()))
        await found.close()
    (files.path / KEPT).unlink()
    async with files.store() as store:
        whole = HomeLedger(store)
        assert vars(await whole.refresh()) == state
        await whole.close()
    assert sorted(state["tokens"]) == ["after", "before"]


@in_loop
async def test_a_read_only_caller_keeps_nothing(files: Any) -> None:
    await create(files, "abcdefghijkl")
    (files.path / KEPT).unlink()
    store = await FileStore.open_existing(files.path)
    assert store is not None
    await store.heads()
    await store.seals()
    await store.verify_session(SessionId("ops/a"))
    await store.close()
    assert not (files.path / KEPT).exists()


@in_loop
async def test_a_newer_record_of_the_home_is_not_passed_by_looking_again(files: Any) -> None:
    """
    A process that stays does not go on behind what it can't read, and keeps no fold that leaves it
    out.
    """
    await create(files, "abcd")
    async with files.store() as store, files.store() as newer:
        home = await newer.home()
        await home.append(lambda _: [Draft("of_tomorrow", 1, b"{}")], since=home.head)
        for _ in range(3):
            with pytest.raises(NewerVersion):
                await store.create(
                    SessionId("ops/late"), InstanceId("i1"), [], origin="created", by="tests"
                )
            with pytest.raises(NewerVersion):
                await store.heads()
    assert not (files.path / KEPT).exists()
