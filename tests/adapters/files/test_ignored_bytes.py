"""
L4, D3: only the next segment's header, under our key, says which bytes past a segment's end do not
count. A file in quarantine proves nothing.
"""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.ids import SessionId
from holdfast.ports.journal_store import Record
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")
TAIL = b'{"seq":6,"at":17632'


async def verdicts(files: Any) -> tuple[str, str | None]:
    async with files.store(segment_bytes=4096) as store:
        verdict = (await store.verify_session(OPS)).verdict
        journal = await store.open(OPS)
        return verdict, journal.sealed.code if journal.sealed else None


def forge_quarantine(home: Path, segment: Path, cut: bytes, kind: str) -> None:
    """A copy of our own quarantine, made without a key."""
    folder = home / "quarantine/ops/api"
    folder.mkdir(parents=True, exist_ok=True)
    for each in (home / "quarantine", home / "quarantine/ops", folder):
        each.chmod(0o700)
    item = {
        "segment": segment.name,
        "offset": segment.stat().st_size - len(cut),
        "bytes": len(cut),
        "base64": base64.b64encode(cut).decode(),
    }
    path = folder / f"000001-{kind}.json"
    path.write_text(json.dumps(item, separators=(",", ":")))
    path.chmod(0o600)


@pytest.mark.parametrize("kind", ["torn_tail", "failed_batch"])
@in_loop
async def test_a_forged_quarantine_item_launders_nothing(files: Any, kind: str) -> None:
    """L4: bytes behind a closed segment, and a file that claims that they were cut there."""
    await files.create(30, segment_bytes=4096)
    closed = files.segments[0]
    cut = b'{"seq":999,"text":"planted"}\n'
    with closed.open("ab") as file:
        file.write(cut)
    forge_quarantine(files.path, closed, cut, kind)
    assert await verdicts(files) == ("broken", "broken")


async def torn_and_repaired(files: Any) -> Path:
    """The segment whose torn tail was cut; the next one's header names it."""
    await files.create(3)
    torn = files.segments[0]
    with torn.open("ab") as file:
        file.write(TAIL)
    async with files.store() as store:
        await store.open(OPS)
    header = json.loads(files.segments[1].read_bytes().splitlines()[0])
    assert header["body"]["previous"]["ignored"]["length"] == len(TAIL)
    assert header["body"]["previous"]["length"] == torn.stat().st_size
    return torn


@in_loop
async def test_the_bytes_that_a_header_names_may_stand_or_be_gone(files: Any) -> None:
    """A crash between the new segment and the truncation leaves them; nothing is repaired twice."""
    torn = await torn_and_repaired(files)
    assert await verdicts(files) == ("holds", None)
    with torn.open("ab") as file:
        file.write(TAIL)
    for _ in range(2):
        assert await verdicts(files) == ("holds", None)
    assert len(files.segments) == 2


@pytest.mark.parametrize(
    "left",
    [TAIL[:-1], TAIL + b"x", b"X" + TAIL[1:], b"\0" * len(TAIL), TAIL + b"\n"],
    ids=["less", "more", "other", "zeros", "a line"],
)
@in_loop
async def test_other_bytes_in_their_place_are_broken(files: Any, left: bytes) -> None:
    torn = await torn_and_repaired(files)
    with torn.open("ab") as file:
        file.write(left)
    assert await verdicts(files) == ("broken", "broken")


OPEN = """
import asyncio, pathlib, sys
from holdfast.adapters.files import FileStore

async def main():
    await (await FileStore.open_home(pathlib.Path(sys.argv[1]))).open("ops/api")

asyncio.run(main())
"""


def killed_before_truncating(strace: str, home: Path, segment: Path) -> int:
    command = [
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(segment),
        "-e",
        "trace=ftruncate",
        "-e",
        "inject=ftruncate:signal=SIGKILL:when=1",
    ]
    return subprocess.run(
        [*command, sys.executable, "-c", OPEN, str(home)],
        capture_output=True,
        timeout=100,
        check=False,
    ).returncode


@pytest.mark.needs_system("strace")
@in_loop
async def test_killed_between_the_new_segment_and_the_truncation(
    files: Any, needs: Callable[[str], str]
) -> None:
    """
    D3, L7: the tail is still there, the header says that it does not count, and nobody is accused.
    """
    await files.create(3)
    with files.segments[0].open("ab") as file:
        file.write(TAIL)
    assert killed_before_truncating(needs("strace"), files.path, files.segments[0]) != 0
    assert len(files.segments) == 2
    assert files.segments[0].read_bytes().endswith(TAIL), "it was killed before the truncation"
    assert await verdicts(files) == ("holds", None)
    async with files.store() as store:
        records: list[Record] = []
        await (await store.open(OPS)).load(records.append)
        assert [record.type for record in records].count("tail_repaired") == 1
        assert files.of(records) == [0, 1, 2]


@pytest.mark.parametrize("half", [b"", b'{"seq":'], ids=["empty", "begun"])
@in_loop
async def test_a_segment_whose_creation_was_torn_is_replaced_with_the_closing_record_before_it(
    files: Any, half: bytes
) -> None:
    """
    5.4: a closing record's batch goes on in a segment that is not there: both are cut, kept and
    said. Half a line before it is nobody's crash.
    """
    await files.create(30, segment_bytes=4096)
    async with files.store(segment_bytes=4096) as store:
        journal = await store.open(OPS)
        number, before = 30, len(files.segments)
        anchors, cell = files.path / "anchors/0000.anchors", b""
        while len(files.segments) == before:
            cell = anchors.read_bytes()
            await journal.append(files.says(number), since=journal.head)
            number += 1
    *_, closed, last = files.segments
    assert closed.read_bytes().splitlines()[-1].find(b'"segment_closed"') > 0
    last.write_bytes(half)
    anchors.write_bytes(cell)
    async with files.store(segment_bytes=4096) as store:
        assert (await store.verify_session(OPS)).verdict == "torn_tail"
        journal = await store.open(OPS)
        assert journal.sealed is None
        assert await files.numbers(journal) == list(range(number - 1))
        assert (await store.verify_session(OPS)).verdict == "holds"
    assert not closed.read_bytes().splitlines()[-1].find(b'"segment_closed"') > 0
    with closed.open("ab") as file:
        file.write(b"half")
    assert await verdicts(files) == ("broken", "broken")


@in_loop
async def test_the_half_of_a_new_segment_is_kept_too(files: Any) -> None:
    """D3: a segment whose header was never whole is replaced, and its bytes are in quarantine."""
    await files.create(3)
    stray = files.segments[0].with_name("i1.00000002.jsonl")
    stray.write_bytes(TAIL)
    stray.chmod(0o600)
    assert await verdicts(files) == ("torn_tail", None)
    kept = [json.loads(path.read_bytes()) for path in (files.path / "quarantine/ops/api").iterdir()]
    assert (stray.name, TAIL) in [
        (item["segment"], base64.b64decode(item["base64"])) for item in kept
    ]


@in_loop
async def test_a_torn_line_before_another_segment_is_broken(files: Any) -> None:
    """D2, D3: only the last segment may end in half a line, and no crash leaves two halves."""
    await files.create(3)
    with files.segments[0].open("ab") as file:
        file.write(TAIL)
    stray = files.segments[0].with_name("i1.00000002.jsonl")
    stray.write_bytes(TAIL)
    stray.chmod(0o600)
    assert await verdicts(files) == ("broken", "broken")
