"""
Search: all of what was said, and to each only what their reader set heard. A cache that may be deleted,
forged or behind.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.sqlite.search import SqliteSearch
from holdfast.errors import Refused
from holdfast.ids import SessionId
from holdfast.runtime.lifecycle.import_file import import_file
from holdfast.runtime.reports.search import search
from holdfast.session.authority.context import Audience
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob
from tests.acceptance.runtime.test_import import FILE


def searching(home: Any, place: Path, key: bytes = b"k" * 32) -> Any:
    home.service.runtime.world.search = SqliteSearch(place, lambda: (key,))
    return home.service


async def found(
    service: Any, text: str, person: str | None = None, **more: Any
) -> list[tuple[str, str, str]]:
    report = await search(service.runtime, text, person=person, **more)
    return [(hit.session, hit.turn, hit.kind) for hit in report.hits]


@in_loop
async def test_requests_and_replies_are_found_also_those_since_the_last_search(
    stage: Stage, tmp_path: Path
) -> None:
    async with stage.open(stage.agent([{"say": "The branch is gone."}, {"say": "Fine."}])) as home:
        service = searching(home, tmp_path / "s.db")
        await home.send("ops/a", "delete the old branch", source=alice)
        assert await found(service, "branch") == [
            ("ops/a", "t1", "reply"),
            ("ops/a", "t1", "request"),
        ]
        await home.send("ops/a", "thanks, Branch keeper", source=alice)
        assert await found(service, "BRANCH keeper") == [("ops/a", "t2", "request")]
        assert await found(service, 'no "such" thing') == []
        with pytest.raises(Refused):
            await search(service.runtime, "  ", person=None)


@in_loop
async def test_each_person_finds_only_what_their_reader_set_heard(
    stage: Stage, tmp_path: Path
) -> None:
    team = msgspec.structs.replace(alice, audience=Audience.TEAM, boundary="team:ops")
    async with stage.open(stage.agent([{"say": "ok"}] * 4)) as home:
        service = searching(home, tmp_path / "s.db")
        await home.send("ops/a", "my secret plan", source=alice)
        await home.send("ops/a", "team plan", source=team)
        await home.send("ops/b", "other plan", source=bob)
        assert len(await found(service, "plan")) == 3
        assert await found(service, "plan", "bob") == [("ops/b", "t1", "request")]
        assert set(await found(service, "plan", "alice")) == {
            ("ops/a", "t1", "request"),
            ("ops/a", "t2", "request"),
        }
        assert await found(service, "plan", "carol") == []


@in_loop
async def test_pages_follow_on_each_other(stage: Stage, tmp_path: Path) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 20)) as home:
        service = searching(home, tmp_path / "s.db")
        for number in range(7):
            await home.send(f"ops/s{number}", f"needle {number}", source=alice)
        seen: list[str] = []
        cursor = None
        for _ in range(10):
            report = await search(service.runtime, "needle", person="alice", limit=3, after=cursor)
            seen += [hit.session for hit in report.hits]
            cursor = report.next
            if cursor is None:
                break
        assert sorted(seen) == [f"ops/s{number}" for number in range(7)]


@in_loop
async def test_a_deleted_broken_or_forged_file_changes_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    place = tmp_path / "s.db"
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        service = searching(home, place)
        await home.send("ops/a", "needle", source=alice)
        truth = await found(service, "needle")
        service.runtime.world.search.close()
        place.write_bytes(b"not a database at all" * 100)
        assert await found(searching(home, place), "needle") == truth
        service.runtime.world.search.close()
        place.unlink()
        assert await found(searching(home, place), "needle") == truth
        db = service.runtime.world.search._open()
        db.execute("UPDATE said SET body = replace(CAST(body AS TEXT), 'alice', 'bobby')")
        assert await found(service, "needle") == []


def as_folder(path: Path) -> None:
    path.mkdir()


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_symlink(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(b"of somebody")
    path.symlink_to(path.with_name("elsewhere"))


def as_symlink_to_nowhere(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("way", [as_folder, as_fifo, as_symlink, as_symlink_to_nowhere])
@in_loop
async def test_anything_but_a_file_in_its_place_hides_nothing(
    stage: Stage, tmp_path: Path, way: Callable[[Path], None]
) -> None:
    """
    It is a cache (D9): put out of the way, or done without; what a symlink leads to is not touched.
    """
    async with stage.open(stage.agent([{"say": "Gone."}])) as home:
        await home.send("ops/a", "delete the old branch", source=alice)
        way(tmp_path / "s.db")
        assert await found(searching(home, tmp_path / "s.db"), "branch") == [
            ("ops/a", "t1", "request")
        ]
    assert (
        not (tmp_path / "elsewhere").exists()
        or (tmp_path / "elsewhere").read_bytes() == b"of somebody"
    )


@in_loop
async def test_after_a_rotation_of_keys_everything_is_still_found(
    stage: Stage, tmp_path: Path
) -> None:
    """
    Rows under the key of before are believed no more, so their sessions are read again: nothing
    that was said is lost to a search.
    """
    place = tmp_path / "s.db"
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        service = searching(home, place)
        await home.send("ops/a", "needle", source=alice)
        truth = await found(service, "needle")
        service.runtime.world.search.close()
        service = searching(home, place, b"n" * 32)
        assert await found(service, "needle") == truth
        await home.send("ops/a", "another needle", source=alice)
        assert await found(service, "needle") == [("ops/a", "t2", "request"), *truth]


@in_loop
async def test_forged_rows_of_the_search_index_hide_no_text(stage: Stage, tmp_path: Path) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 4)) as home:
        service = searching(home, tmp_path / "s.db")
        for name in ("ops/a", "ops/b"):
            await home.send(name, "needle", source=alice)
        truth = await found(service, "needle")
        db = service.runtime.world.search._open()
        db.execute(
            "INSERT INTO said (session, turn, at, body, mac) VALUES ('ops/x', 't1', 9e15, x'7b7d', x'00')"
        )
        db.execute("INSERT INTO words (rowid, text) VALUES (last_insert_rowid(), 'needle')")
        assert await found(service, "needle", limit=2) == truth
        db.execute("UPDATE through SET seq = 1000")
        await home.send("ops/a", "late needle", source=alice)
        assert set(await found(service, "needle")) == {("ops/a", "t2", "request"), *truth}


@in_loop
async def test_a_deleted_session_is_not_found_and_imported_text_belongs_to_the_owner(
    stage: Stage, tmp_path: Path
) -> None:
    async with stage.open(stage.agent([{"say": "ok"}] * 3)) as home:
        service = searching(home, tmp_path / "s.db")
        await home.send("ops/a", "needle", source=alice)
        await import_file(home.service.runtime, "notes/old", FILE, source="old.jsonl", by="alice")
        assert [each[0] for each in await found(service, "needle")] == ["ops/a"]
        assert [each[2] for each in await found(service, "four")] == ["imported"]
        assert await found(service, "four", "alice") == []
        await home.service.runtime.world.store.delete(SessionId("ops/a"), by="alice")
        assert await found(service, "needle") == []
