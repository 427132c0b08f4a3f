"""
Keys: made once, rotated by segment, and when lost, reading goes on and nothing is written, least of
all a new key.
"""

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import Refused
from holdfast.ids import InstanceId, JobId, SessionId
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


@in_loop
async def test_a_key_is_32_bytes_that_only_its_owner_may_read(files: Any) -> None:
    await files.create(1)
    key = files.path / "keys/1.key"
    assert key.stat().st_size == 32
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((files.path / "keys").stat().st_mode) == 0o700
    assert stat.S_IMODE(files.path.stat().st_mode) == 0o700


def swapped(key: Path) -> None:
    key.write_bytes(bytes(32))


@pytest.mark.parametrize(
    ("harm", "verifiable"),
    [
        pytest.param(lambda key: key.unlink(), False, id="deleted"),
        pytest.param(lambda key: key.write_bytes(key.read_bytes()[:31]), False, id="truncated"),
        pytest.param(lambda key: key.write_bytes(b""), False, id="emptied"),
        pytest.param(swapped, False, id="another key"),
        pytest.param(lambda key: key.chmod(0o644), True, id="others may read it"),
        pytest.param(lambda key: key.parent.chmod(0o755), True, id="others may list it"),
    ],
)
@in_loop
async def test_without_a_proper_key_one_reads_and_never_writes(
    files: Any, harm: Callable[[Path], None], verifiable: bool
) -> None:
    await files.create()
    key = files.path / "keys/1.key"
    whole = key.read_bytes()
    before = {path: path.read_bytes() for path in files.path.rglob("*.jsonl")}
    harm(key)
    async with files.store() as store:
        assert await store.sessions() == [OPS]
        journal = await store.open(OPS)
        assert await files.numbers(journal) == list(range(20))
        assert journal.sealed is None
        for write in (
            journal.append(files.says(1), since=journal.head),
            store.create(SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests"),
            store.rotate_keys(by="alice"),
        ):
            with pytest.raises(Refused) as caught:
                await write
            assert caught.value.code == "no_key"
            assert "backup" in caught.value.hint
        assert (await store.verify_session(OPS)).verdict == (
            "holds" if verifiable else "unreadable"
        )
    assert {path: path.read_bytes() for path in files.path.rglob("*.jsonl")} == before
    key.parent.chmod(0o700)
    key.write_bytes(whole)
    key.chmod(0o600)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(20), since=journal.head)
        assert await files.numbers(journal) == list(range(21))


@in_loop
async def test_without_a_key_a_home_is_read_up_to_what_makes_no_sense(files: Any) -> None:
    """
    Nobody vouches for its records, and whoever changed one of them keeps nobody from reading those
    before.
    """
    await files.create(3)
    async with files.store() as store:
        await store.create(SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests")
    (files.path / "keys/1.key").unlink()
    journal = files.path / "home/home.00000001.jsonl"
    journal.write_bytes(
        journal.read_bytes().replace(b'"session":"ops/db"', b'"session":"\xb9\xb9\xb9\xb9\xb9\xb9"')
    )
    async with files.store() as store:
        assert await store.sessions() == [OPS]
        assert await files.numbers(await store.open(OPS)) == [0, 1, 2]


@in_loop
async def test_the_key_of_a_jobs_report_fits_one_job_of_one_instance_and_is_derived_again_after_a_rotation(
    files: Any,
) -> None:
    async with files.store() as store:
        keys = {
            (instance, job): store.job_key(InstanceId(instance), JobId(job))
            for instance in ("i1", "i2")
            for job in ("j-a", "j-b")
        }
        assert len({key.secret for key in keys.values()}) == 4
        assert repr(keys["i1", "j-a"]) == "JobKey(1)"
        await store.rotate_keys(by="alice")
    async with files.store() as store:  # the next process
        assert store.job_key(InstanceId("i1"), JobId("j-a"), 1) == keys["i1", "j-a"]
        newest = store.job_key(InstanceId("i1"), JobId("j-a"))
        assert (newest.generation, newest.secret != keys["i1", "j-a"].secret) == (2, True)
        assert store.job_key(InstanceId("i1"), JobId("j-a"), 3) is None


@in_loop
async def test_a_rotated_key_is_used_from_the_next_segment_on(files: Any) -> None:
    """
    Old segments keep verifying under their own key; a handle that was open all the while follows.
    """
    await files.create(5, segment_bytes=4096)
    async with files.store(segment_bytes=4096) as store, files.store(segment_bytes=4096) as other:
        journal, peer = await store.open(OPS), await other.open(OPS)
        assert await store.rotate_keys(by="alice") == 2
        for number in range(5, 40):
            await journal.append(files.says(number), since=journal.head)
        done = await peer.append(files.says(40), since=peer.head)
        assert files.of(done.suffix) == list(range(5, 41))
        assert (await store.verify_session(OPS)).verdict == "holds"
    generations = [
        msgspec.json.decode(path.read_bytes().split(b"\n")[0])["body"]["key"]["generation"]
        for path in files.segments
    ]
    assert generations == sorted(generations)
    assert (generations[0], generations[-1]) == (1, 2)
    (files.path / "keys/2.key").unlink()
    async with files.store() as store:
        journal = await store.open(OPS)
        assert await files.numbers(journal) == list(range(41))
        with pytest.raises(Refused):
            await journal.append(files.says(41), since=journal.head)
