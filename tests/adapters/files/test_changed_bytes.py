"""
Changed, missing and added bytes in a journal at rest: refused at the next open, sealed durably,
readable up to the damage.
"""

import base64
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.files import FileStore
from holdfast.errors import BrokenChain, CutShort, Untrusted
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


async def refused(files: Any, path: Path | None = None) -> str:
    """The session is refused, durably, and its verdict says why; returns the seal's code."""
    store = await FileStore.open_home(path or files.path)
    try:
        verdict = await store.verify_session(OPS)
        assert verdict.verdict in {"broken", "cut_short"}, verdict
        journal = await store.open(OPS)
        assert journal.sealed is not None, verdict
        with pytest.raises(Untrusted):
            await journal.append(files.says(99), since=journal.head)
        assert 99 not in await files.numbers(journal)
        assert (await store.verify_session(OPS)).sealed
        return journal.sealed.code
    finally:
        await store.close()


@in_loop
async def test_any_flipped_bit_of_a_journal_is_refused(files: Any, tmp_path: Path) -> None:
    """
    One bit in each byte of a 20-record file: all refused (a sample of the bytes here, every byte of
    a line elsewhere).
    """
    await files.create()
    (segment,) = files.segments
    whole = segment.read_bytes()
    for at in range(0, len(whole), 97):
        home = tmp_path / "copy"
        shutil.copytree(files.path, home)
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        (home / "sessions/ops/api" / segment.name).write_bytes(bytes(changed))
        assert await refused(files, home) in {"broken", "cut_short"}, at
        shutil.rmtree(home)


def lines_changed(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda data: b"".join(change(data.splitlines(keepends=True)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(
            lines_changed(lambda all_: [*all_[:5], all_[6], all_[5], *all_[7:]]),
            "broken",
            id="two records swapped",
        ),
        pytest.param(
            lines_changed(lambda all_: [*all_[:5], *all_[4:]]), "broken", id="a record doubled"
        ),
        pytest.param(
            lines_changed(lambda all_: [*all_[:5], *all_[6:]]), "broken", id="a record deleted"
        ),
        pytest.param(
            lines_changed(lambda all_: all_[:-3]), "cut_short", id="the last three dropped"
        ),
        pytest.param(lambda data: data[:-1], "cut_short", id="the last newline cut"),
        pytest.param(lambda data: data[:-200], "cut_short", id="half a record cut"),
        pytest.param(lambda _: b"", "cut_short", id="emptied"),
        pytest.param(lambda data: data.replace(b"\n", b"\r\n"), "broken", id="CRLF"),
        pytest.param(lambda data: b"\xef\xbb\xbf" + data, "broken", id="BOM"),
        pytest.param(
            lambda data: data + b'{"type":"note","n":7}\n', "broken", id="well-formed JSON added"
        ),
        pytest.param(
            lines_changed(lambda all_: [*all_, all_[7]]), "broken", id="an old record replayed"
        ),
        pytest.param(lambda data: data[:-400] + b"\0" * 400, "broken", id="the end zeroed"),
        pytest.param(lambda data: data[:-400] + b"x" * 399 + b"\n", "broken", id="cut and regrown"),
        pytest.param(lambda data: data.replace(b'"n":3}', b'"n":4}'), "broken", id="a body edited"),
        pytest.param(lambda data: data + b"\n", "broken", id="an empty line added"),
    ],
)
@in_loop
async def test_a_changed_file_is_refused(
    files: Any, change: Callable[[bytes], bytes], code: str
) -> None:
    await files.create()
    (segment,) = files.segments
    times = segment.stat()
    segment.write_bytes(change(segment.read_bytes()))
    os.utime(segment, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert await refused(files) == code


@in_loop
async def test_rows_and_segments_of_another_session_are_refused(files: Any) -> None:
    """Subkeys are per instance, so a genuine row of a neighbour is a forgery here."""
    await files.create()
    other = SessionId("ops/db")
    async with files.store() as store:
        journal = await store.create(other, InstanceId("i2"), [], origin="created", by="tests")
        for number in range(20):
            await journal.append(files.says(number), since=journal.head)
        theirs = journal.files.paths()[0].read_bytes()
    (segment,) = files.segments
    with segment.open("ab") as file:
        file.write(theirs.splitlines(keepends=True)[-1])
    assert await refused(files) == "broken"


@in_loop
async def test_a_whole_segment_of_another_session_is_refused(files: Any) -> None:
    await files.create()
    async with files.store() as store:
        journal = await store.create(
            SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests"
        )
        for number in range(30):
            await journal.append(files.says(number), since=journal.head)
        theirs = journal.files.paths()[0].read_bytes()
    files.segments[0].write_bytes(theirs)
    assert await refused(files) == "broken"


@pytest.mark.parametrize("what", ["first", "middle", "last", "folder", "anchors", "anchor bytes"])
@in_loop
async def test_missing_history_is_cut_short(files: Any, what: str) -> None:
    """A journal without an anchor, an anchor without its journal, a hole."""
    await files.create(60, segment_bytes=2800)
    segments = files.segments
    assert len(segments) > 3
    match what:
        case "first":
            segments[0].unlink()
        case "middle":
            segments[1].unlink()
        case "last":
            segments[-1].unlink()
        case "folder":
            shutil.rmtree(files.folder)
        case "anchors":
            (files.path / "anchors/0000.anchors").unlink()
        case _:
            (files.path / "anchors/0000.anchors").write_bytes(bytes(512))
    assert await refused(files) == "cut_short"


@pytest.mark.parametrize("half", [b"", b'{"seq":'], ids=["empty", "begun"])
@in_loop
async def test_half_a_segment_behind_it_does_not_hide_that_history_was_cut(
    files: Any, half: bytes
) -> None:
    """
    D4: `verify` says what opening says, though the last segment looks like a creation that a crash cut
    off.
    """
    await files.create()
    (segment,) = files.segments
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-3]))
    behind = segment.with_name(segment.name.replace(".00000001.", ".00000002."))
    behind.write_bytes(half)
    behind.chmod(0o600)
    assert await refused(files) == "cut_short"
    store = await FileStore.open_home(files.path)
    assert (await store.verify_session(OPS)).verdict == "cut_short"
    await store.close()


@in_loop
async def test_a_closed_segment_is_checked_at_open_and_by_verify(files: Any) -> None:
    """One digest for each; the record is found by `verify`, which says where."""
    await files.create(60, segment_bytes=2800)
    segment = files.segments[1]
    data = bytearray(segment.read_bytes())
    at = data.index(b'"n":')
    data[at + 4] ^= 1
    segment.write_bytes(bytes(data))
    async with files.store() as store:
        verdict = await store.verify_session(OPS)
        assert (verdict.verdict, verdict.segment, verdict.sealed) == ("broken", segment.name, False)
        assert verdict.byte is not None
        assert verdict.byte <= at
    assert await refused(files) == "broken"


@pytest.mark.parametrize("where", ["in the middle", "behind the last"])
@in_loop
async def test_bytes_may_not_follow_a_closed_segment(files: Any, where: str) -> None:
    await files.create(60, segment_bytes=2800)
    with files.segments[1 if where == "in the middle" else -2].open("ab") as file:
        file.write(b"half a line")
    assert await refused(files) == "broken"


@in_loop
async def test_a_seal_stays_when_the_bytes_are_put_back(files: Any) -> None:
    """D4: only a person lifts it; a new instance beside the old bytes does."""
    await files.create()
    (segment,) = files.segments
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-10])
    assert await refused(files) == "cut_short"
    segment.write_bytes(whole)
    async with files.store() as store:
        journal = await store.open(OPS)
        assert journal.sealed is not None
        with pytest.raises(CutShort):
            await journal.append(files.says(1), since=journal.head)
        assert await files.numbers(journal) == list(range(20))
        risen = await store.create(
            OPS, InstanceId("i2"), [Draft("note", 1, b'{"n":0}')], origin="unseal", by="alice"
        )
        assert risen.sealed is None
        await risen.append(files.says(1), since=risen.head)
    async with files.store() as store:
        journal = await store.open(OPS)
        assert (journal.instance, journal.sealed) == ("i2", None)
        assert await files.numbers(journal) == [0, 1]
    assert segment.read_bytes() == whole, "old bytes stay"


@in_loop
async def test_reading_a_sealed_session_gives_what_verifies(files: Any) -> None:
    await files.create()
    (segment,) = files.segments
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(
        b"".join(lines[:10]) + lines[10].replace(b'"n":9}', b'"n":8}') + b"".join(lines[11:])
    )
    async with files.store() as store:
        journal = await store.open(OPS)
        assert await files.numbers(journal) == list(range(9))
        assert journal.sealed is not None
        assert journal.sealed.at_seq == 10


@in_loop
async def test_a_torn_tail_is_cut_kept_and_said(files: Any) -> None:
    """D3: the cut bytes are in quarantine, the cut is a record, and nobody is accused."""
    await files.create(3)
    tail = b'{"seq":6,"at":17632'
    with files.segments[0].open("ab") as file:
        file.write(tail)
    async with files.store() as store:
        assert (await store.verify_session(OPS)).verdict == "torn_tail"
        assert files.segments[0].read_bytes().endswith(tail), "verify changes nothing"
        journal = await store.open(OPS)
        records: list[Any] = []
        await journal.load(records.append)
        assert journal.sealed is None
        body = msgspec.json.decode(records[-1].body)
        assert (records[-1].type, body["bytes"]) == ("tail_repaired", len(tail))
        kept = msgspec.json.decode((files.path / body["quarantine"]).read_bytes())
        assert base64.b64decode(kept["base64"]) == tail
        assert (await store.verify_session(OPS)).verdict == "holds"
    assert not any(tail in segment.read_bytes() for segment in files.segments)


@in_loop
async def test_every_cut_of_an_unacknowledged_record_is_repaired(
    files: Any, tmp_path: Path
) -> None:
    """The same file, cut at every byte of a last record that the anchor does not know of."""
    await files.create(3)
    anchors = (files.path / "anchors/0000.anchors").read_bytes()
    before = files.segments[0].stat().st_size
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(3), since=journal.head)
    whole = files.segments[0].read_bytes()
    for size in range(before, len(whole) + 1, 23):
        home = tmp_path / "copy"
        shutil.copytree(files.path, home)
        (home / "anchors/0000.anchors").write_bytes(anchors)
        (home / "sessions/ops/api" / files.segments[0].name).write_bytes(whole[:size])
        store = await FileStore.open_home(home)
        journal = await store.open(OPS)
        assert journal.sealed is None
        assert await files.numbers(journal) == [0, 1, 2]
        await journal.append(files.says(4), since=journal.head)
        await store.close()
        shutil.rmtree(home)


@in_loop
async def test_a_changed_home_journal_refuses_every_write(files: Any) -> None:
    """
    The home can't keep its own seal in a journal that is not believed; its mark is a file, and it
    stays.
    """
    await files.create()
    segment = files.path / "home/home.00000001.jsonl"
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b'"by":"tests"', b'"by":"mallo"'))
    for _ in range(2):
        async with files.store() as store:
            with pytest.raises(BrokenChain):
                await store.create(
                    SessionId("ops/db"), InstanceId("i9"), [], origin="created", by="tests"
                )
        segment.write_bytes(whole)
    async with files.store() as store:
        journal = await store.open(OPS)
        assert await files.numbers(journal) == list(range(20))
        with pytest.raises(Untrusted):
            await journal.append(files.says(1), since=journal.head)


@in_loop
async def test_a_home_that_a_peer_sealed_takes_no_write_of_ours_either(files: Any) -> None:
    """
    D4: whoever found the home's history changed says so durably; putting the bytes back lifts
    nothing, also where the home was open all the time.
    """
    await files.create(1)
    (first, *_) = sorted((files.path / "home").glob("*.jsonl"))
    async with files.store() as open_before:
        journal, home = await open_before.open(OPS), await open_before.home()
        await journal.append(files.says(1), since=journal.head)
        whole = first.read_bytes()
        first.write_bytes(whole.replace(b'"by":"tests"', b'"by":"TESTS"', 1))
        async with files.store() as peer:
            with pytest.raises(Untrusted):
                await (await peer.home()).append(files.says(2), since=home.head)
        first.write_bytes(whole)
        for each in (journal, home):
            with pytest.raises(Untrusted, match="sealed"):
                await each.append(files.says(3), since=each.head)
        await home.close()
        await journal.close()
