"""
Bytes of a journal, for arbitrary content: what was framed comes back, and no change of any byte
goes unseen.
"""

from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.chain import Keyring
from holdfast.journal.fence import Fence
from holdfast.journal.record import ZERO_MAC, Draft, believe, check_draft, frame, read_unverified
from holdfast.journal.segment import is_own
from holdfast.journal.strict import strict_json
from holdfast.limits import INTEGER_MAX

OPS, INSTANCE = SessionId("ops/api"), InstanceId("i1")
KEYS = Keyring({1: bytes(range(32))}, OPS, INSTANCE)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
bodies = st.dictionaries(texts, values, max_size=5).map(msgspec.json.encode)
drafts = st.builds(
    Draft, st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True), st.integers(1, 99), bodies
)


def segment(notes: list[Draft]) -> bytes:
    writer = Fence(KEYS, OPS, INSTANCE)
    lines = [writer.open_segment(generation=1, at=5, writer="w")]
    lines += [writer.write(draft, at=5, epoch=0, writer="w")[0] for draft in notes]
    return b"".join(lines)


@given(
    draft=drafts,
    seq=st.integers(1, 2**50),
    at=st.integers(0, 2**50),
    epoch=st.integers(0, 2**30),
    previous=st.binary(min_size=32, max_size=32),
)
def test_a_framed_record_reads_back_unchanged(
    draft: Draft, seq: int, at: int, epoch: int, previous: bytes
) -> None:
    check_draft(draft)
    line, made = frame(bytes(32), previous, draft, seq=seq, at=at, epoch=epoch, writer="w1")
    assert believe(bytes(32), previous, line) == read_unverified(line) == made
    assert (made.seq, made.at, made.epoch, made.type, made.version, made.body) == (
        seq,
        at,
        epoch,
        draft.type,
        draft.version,
        draft.body,
    )
    assert msgspec.json.decode(line)["body"] == msgspec.json.decode(draft.body)
    assert line.count(b"\n") == 1


@given(draft=drafts, data=st.data())
def test_flipping_any_byte_of_a_line_is_seen(draft: Draft, data: st.DataObject) -> None:
    line, _ = frame(bytes(32), ZERO_MAC, draft, seq=1, at=1, epoch=0, writer="w1")
    at, bits = data.draw(st.integers(0, len(line) - 1)), data.draw(st.integers(1, 255))
    changed = line[:at] + bytes([line[at] ^ bits]) + line[at + 1 :]
    assert believe(bytes(32), ZERO_MAC, changed) is None


@given(notes=st.lists(drafts, min_size=1, max_size=6), data=st.data())
def test_any_edit_of_a_segment_is_seen_where_it_is(notes: list[Draft], data: st.DataObject) -> None:
    """
    Replace any span by any bytes: what verifies is a prefix of what was written, and ends before
    the edit.
    """
    whole = segment(notes)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 200)))
    edited = whole[:start] + data.draw(st.binary(max_size=80)) + whole[end:]
    assume(edited != whole)
    reader = Fence(KEYS, OPS, INSTANCE)
    fed = reader.feed(edited)
    assert edited[: fed.taken] == whole[: fed.taken]
    # Unless bytes were only cut off or added at the end, something is left that does not verify.
    assert fed.taken < len(edited) or whole.startswith(edited)
    assert not reader.prefix_holds(edited[: reader.offset] + b"x")


@given(notes=st.lists(drafts, max_size=6), cut=st.integers(0, 10_000))
def test_feeding_in_pieces_is_feeding_at_once(notes: list[Draft], cut: int) -> None:
    whole = segment(notes)
    at_once, in_pieces = Fence(KEYS, OPS, INSTANCE), Fence(KEYS, OPS, INSTANCE)
    records = at_once.feed(whole).records
    first = in_pieces.feed(whole[: cut % (len(whole) + 1)])
    second = in_pieces.feed(whole[first.taken :])
    assert first.records + second.records == records
    assert (in_pieces.head, in_pieces.offset, in_pieces.closing()) == (
        at_once.head,
        at_once.offset,
        at_once.closing(),
    )
    assert [record.body for record in records if not is_own(record)] == [
        draft.body for draft in notes
    ]


@given(value=values)
def test_plain_values_are_strict_json(value: Any) -> None:
    assert strict_json(msgspec.json.encode(value), what="it") == msgspec.json.decode(
        msgspec.json.encode(value)
    )


@given(
    data=st.binary(max_size=60)
    | st.text(st.characters(), max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_strict_json_accepts_or_refuses_any_bytes(data: bytes) -> None:
    """No other error, and what is taken reads back."""
    try:
        value = strict_json(data, what="it")
    except Refused:
        return
    assert strict_json(msgspec.json.encode(value), what="it") == value
