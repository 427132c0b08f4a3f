"""
Whoever can write into a home, and has no key of it, puts a key of their own there: nothing that is
sealed with it is believed, and nothing is sealed with it.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from holdfast.errors import BrokenChain, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import Anchor, encode_slot, slot_offset
from holdfast.journal.chain import Keyring, subkey
from holdfast.journal.fence import Fence
from holdfast.journal.record import read_unverified
from holdfast.journal.segment import read_opened
from holdfast.ports.journal_store import Draft
from holdfast.ports.snapshots import Snapshot
from holdfast.testing.loop import in_loop

OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")
THEIRS = bytes(range(32))
_FORGED_COUNTER = 10_000  # newer than any slot that is there


def plant(home: Path, generation: int = 2) -> Keyring:
    (home / f"keys/{generation}.key").write_bytes(THEIRS)
    (home / f"keys/{generation}.key").chmod(0o600)
    return Keyring({generation: THEIRS}, OPS, INSTANCE)


def forge(
    segment: Path,
    anchors: Path,
    keys: Keyring,
    session: SessionId,
    instance: InstanceId,
    *drafts: Draft,
) -> None:
    """
    The segment again, with the header's own word for what came before it, sealed with the planted
    key; and an anchor that names it.
    """
    header = read_unverified(segment.read_bytes().splitlines(keepends=True)[0])
    opened = read_opened(header.body) if header is not None else None
    assert header is not None
    assert opened is not None
    forged = Fence(keys, session, instance, number=opened.number)
    forged.previous, forged.seq, forged.at, forged.epoch = (
        opened.previous,
        header.seq - 1,
        header.at,
        header.epoch,
    )
    forged.mac = bytes.fromhex(opened.previous.mac) if opened.previous is not None else bytes(32)
    data = forged.open_segment(generation=2, at=header.at, writer="w")
    for draft in drafts:
        data += forged.write(draft, at=header.at, epoch=header.epoch, writer="w")[0]
    segment.write_bytes(data)
    anchor = Anchor(
        2,
        _FORGED_COUNTER,
        forged.number,
        forged.offset,
        forged.seq,
        forged.at,
        forged.epoch,
        forged.mac,
    )
    fd = os.open(anchors, os.O_WRONLY)
    os.pwrite(fd, encode_slot(anchor, keys), slot_offset(_FORGED_COUNTER))
    os.close(fd)


@in_loop
async def test_verify_rejects_a_segment_that_a_planted_key_sealed(files: Any) -> None:
    """
    The header of a closed segment's next one says all that it takes to forge that next one, but for
    a key that counts.
    """
    await files.create(30, segment_bytes=4096)
    forge(
        files.segments[-1],
        files.path / "anchors/0000.anchors",
        plant(files.path),
        OPS,
        INSTANCE,
        Draft("note", 1, b'{"n":666}'),
    )
    async with files.store(segment_bytes=4096) as store:
        verdict = await store.verify_session(OPS)
        assert verdict.verdict == "broken"
        journal = await store.open(OPS)
        assert journal.sealed is not None
        assert 666 not in await files.numbers(journal)
        with pytest.raises(BrokenChain):
            await journal.append(files.says(1), since=journal.head)


@in_loop
async def test_a_home_that_is_sealed_with_a_planted_key_is_not_believed(files: Any) -> None:
    """Its first segment is that of key 1, or of no home of ours."""
    await files.create(1)
    plant(files.path)
    keys = Keyring({2: THEIRS}, SessionId("_home"), InstanceId("home"))
    drafts = [
        Draft("home_created", 1, b'{"home":"h-1"}'),
        Draft(
            "key_rotated",
            1,
            b'{"generation":2,"key_id":"%s","by":"x"}' % keys.get(2).key_id.encode(),
        ),
    ]
    forge(
        files.path / "home/home.00000001.jsonl",
        files.path / "anchors/_home",
        keys,
        SessionId("_home"),
        InstanceId("home"),
        *drafts,
    )
    async with files.store() as store:
        with pytest.raises(Refused) as caught:
            await store.create(
                SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests"
            )
        assert caught.value.code == "no_key"
        assert (await store.verify_session(SessionId("_home"))).verdict == "unreadable"


@in_loop
async def test_a_snapshot_under_a_planted_key_is_ignored(files: Any) -> None:
    await files.create(3)
    plant(files.path)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.keep_snapshot(Snapshot(journal.head, b"ours"))
        assert await journal.read_snapshot() == Snapshot(journal.head, b"ours")
        path = files.folder / "i1.snapshot"
        line = (
            path.read_bytes()
            .split(b"\n")[0]
            .replace(b'"generation":1', b'"generation":2')
            .replace(b'"length":4', b'"length":6')
        )
        data = line + b"\nforged"
        path.write_bytes(
            data + blake3(data, key=subkey(THEIRS, "snapshot", OPS, INSTANCE)).digest()
        )
        assert await journal.read_snapshot() is None


@in_loop
async def test_a_rotation_never_takes_a_key_that_lies_ready(files: Any) -> None:
    """Neither one that somebody planted nor that of a rotation that died: both were never used."""
    await files.create(1)
    plant(files.path)
    async with files.store() as store, files.store() as peer:
        assert await store.rotate_keys(by="alice") == 2
        assert (files.path / "keys/2.key").read_bytes() != THEIRS
        journal = await store.create(
            SessionId("ops/db"), InstanceId("i2"), [], origin="created", by="tests"
        )
        await journal.append(files.says(1), since=journal.head)
        assert await files.numbers(await peer.open(SessionId("ops/db"))) == [1]


@in_loop
async def test_a_planted_key_keeps_nobody_from_writing(files: Any) -> None:
    """It counts for nothing, so nothing is missing between it and the one before."""
    await files.create(1)
    plant(files.path, generation=7)
    async with files.store() as store:
        journal = await store.open(OPS)
        await journal.append(files.says(1), since=journal.head)
        assert await store.rotate_keys(by="alice") == 2
