"""
docs/reference/journal-format.md is enough: a verifier written from it alone, with nothing of ours, judges a
real journal.
"""

import json
from pathlib import Path
from typing import Any

from blake3 import blake3

from holdfast.ids import InstanceId, SessionId
from holdfast.testing.loop import in_loop


def subkey(key: bytes, purpose: str, session: str, instance: str) -> bytes:
    parts = b"".join(
        len(part).to_bytes(4, "big") + part.encode() for part in (purpose, session, instance)
    )
    return blake3(parts, key=key).digest()


def lines_of(segments: list[Path], keys: dict[int, bytes], session: str, instance: str) -> int:
    """How many lines verify, of all segments; raises on the first that does not."""
    previous, seq, count, before = bytes(32), 0, 0, b""
    for number, path in enumerate(segments, 1):
        data = path.read_bytes()
        opened = json.loads(data.split(b"\n")[0])["body"]
        key = keys[opened["key"]["generation"]]
        assert opened["key"]["id"] == subkey(key, "key id", "", "").hex()[:16]
        assert (opened["session"], opened["instance"], opened["number"]) == (
            session,
            instance,
            number,
        )
        if number > 1:
            closed = before[: opened["previous"]["length"]]
            assert opened["previous"]["mac"] == previous.hex()
            assert (
                opened["previous"]["digest"]
                == blake3(closed, key=subkey(old, "segment", session, instance)).hexdigest()  # noqa: F821
            )
        for line in data.splitlines(keepends=True):
            header, _, rest = line.partition(b',"body":')
            body, mac = rest[:-75], line[-67:-3].decode()
            fields = json.loads(line)
            digest = blake3(body).digest()
            previous = blake3(
                previous + len(header).to_bytes(4, "big") + header + digest,
                key=subkey(key, "record", session, instance),
            ).digest()
            assert (mac, fields["seq"]) == (previous.hex(), seq + 1)
            if fields["type"] in {"note", "segment_closed"}:
                assert fields.get("more", False) is (fields["type"] == "segment_closed"), (
                    "every append is a batch"
                )
            seq, count = seq + 1, count + 1
        before, old = data, key  # noqa: F841
    assert "more" not in fields, "the last batch is whole"
    return count


def anchor_of(cell: bytes, key: bytes, session: str, instance: str) -> tuple[int, bytes]:
    """(seq, mac) of the newer slot; both verify, in their own places, and are one apart."""
    slots = [cell[:192], cell[192:384]]
    assert all(
        blake3(slot[:160], key=subkey(key, "anchor", session, instance)).digest() == slot[160:]
        for slot in slots
    )
    even, odd = (int.from_bytes(slot[8:16], "big") for slot in slots)
    assert (even % 2, odd % 2, abs(even - odd)) == (0, 1, 1)
    newest = slots[odd > even]
    return int.from_bytes(newest[32:40], "big"), newest[48:80]


@in_loop
async def test_a_stranger_can_verify_a_journal_with_the_key_alone(files: Any) -> None:
    async with files.store(segment_bytes=4096) as store:
        journal = await store.create(
            SessionId("ops/api"), InstanceId("i1"), [], origin="created", by="tests"
        )
        for number in range(40):
            if number == 20:
                await store.rotate_keys(by="alice")
            await journal.append(files.says(number), since=journal.head)
        head = journal.head
    keys = {number: (files.path / f"keys/{number}.key").read_bytes() for number in (1, 2)}
    assert lines_of(files.segments, keys, "ops/api", "i1") == head.seq
    assert (
        anchor_of(
            (files.path / "anchors/0000.anchors").read_bytes()[:512], keys[2], "ops/api", "i1"
        )
        == head
    )
    home = sorted((files.path / "home").glob("*.jsonl"))
    assert lines_of(home, keys, "_home", "home") > 2
