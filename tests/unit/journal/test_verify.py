"""Verdicts over plain bytes: what holds, what is torn, what was changed, what is missing."""

import pytest

from holdfast.ids import InstanceId, SessionId
from holdfast.journal.anchor import Anchor, CellReading
from holdfast.journal.anchor_cases import Slots
from holdfast.journal.chain import Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import Draft, read_unverified
from holdfast.journal.segment import Previous
from holdfast.journal.verify import SegmentBytes, Walked, tail_is_torn, walk
from holdfast.limits import BATCH_BYTES_MAX

OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")
KEYS = Keyring({1: bytes(range(32))}, OPS, INSTANCE)


class Written:
    """Two segments, the first closed; twenty notes in all; and the anchor of the whole."""

    def __init__(self) -> None:
        writer = Fence(KEYS, OPS, INSTANCE)
        self.segments: list[bytes] = []
        for number in range(2):
            lines = [writer.open_segment(generation=1, at=1, writer="w")]
            lines += [
                writer.write(
                    Draft("note", 1, b'{"n":%d}' % (number * 10 + each)), at=1, epoch=0, writer="w"
                )[0]
                for each in range(10)
            ]
            if number == 0:
                lines.append(writer.close_segment(at=1, writer="w"))
            self.segments.append(b"".join(lines))
            if number == 0:
                writer.enter_next()
        self.anchor: Anchor | None = Anchor(1, 1, 2, writer.offset, writer.seq, 1, 0, writer.mac)

    def judged(
        self, *, slots: Slots = Slots.SETTLED, first_mac: str | None = None, first: int = 1
    ) -> Walked:
        def closing(number: int) -> Previous | None:
            if number >= len(self.segments):
                return None
            header = Fence(KEYS, OPS, INSTANCE, number=number + 1)
            header.feed(self.segments[number].split(b"\n")[0] + b"\n")
            return header.previous

        return walk(
            Fence(KEYS, OPS, INSTANCE),
            [
                SegmentBytes(n, f"i1.{n:08d}.jsonl", lambda offset, data=data: data[offset:])
                for n, data in enumerate(self.segments, first)
            ],
            lambda: CellReading(slots if self.anchor else Slots.NONE, self.anchor),
            first_mac=first_mac,
            closing=closing,
            is_lost=lambda _: False,
        )

    def anchored_in_the_first(self, lines: int = 11) -> "Written":
        """As if only so many lines of the first segment had been acknowledged."""
        reader = Fence(KEYS, OPS, INSTANCE)
        reader.feed(b"".join(self.segments[0].splitlines(keepends=True)[:lines]))
        self.anchor = Anchor(1, 1, 1, reader.offset, reader.seq, 1, 0, reader.mac)
        return self

    def anchored_at(self, notes: int) -> "Written":
        """As if only so many notes of the last segment had been acknowledged."""
        reader = Fence(KEYS, OPS, INSTANCE, number=2)
        data = b"".join(self.segments[1].splitlines(keepends=True)[: notes + 1])
        reader.feed(data)
        self.anchor = Anchor(1, 1, 2, reader.offset, reader.seq, 1, 0, reader.mac)
        return self


def test_an_unchanged_journal_holds() -> None:
    found = Written().judged()
    assert (found.verdict, found.records, found.byte, found.detail) == ("holds", 23, None, None)


def test_flipping_any_byte_of_any_segment_is_seen() -> None:
    for number in range(2):
        for at in range(0, len(Written().segments[number]), 7):
            written = Written()
            changed = bytearray(written.segments[number])
            changed[at] ^= 1
            written.segments[number] = bytes(changed)
            assert written.judged().verdict in {"broken", "cut_short"}, (number, at)


def test_cutting_what_was_acknowledged_is_cut_short() -> None:
    whole = Written().segments[1]
    for size in range(0, len(whole), 11):
        written = Written()
        written.segments[1] = whole[:size]
        assert written.judged().verdict == "cut_short", size


def test_cutting_what_was_not_acknowledged_is_a_torn_tail_or_nothing() -> None:
    written = Written().anchored_at(5)
    whole, length = written.segments[1], written.anchor.length  # type: ignore[union-attr]
    for size in range(length, len(whole)):
        written.segments[1] = whole[:size]
        found = written.judged()
        at_line_end = whole[:size].endswith(b"\n")
        assert found.verdict == ("holds" if at_line_end else "torn_tail"), size
        if not at_line_end:
            assert found.byte == whole[:size].rfind(b"\n") + 1


def test_whole_records_past_the_anchor_are_records() -> None:
    found = Written().anchored_at(5).judged()
    assert (found.verdict, found.records) == ("holds", 23)


@pytest.mark.parametrize(
    ("tail", "verdict"),
    [
        (b'{"seq":', "torn_tail"),
        (b"\0" * 4096, "torn_tail"),
        (b'{"seq":\0\0\0\n\0', "torn_tail"),
        (b"x\n", "broken"),
        (b'{"seq":99,"text":"harmless"}\n', "broken"),
        (b"\n", "broken"),
        (b"x\ny", "broken"),
        (b"x" * (BATCH_BYTES_MAX + 1), "broken"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_verify_classifies_the_bytes_after_the_last_record(tail: bytes, verdict: str) -> None:
    written = Written()
    written.segments[1] += tail
    assert written.judged().verdict == verdict


def ignoring(tail: bytes, named: bytes) -> Written:
    """A segment with this tail, closed by a header that names these bytes past its end."""
    writer = Fence(KEYS, OPS, INSTANCE)
    first = writer.open_segment(generation=1, at=1, writer="w", more=False)
    writer.enter_next(ignored=named)
    second = writer.open_segment(generation=1, at=1, writer="w", more=False)
    written = Written()
    written.segments = [first + tail, second]
    written.anchor = Anchor(1, 1, 2, writer.offset, writer.seq, 1, 0, writer.mac)
    return written


def test_bytes_behind_a_closed_segment_are_ignored_only_if_the_next_header_names_them() -> None:
    """
    L4: by length and digest, under our key; gone they may be, but nothing else may stand there.
    """
    torn = b"the batch that failed\n"
    for tail in (b"", torn):
        assert ignoring(tail, torn).judged().verdict == "holds"
    for tail, named in (
        (torn, b""),
        (torn[:-1], torn),
        (torn + b"x", torn),
        (b"X" + torn[1:], torn),
    ):
        found = ignoring(tail, named).judged()
        assert (found.verdict, found.detail) == ("broken", "bytes follow the segment's end")


def test_an_ignored_batch_that_would_verify_is_not_history() -> None:
    """
    5.3: the next header closed the segment before it, so its records were never acknowledged,
    though each of them is genuine.
    """
    writer = Fence(KEYS, OPS, INSTANCE)
    writer.open_segment(generation=1, at=1, writer="w", more=False)
    failed, _ = writer.frame(
        [Draft("note", 1, b'{"n":0}'), Draft("note", 1, b'{"n":1}')], at=1, epoch=0, writer="w"
    )
    found = ignoring(failed, failed).judged()
    assert (found.verdict, found.records) == ("holds", 2)
    assert ignoring(failed, b"").judged().verdict == "broken"


def test_part_of_a_batch_is_a_torn_tail_from_where_the_batch_begins() -> None:
    """D3: records that verify do not count without the rest of their batch, wherever it was cut."""
    written = Written()
    assert written.anchor is not None
    writer = Fence(KEYS, OPS, INSTANCE, number=2)
    whole = written.segments[1]
    writer.feed(whole)
    batch, _ = writer.frame(
        [Draft("note", 1, b'{"n":%d}' % each) for each in range(3)], at=1, epoch=0, writer="w"
    )
    for size in range(1, len(batch)):
        written.segments[1] = whole + batch[:size]
        found = written.judged()
        assert (found.verdict, found.records, found.at_seq, found.byte) == (
            "torn_tail",
            23,
            23,
            len(whole),
        ), size
        assert written.judged(slots=Slots.ONE).verdict == "cut_short", size
    written.segments[1] = whole + batch
    assert (written.judged().verdict, written.judged().records) == ("holds", 26)
    assert written.judged(slots=Slots.ONE).verdict == "holds"


def test_an_unreadable_slot_needs_the_whole_batch_that_it_named() -> None:
    """D4: whatever stands behind the readable slot but a whole batch, history was cut."""
    for tail in (b"", b"x", b'{"seq":', b"\0" * 700):
        written = Written()
        written.segments[1] += tail
        assert written.judged(slots=Slots.ONE).verdict == "cut_short", tail
        assert written.judged(slots=Slots.APART).verdict == "cut_short", tail
        assert Written().anchored_at(9).judged(slots=Slots.ONE).verdict == "holds"
    written = Written().anchored_at(9)
    written.segments[1] += b"half"
    assert written.judged(slots=Slots.ONE).verdict == "torn_tail"


def test_a_new_segment_that_ends_inside_its_first_batch_is_not_a_torn_tail() -> None:
    """A segment appears whole, with the batch that begins it."""
    written = Written().anchored_in_the_first()
    for lines in (1, 2):
        written.segments[1] = b"".join(Written().segments[1].splitlines(keepends=True)[:lines])
        assert written.judged().verdict == ("holds" if lines == 2 else "broken")


def test_missing_parts_are_cut_short() -> None:
    written = Written()
    written.segments.pop()
    assert written.judged().verdict == "cut_short"
    written = Written()
    written.anchor = None
    assert written.judged().verdict == "cut_short"
    written = Written()
    written.segments = []
    assert (written.judged().verdict, written.judged().records) == ("cut_short", 0)


def test_only_half_a_batch_is_torn() -> None:
    assert tail_is_torn(b"half")
    assert tail_is_torn(b"half\n\0")
    assert not tail_is_torn(b"whole\n")
    assert not tail_is_torn(b"x" * (BATCH_BYTES_MAX + 1))
    assert tail_is_torn(b"half", begun=BATCH_BYTES_MAX - 4)
    assert not tail_is_torn(b"half", begun=BATCH_BYTES_MAX - 3)


def test_verify_rejects_a_whole_journal_that_the_home_does_not_name() -> None:
    """D4: every record verifies, and the journal still is not this session's."""
    written = Written()
    first = read_unverified(written.segments[0].splitlines(keepends=True)[0])
    assert first is not None
    assert written.judged(first_mac=first.mac.hex()).verdict == "holds"
    found = written.judged(first_mac="00" * 32)
    assert (found.verdict, found.byte) == ("broken", 0)


HALF_HEADERS = (b"", b'{"seq":', Written().segments[1].split(b"\n")[0][:-9])


@pytest.mark.parametrize("half", HALF_HEADERS, ids=["none", "begun", "all but its end"])
@pytest.mark.parametrize("lines", [12, 11, 5])
def test_a_segment_whose_header_is_not_whole_is_a_torn_tail(half: bytes, lines: int) -> None:
    """
    5.4: of a closed segment, and of one that the header alone would have closed; acknowledged to
    its end, or not.
    """
    whole = min(lines, 11)  # the closing record's batch goes on in the segment that is not there
    for acknowledged in (whole, 3):
        written = Written().anchored_in_the_first(acknowledged)
        written.segments = [b"".join(written.segments[0].splitlines(keepends=True)[:lines]), half]
        found = written.judged()
        assert (found.verdict, found.records, found.segment, found.byte) == (
            "torn_tail",
            whole,
            "i1.00000002.jsonl",
            0,
        )


@pytest.mark.parametrize("half", HALF_HEADERS, ids=["none", "begun", "all but its end"])
def test_half_a_header_does_not_hide_that_the_segment_before_was_shortened(half: bytes) -> None:
    """D4: at a line's end, so that what is left verifies; the anchor knows better."""
    for lines in range(2, 11):
        written = Written().anchored_in_the_first()
        written.segments = [b"".join(written.segments[0].splitlines(keepends=True)[:lines]), half]
        found = written.judged()
        assert (found.verdict, found.detail) == (
            "cut_short",
            f"history ends with record {lines}; record 11 was acknowledged",
        )


def test_only_the_last_segment_may_lack_its_header() -> None:
    """D4: with one more behind it, it is a hole, or something that nobody wrote."""
    for middle in HALF_HEADERS:
        written = Written().anchored_in_the_first()
        written.segments = [written.segments[0], middle, b'{"seq":']
        assert written.judged().verdict == "broken"
    written = Written().anchored_in_the_first()
    written.segments = [written.segments[0] + b"half", b'{"seq":']
    assert written.judged().verdict == "broken", (
        "and what stands behind the closing record of the one before is not a batch"
    )


def test_a_closed_segment_that_was_shortened_or_changed() -> None:
    whole = Written().segments[0]
    for size in range(0, len(whole), 13):
        written = Written()
        written.segments[0] = whole[:size]
        found = written.judged()
        assert (found.verdict, found.segment, found.byte) == (
            "cut_short",
            "i1.00000001.jsonl",
            whole[:size].rfind(b"\n") + 1,
        )
        assert found.detail == f"{size} of {len(whole)} bytes are left"
    lines = whole.splitlines(keepends=True)
    for changed in (whole.replace(b'"n":4', b'"n":5'), whole[:-9].replace(b'"n":4', b'"n":5')):
        written.segments[0] = changed
        found = written.judged()
        assert (found.verdict, found.records, found.byte) == ("broken", 5, len(b"".join(lines[:5])))
    written.segments[0] = whole[:-1] + b" "
    assert written.judged().verdict == "broken", "nothing is missing: the last newline was changed"


def test_a_missing_first_segment_is_named() -> None:
    written = Written()
    written.segments.pop(0)
    found = written.judged(first=2)
    assert (found.verdict, found.records, found.byte, found.detail) == (
        "cut_short",
        0,
        0,
        "segment 1 is missing",
    )


@pytest.mark.parametrize("place", ["the first", "the last"])
def test_the_anchor_names_one_record_and_no_other(place: str) -> None:
    """
    A whole history that verifies is not ours if the acknowledged record has another mac: in either
    of the last two segments.
    """
    written = Written().anchored_in_the_first() if place == "the first" else Written()
    assert written.judged().verdict == "holds"
    assert written.anchor is not None
    written.anchor = written.anchor._replace(mac=bytes(32))
    found = written.judged()
    assert (found.verdict, found.detail) == (
        "broken",
        f"record {written.anchor.seq} is not the one the anchor names",
    )


def test_an_anchor_past_the_end_tells_what_was_cut_from_what_was_changed() -> None:
    """
    A tail that reaches as far as the anchor was changed; one that does not was cut; one with a
    whole line was changed, however short.
    """
    written = Written()
    whole = written.segments[1]
    kept = whole[: whole.rstrip(b"\n").rfind(b"\n") + 1]
    for tail, verdict in (
        (b"", "cut_short"),
        (b"x" * (len(whole) - len(kept) - 1), "cut_short"),
        (b"x" * (len(whole) - len(kept)), "broken"),
        (b"x\n", "broken"),
    ):
        written.segments[1] = kept + tail
        assert written.judged().verdict == verdict, tail
    written.segments[1] = whole
    assert written.anchor is not None
    written.anchor = written.anchor._replace(segment=3, length=0)
    assert written.judged().verdict == "cut_short"


def test_a_tail_of_exactly_one_batch_is_torn() -> None:
    assert tail_is_torn(b"x" * BATCH_BYTES_MAX)
