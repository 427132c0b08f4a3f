"""
The reserve on a filesystem that is really full: a process that used it sets it aside again once
there is room, without being opened anew.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.home.reserve import RESERVE_BYTES
from holdfast.errors import NotSaved
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[str], str]) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        [needs("mount"), "-t", "tmpfs", "-o", f"size={5 * RESERVE_BYTES}", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no filesystem can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path) -> Path:
    """Every byte that is left."""
    path = place / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path


def note(text: str) -> Draft:
    return Draft("note", 1, b'{"text":"%s"}' % (text * 20_000).encode())


@pytest.mark.needs_system("mount")
@pytest.mark.parametrize(
    ("room", "is_filled"), [(0, False), (RESERVE_BYTES, False), (3 * RESERVE_BYTES, True)]
)
@in_loop
async def test_a_process_that_used_the_reserve_fills_it_again_once_there_is_room(
    small_disk: Path, room: int, is_filled: bool
) -> None:
    """
    Not while the disk is full, nor while there is hardly room for records. A store that is closed
    has done what it began.
    """
    home = small_disk / "home"
    reserve = home / "reserve"
    store = await FileStore.open_home(home)
    try:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        claim = await journal.claim()
        assert claim is not None
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES
        filler = fill(small_disk)
        with pytest.raises(NotSaved):
            await journal.append(lambda _: [note("a message")], since=journal.head)
        await journal.append(lambda _: [note("an outcome")], since=journal.head, epoch=claim.epoch)
        assert reserve.stat().st_blocks == 0
        fill(small_disk)
        os.truncate(filler, max(0, filler.stat().st_size - room))
        if room:
            await journal.append(lambda _: [note("room")], since=journal.head)
        await claim.release()
        await journal.close()
        assert (await store.verify_session(OPS)).verdict == "holds"
    finally:
        await store.close()
    assert (reserve.stat().st_blocks * 512 >= RESERVE_BYTES) is is_filled
