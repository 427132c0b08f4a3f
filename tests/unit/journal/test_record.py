"""Framing: a line is believed only as a whole, only after its predecessor, only with its key."""

import msgspec
import pytest
from blake3 import blake3

from holdfast.errors import Refused
from holdfast.journal.record import (
    ZERO_MAC,
    Draft,
    believe,
    check_draft,
    frame,
    read_unverified,
    record_mac,
    times_of_creation,
    without_macs,
)
from holdfast.journal.segment import closed_draft, repaired_draft
from holdfast.limits import INTEGER_MAX, RECORD_BYTES_MAX

KEY = bytes(range(32))


def line_of(body: bytes = b'{"text":"hello"}', *, seq: int = 7, more: bool = False) -> bytes:
    return frame(
        KEY,
        ZERO_MAC,
        Draft("note", 1, body),
        seq=seq,
        at=1763256543123,
        epoch=3,
        writer="w1",
        more=more,
    )[0]


def test_a_line_is_spelled_as_documented() -> None:
    """The format is a promise to strangers: fields, order, no whitespace."""
    body = b'{"text":"hello"}'
    header = b'{"seq":7,"at":1763256543123,"epoch":3,"writer":"w1","type":"note","version":1'
    for more, spelled in ((False, header), (True, header + b',"more":true')):
        mac = blake3(
            ZERO_MAC + len(spelled).to_bytes(4, "big") + spelled + blake3(body).digest(), key=KEY
        ).hexdigest()
        expected = spelled + b',"body":' + body + b',"mac":"' + mac.encode() + b'"}\n'
        assert line_of(more=more) == expected


def test_a_line_is_json_that_any_reader_takes() -> None:
    """`jq` is enough to read a journal."""
    decoded = msgspec.json.decode(line_of())
    assert list(decoded) == ["seq", "at", "epoch", "writer", "type", "version", "body", "mac"]
    assert decoded["body"] == {"text": "hello"}
    assert msgspec.json.decode(line_of(more=True))["more"] is True


@pytest.mark.parametrize(
    "text",
    [
        "\u2028 \u2029 \x85 \x0c \x1c",
        ',"body":{"text":"inner"}',
        ',"mac":"' + "0" * 64 + '"}',
        '\\" \\\\ \t',
        "\U0001f600 e\u0301 \u202e",
    ],
)
def test_awkward_text_comes_back_as_it_was(text: str) -> None:
    """
    Line separators of other systems, and text that looks like our own framing, change nothing.
    """
    body = msgspec.json.encode({"text": text})
    check_draft(Draft("note", 1, body))
    record = believe(KEY, ZERO_MAC, line_of(body))
    assert record is not None
    assert record.body == body
    assert msgspec.json.decode(record.body) == {"text": text}


def test_every_flipped_bit_is_seen() -> None:
    line = line_of()
    for at in range(len(line) * 8):
        changed = bytearray(line)
        changed[at // 8] ^= 1 << at % 8
        assert believe(KEY, ZERO_MAC, bytes(changed)) is None, at


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(lambda line: line.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(lambda line: b"\xef\xbb\xbf" + line, id="BOM"),
        pytest.param(lambda line: line.upper(), id="upper case"),
        pytest.param(lambda line: line.replace(b'"mac":"', b'"mac": "'), id="a space"),
        pytest.param(lambda line: line[:-76] + b"}\n", id="no mac"),
        pytest.param(lambda _: b"\n", id="empty"),
        pytest.param(lambda _: b'{"seq":1}\n', id="other JSON"),
        pytest.param(lambda line: line[:-3] + b"\n", id="no end"),
    ],
)
def test_a_record_in_another_spelling_does_not_verify(forged) -> None:
    assert believe(KEY, ZERO_MAC, forged(line_of())) is None


def test_another_key_or_another_predecessor_does_not_verify() -> None:
    """A row of another session, or replayed at another place, is not a record."""
    assert believe(bytes(32), ZERO_MAC, line_of()) is None
    assert believe(KEY, b"\1" * 32, line_of()) is None


def test_reading_without_a_key_gives_the_same_record() -> None:
    assert read_unverified(line_of()) == believe(KEY, ZERO_MAC, line_of())


@pytest.mark.parametrize(
    "draft",
    [
        Draft("no such name", 1, b"{}"),
        Draft('x","body":{}', 1, b"{}"),
        Draft("note", 0, b"{}"),
        Draft("note", 1, b"[]"),
        Draft("note", 1, b'{"a":1,\n"b":2}'),
        Draft("note", 1, b'{"a":1,"a":2}'),
        Draft("note", 1, b'{"a":NaN}'),
        Draft("note", 1, b'{"text":"' + b"x" * RECORD_BYTES_MAX + b'"}'),
        Draft("note", 1, b'{"text":"\xff"}'),
    ],
    ids=lambda draft: f"{draft.type} {draft.body[:20]!r}",
)
def test_a_draft_that_could_not_be_read_back_is_refused_before_anything_is_written(
    draft: Draft,
) -> None:
    with pytest.raises(Refused):
        check_draft(draft)


def test_a_draft_at_the_bounds_is_taken_and_one_past_them_is_not() -> None:
    """The header and the mac of the longest names fit into what the bound leaves for them."""
    longest = b'{"text":"' + b"x" * (RECORD_BYTES_MAX - 1024 - 11) + b'"}'
    whole = Draft("n" * 64, INTEGER_MAX, longest)
    check_draft(whole)
    line, _ = frame(
        KEY, ZERO_MAC, whole, seq=INTEGER_MAX, at=INTEGER_MAX, epoch=INTEGER_MAX, writer="w" * 64
    )
    assert len(line) <= RECORD_BYTES_MAX
    for wrong in (
        Draft("note", INTEGER_MAX + 1, b"{}"),
        Draft("n" * 65, 1, b"{}"),
        Draft("note", 1, longest.replace(b"x", b"xx", 1)),
        Draft("note", 1, b'{"a":1}\r'),
        Draft("note", 1, b"{}\n"),
        Draft("note", 1, b" {}"),
    ):
        with pytest.raises(Refused):
            check_draft(wrong)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{}\n",
        line_of()[:-5],
        line_of()[40:],
        line_of().replace(b',"body":', b',"nobody":'),
        line_of()[:-4] + b'x"}\n',
        line_of().split(b',"body":')[0] + b',"body":' + b"0" * 64 + b'"}\n',
    ],
    ids=[
        "empty",
        "bare",
        "other",
        "cut",
        "late",
        "no body",
        "no digits",
        "nothing between body and mac",
    ],
)
def test_a_foreign_line_reads_as_nothing(line: bytes) -> None:
    """
    For export without the key, and for the look at a header before it is verified: no error, no
    guess.
    """
    assert read_unverified(line) is None
    assert believe(KEY, ZERO_MAC, line) is None


def test_a_body_or_a_header_of_another_record_is_not_believed() -> None:
    """The mac binds both, also where each of them is genuine."""
    one, other = line_of(), line_of(b'{"text":"other"}', seq=8)
    (header, rest), (other_header, other_rest) = (each.split(b',"body":') for each in (one, other))
    mac = rest[-75:]
    for mixed in (
        header + b',"body":' + other_rest[:-75] + mac,
        other_header + b',"body":' + rest,
        header + b',"more":true,"body":' + rest,
    ):
        assert believe(KEY, ZERO_MAC, mixed) is None


@pytest.mark.parametrize(
    "header",
    [
        b'{"seq":7',
        line_of().split(b',"body":')[0] + b',"more":1',
        line_of().split(b',"body":')[0] + b',"digest":""',
    ],
    ids=["too little", "another type", "too much"],
)
def test_a_valid_mac_over_no_header_of_ours_is_not_believed(header: bytes) -> None:
    body = b'{"text":"hello"}'
    mac = record_mac(KEY, ZERO_MAC, header, blake3(body).digest())
    assert (
        believe(
            KEY, ZERO_MAC, header + b',"body":' + body + b',"mac":"' + mac.hex().encode() + b'"}\n'
        )
        is None
    )


@pytest.mark.parametrize(
    ("said", "times"),
    [
        ((5, 3, 99, None), [5, 5, 10, 10]),
        ((7, 6, 5), [7, 7, 7]),
        ((None, 1, 2), [10, 10, 10]),
        ((), []),
    ],
    ids=str,
)
def test_times_of_carried_records_never_decrease(
    said: tuple[int | None, ...], times: list[int]
) -> None:
    """5.1: as they say, but never after now and never before the one ahead."""
    assert times_of_creation([Draft("note", 1, b"{}", at) for at in said], 10) == times


def test_the_journals_own_records_are_spelled_as_documented() -> None:
    """Part of the format: another version would be unknown to every reader there is."""
    assert closed_draft(3) == Draft("segment_closed", 1, b'{"number":3}')
    assert repaired_draft(7, "q/1") == Draft("tail_repaired", 1, b'{"bytes":7,"quarantine":"q/1"}')


def test_a_batch_without_its_macs_verifies_nowhere() -> None:
    """A failed line is kept for people, and is not a second history."""
    lines = [line_of(), line_of(b'{"text":"\\"mac\\":\\"' + b"0a" * 32 + b'"}')]
    bare = without_macs(b"".join(lines)).splitlines(keepends=True)
    assert [len(line) for line in bare] == [len(line) for line in lines]
    for line, whole in zip(bare, lines, strict=True):
        assert believe(KEY, ZERO_MAC, whole) is not None
        assert believe(KEY, ZERO_MAC, line) is None
        assert line[:-67] == whole[:-67]
