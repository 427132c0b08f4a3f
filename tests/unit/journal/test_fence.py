"""
The fence: moved only by what verifies or by what it framed, across segments, and never by anything
else.
"""

from typing import Any

import msgspec
import pytest

from holdfast.errors import InvariantBroken, NewerVersion
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import ZERO_MAC, Draft, frame
from holdfast.journal.segment import (
    CLOSED,
    FORMAT,
    OPENED,
    Previous,
    SegmentKey,
    SegmentOpened,
    is_own,
)

OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")
KEYS = {1: bytes(range(32)), 2: bytes(range(1, 33))}


def fence(*, session: SessionId = OPS, instance: InstanceId = INSTANCE, number: int = 1) -> Fence:
    return Fence(Keyring(KEYS, session, instance), session, instance, number=number)


def segment(writer: Fence, *texts: str, generation: int = 1, at: int = 10) -> bytes:
    lines = [writer.open_segment(generation=generation, at=at, writer="w")]
    lines += [
        writer.write(
            Draft("note", 1, b'{"text":"%s"}' % text.encode()), at=at, epoch=0, writer="w"
        )[0]
        for text in texts
    ]
    return b"".join(lines)


def test_a_framed_segment_verifies_and_both_fences_reach_the_same_head() -> None:
    writer, reader = fence(), fence()
    data = segment(writer, "one", "two")
    fed = reader.feed(data)
    assert [record.body for record in fed.records if not is_own(record)] == [
        b'{"text":"one"}',
        b'{"text":"two"}',
    ]
    assert (reader.head, reader.offset, reader.closing()) == (
        writer.head,
        writer.offset,
        writer.closing(),
    )
    assert reader.prefix_holds(data)


def test_a_clock_at_its_beginning_is_not_damage() -> None:
    data = segment(fence(), "one", at=0)
    assert fence().feed(data).taken == len(data)


@pytest.mark.parametrize("generation", [1, 2])
def test_a_closed_segment_is_followed_into_the_next(generation: int) -> None:
    """Rotation, of the key too."""
    writer, reader = fence(), fence()
    first = segment(writer, "one") + writer.close_segment(at=10, writer="w")
    writer.enter_next()
    second = segment(writer, "two", generation=generation)
    assert reader.feed(first).taken == len(first)
    reader.enter_next()
    assert reader.feed(second).taken == len(second)
    assert reader.head == writer.head


def test_generations_never_fall() -> None:
    writer = fence()
    segment(writer, "one", generation=2)
    writer.close_segment(at=10, writer="w")
    writer.enter_next()
    segment(writer, "two", generation=1)
    assert writer.generation == 2


def test_a_reader_may_start_at_any_segment_by_its_own_mac() -> None:
    writer = fence()
    segment(writer, "one")
    writer.close_segment(at=10, writer="w")
    writer.enter_next()
    second = segment(writer, "two")
    reader = fence(number=2)
    assert reader.feed(second).taken == len(second)
    assert reader.head == writer.head
    assert reader.previous == writer.previous


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            lambda: segment(fence(session=SessionId("ops/db")), "one"), id="another session's"
        ),
        pytest.param(
            lambda: segment(fence(instance=InstanceId("i0")), "one"), id="an earlier instance's"
        ),
        pytest.param(lambda: b'{"text":"hello"}\n', id="no record"),
        pytest.param(lambda: segment(fence(), "one").split(b"\n", 1)[1], id="no header"),
    ],
)
def test_a_foreign_segment_is_not_believed(other) -> None:
    reader = fence()
    fed = reader.feed(other())
    assert (fed.taken, fed.bad_line, reader.offset) == (0, True, 0)


def test_nothing_may_follow_a_closing_record() -> None:
    writer, reader = fence(), fence()
    data = segment(writer, "one") + writer.close_segment(at=10, writer="w")
    writer.where = "middle"
    more, _ = writer.write(Draft("note", 1, b"{}"), at=10, epoch=0, writer="w")
    fed = reader.feed(data + more)
    assert (fed.taken, fed.bad_line) == (len(data), True)


@pytest.mark.parametrize("wrong", [{"seq": 9}, {"at": 5}, {"epoch": -1}])
def test_numbers_times_and_epochs_never_fall_even_with_a_valid_mac(wrong: dict[str, int]) -> None:
    writer, reader = fence(), fence()
    data = segment(writer, "one")
    key = writer.keys.get(1).record
    fields = {"seq": writer.seq + 1, "at": 10, "epoch": 0} | wrong
    line, _ = frame(key, writer.mac, Draft("note", 1, b"{}"), writer="w", **fields)
    fed = reader.feed(data + line)
    assert (fed.taken, fed.bad_line) == (len(data), True)


def test_swapped_doubled_and_missing_records_are_seen() -> None:
    data = segment(fence(), *(f"{n}" for n in range(20)))
    lines = data.splitlines(keepends=True)
    for at in range(1, len(lines) - 1):
        for forged in (
            [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]],
            [*lines[:at], lines[at], *lines[at:]],
            [*lines[:at], *lines[at + 1 :]],
        ):
            fed = fence().feed(b"".join(forged))
            assert fed.bad_line
            assert len(fed.records) <= at + 1


@pytest.mark.parametrize("format_", [FORMAT + 1, FORMAT - 1])
def test_a_format_of_the_future_is_named_and_is_not_damage(format_: int) -> None:
    """There is no earlier one than the first."""
    keys = Keyring(KEYS, OPS, INSTANCE)
    opened = SegmentOpened(format_, OPS, INSTANCE, SegmentKey(1, keys.get(1).key_id), 1, None)
    body = msgspec.json.encode(opened)
    line, _ = frame(
        keys.get(1).record,
        ZERO_MAC,
        Draft("segment_opened", 1, body),
        seq=1,
        at=1,
        epoch=0,
        writer="w",
    )
    with pytest.raises(NewerVersion):
        fence().feed(line)
    forged = segment(fence(), "one").replace(b'"format":1', b'"format":2')
    assert fence().feed(forged).bad_line, "a changed byte is not a newer version"


def test_a_segment_in_the_place_of_another_is_not_believed() -> None:
    """
    D4: genuine lines under a number that is not theirs, for a reader that starts there; the header
    says which it is.
    """
    writer = fence()
    segment(writer, "one")
    writer.close_segment(at=10, writer="w")
    writer.enter_next()
    second = segment(writer, "two")
    for number in (1, 3):
        assert fence(number=number).feed(second).taken == 0


def test_the_fence_rejects_a_header_of_another_instance_or_session() -> None:
    """P7: the name in the header is compared too, not only the key that it is sealed with."""
    for session, instance in ((OPS, InstanceId("i0")), (SessionId("ops/db"), INSTANCE)):
        forged = segment(Fence(Keyring(KEYS, OPS, INSTANCE), session, instance), "one")
        reader = fence()
        fed = reader.feed(forged)
        assert (fed.taken, fed.bad_line, reader.offset) == (0, True, 0)


def in_the_next() -> tuple[Fence, Previous]:
    """
    A reader behind a closed segment of generation 2, whose last record is of time 10 and epoch 3;
    and what the next header says of that one.
    """
    writer, reader = fence(), fence()
    first = writer.open_segment(generation=2, at=10, writer="w")
    first += writer.write(Draft("note", 1, b"{}"), at=10, epoch=3, writer="w")[0]
    first += writer.close_segment(at=10, writer="w")
    assert reader.feed(first).taken == len(first)
    reader.enter_next()
    assert reader.previous is not None
    return reader, reader.previous


def header(
    reader: Fence,
    previous: Previous | None,
    *,
    generation: int = 2,
    key: str | None = None,
    kind: str = OPENED,
    **fields: int,
) -> bytes:
    """A header with a valid mac, by somebody who has the key."""
    keys = reader.keys.get(generation)
    opened = SegmentOpened(
        FORMAT, OPS, INSTANCE, SegmentKey(generation, key or keys.key_id), reader.number, previous
    )
    every: dict[str, Any] = {"seq": reader.seq + 1, "at": 10, "epoch": 3} | fields
    return frame(
        keys.record, reader.mac, Draft(kind, 1, msgspec.json.encode(opened)), writer="w", **every
    )[0]


def test_the_header_that_is_expected_is_believed() -> None:
    reader, previous = in_the_next()
    line = header(reader, previous)
    assert reader.feed(line).taken == len(line)
    assert (reader.where, reader.generation, reader.previous) == ("middle", 2, previous)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seq": 4 + 1},
        {"seq": 4 - 1},
        {"at": 9},
        {"epoch": 2},
        {"generation": 1},
        {"key": "0" * 16},
        {"kind": CLOSED},
        {"kind": "note"},
    ],
    ids=str,
)
def test_the_fence_rejects_a_header_that_does_not_continue_the_segment(
    wrong: dict[str, Any],
) -> None:
    """
    5.2: numbers go on by one, times, epochs and key generations never fall, and only a header of
    this key begins a segment.
    """
    reader, previous = in_the_next()
    fed = reader.feed(header(reader, previous, **wrong))
    assert (fed.taken, fed.bad_line, reader.where, reader.offset) == (0, True, "start", 0)


@pytest.mark.parametrize("field", ["number", "length", "mac", "digest"])
def test_a_header_names_the_segment_before_as_we_left_it(field: str) -> None:
    """L4: each of the four, under a valid mac."""
    reader, previous = in_the_next()
    other: Any = {
        "number": 7,
        "length": previous.length + 1,
        "mac": "00" * 32,
        "digest": "00" * 32,
    }[field]
    assert (
        reader.feed(header(reader, msgspec.structs.replace(previous, **{field: other}))).taken == 0
    )
    assert reader.feed(header(reader, None)).taken == 0


def test_a_first_segment_has_none_before_it_and_a_mac_is_made_of_digits() -> None:
    reader = fence()
    assert reader.feed(header(reader, Previous(0, 0, "00" * 32, ""))).taken == 0
    late = fence(number=2)
    assert late.feed(header(late, Previous(1, 1, "no digits", ""))).taken == 0


def test_no_header_stands_inside_a_segment() -> None:
    """One with a valid mac neither: what follows it would be read under what it says."""
    writer, reader = fence(), fence()
    data = segment(writer, "one")
    assert reader.feed(data).taken == len(data)
    before = (reader.head, reader.offset, reader.closing())
    fed = reader.feed(header(writer, None, generation=1, epoch=0))
    assert (fed.taken, fed.bad_line, reader.head, reader.offset, reader.closing()) == (
        0,
        True,
        *before,
    )


def test_before_its_header_a_segment_has_no_known_bytes() -> None:
    """Before its header there is nothing that we know, whatever the segment before held."""
    reader, _ = in_the_next()
    for each in (reader, fence()):
        assert each.prefix_holds(b"")
        assert not each.prefix_holds(b"x")
    assert fence().closing() is None
    assert fence().generation == 0


def test_a_record_is_framed_only_inside_a_segment_and_a_segment_opened_only_outside() -> None:
    outside, inside = fence(), fence()
    segment(inside, "one")
    draft = Draft("note", 1, b"{}")
    for wrong in (
        lambda: outside.write(draft, at=1, epoch=0, writer="w"),
        lambda: outside.frame([draft], at=1, epoch=0, writer="w"),
        lambda: inside.open_segment(generation=1, at=10, writer="w"),
    ):
        with pytest.raises(InvariantBroken):
            wrong()
    inside.close_segment(at=10, writer="w")
    for wrong in (
        lambda: inside.write(draft, at=10, epoch=0, writer="w"),
        lambda: inside.frame([draft], at=10, epoch=0, writer="w"),
    ):
        with pytest.raises(InvariantBroken):
            wrong()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_lines_framed_together_are_those_framed_one_by_one(count: int) -> None:
    """And a fence moves over them only when it is told that they are durable."""
    one, many = fence(), fence()
    segment(one, "one")
    segment(many, "one")
    before = (many.head, many.offset, many.closing())
    drafts = [Draft("note", 1, b'{"n":%d}' % number) for number in range(count)]
    data, records = many.frame(drafts, at=11, epoch=2, writer="w")
    assert (many.head, many.offset, many.closing()) == before
    singly = [
        one.write(draft, at=11, epoch=2, writer="w", more=left > 0)
        for left, draft in zip(range(count - 1, -1, -1), drafts, strict=True)
    ]
    assert (data, records) == (
        b"".join(line for line, _ in singly),
        [record for _, record in singly],
    )
    many.move_over(data, records[-1])
    assert (many.head, many.offset, many.closing(), many.at, many.epoch) == (
        one.head,
        one.offset,
        one.closing(),
        11,
        2,
    )


def test_a_fence_skips_to_a_place_as_if_it_had_walked_there() -> None:
    """Then it verifies, digests and closes like the one that walked."""
    writer, walker, skipper = fence(), fence(), fence()
    data = segment(writer, "one", "two")
    place = writer.place()
    assert place is not None
    more = writer.write(Draft("note", 1, b"{}"), at=11, epoch=0, writer="w")[0]
    walker.feed(data)
    assert skipper.feed(data.splitlines(keepends=True)[0]).records
    assert skipper.skip_to(place, data + more)
    assert (skipper.head, skipper.place(), skipper.closing()) == (
        walker.head,
        place,
        walker.closing(),
    )
    assert skipper.feed(more).records == walker.feed(more).records
    assert skipper.head == writer.head
    assert skipper.prefix_holds(data + more)


def test_a_fence_skips_over_no_other_bytes() -> None:
    writer = fence()
    data = segment(writer, "one", "two")
    place = writer.place()
    assert place is not None
    header = data.splitlines(keepends=True)[0]
    for changed in (data[:-1], b"x" + data[1:], data[:-2] + b"x\n", b""):
        reader = fence()
        reader.feed(header)
        before = (reader.head, reader.offset)
        assert not reader.skip_to(place, changed)
        assert (reader.head, reader.offset) == before
    assert not fence().skip_to(place, data)  # its header was not verified


def test_a_place_is_the_end_of_a_batch_inside_a_segment() -> None:
    writer = fence()
    assert writer.place() is None
    writer.open_segment(generation=1, at=10, writer="w")
    assert writer.place() is None  # the header's batch goes on
    writer.write(Draft("note", 1, b"{}"), at=10, epoch=0, writer="w")
    assert writer.place() is not None
    writer.write(Draft("note", 1, b"{}"), at=10, epoch=0, writer="w", more=True)
    assert writer.place() is None
    writer.close_segment(at=10, writer="w")
    assert writer.place() is None
