"""
Bytes in dumps: the lines that `xxd`, `hexdump` and `od` print, with or without offsets and a
column of text.

Read are hex bytes and words of 2, 4 and 8 bytes in both byte orders, octal bytes and words, and
characters (`od -c`). The cost is linear in the text. Decimal numbers, bits, and formats of one's
own are not read.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
Find = Callable[[bytes], Iterator[Span]]

LINE_CHARS_PER_BYTE = 24  # at most: one byte on a line, with offset, text and line end
SHAPE = bytes(
    ord("#") if chr(byte) in "0123456789abcdefABCDEF" else byte if chr(byte) in " :,x" else ord(".")
    for byte in range(256)
)
SHAPES = (b"###### ", b"######: ", b"#### #### ", b"### ### ### ", b"#x##, ")
_ENDS = re.compile(rb"\r?\n")
_ESCAPED_ENDS = re.compile(rb"(?<!\\)(?:\\+r)?\\+n")  # in JSON
_OFFSET = re.compile(rb"(?<![0-9A-Za-z])([0-9A-Fa-f]{6,16})(:?)(?=[ \t]+\S)")
# The end of an unfinished line: an offset, then perhaps the first digits of a group.
_BEGUN = re.compile(
    rb"(?<![0-9A-Za-z])(?:[0-9A-Fa-f]{6,16}:?[ \t]+)?(?:0x)?[0-9A-Fa-f]{0,22}:?[ \t]*\Z"
)
_BEGUN_CHARS_MAX = 80  # further blanks than that are not the beginning of a dump
_HEX = re.compile(rb"(?:0x)?((?:[0-9A-Fa-f]{2})+),?\Z")
_OCTAL = re.compile(rb"[0-7]+\Z")
_HEX_BYTES = {2: 1, 4: 2, 8: 4, 10: 5, 12: 6, 14: 7, 16: 8}  # of a group, by its digits
_OCTAL_BYTES = {3: 1, 6: 2, 11: 4, 22: 8}
_TEXT_COLUMN = (b"|", b">")
_NO_OFFSET = b" " * 7
_GAP = re.compile(rb"  +")
_GAPS_MAX = 4
_BARE_GROUPS_MIN = 4  # in a line with no offset that does not begin with a space
_CELL = 4  # columns of a character in `od -c`
_NAMED = {b"\\0": b"\0", b"\\a": b"\a", b"\\b": b"\b", b"\\t": b"\t", b"\\n": b"\n", b"\\v": b"\v"}
_NAMED |= {b"\\f": b"\f", b"\\r": b"\r", b"nl": b"\n", b"sp": b" ", b"ht": b"\t", b"": b" "}


class _Line(NamedTuple):
    start: int
    end: int
    forward: bytes
    backward: bytes  # each group in the other byte order
    has_offset: bool


def may_hold(data: bytes) -> bool:
    """A quick look: False is certain."""
    shape = data.translate(SHAPE)
    for each in SHAPES:  # noqa: SIM110  a generator costs more than the search
        if each in shape:
            return True
    return False


def spans(data: bytes, find: Find) -> Iterator[Span]:
    """Return the lines whose bytes hold something that `find` finds."""
    for ends in _line_ends(data):
        for run in itertools.chain.from_iterable(map(_formats, _runs(data, ends))):
            yield from _spans_in([(line, line.forward) for line in run], find)
            yield from _spans_in([(line, line.backward) for line in run], find)


def _formats(run: list[_Line]) -> Iterator[list[_Line]]:
    """
    Yield the run, and the lines of each format if it has several: `od -tx1 -c` prints the same
    bytes twice, and an offset before the first format alone.
    """
    yield run
    offsets = [number for number, line in enumerate(run) if line.has_offset]
    if offsets and len(offsets) < len(run):
        count = offsets[1] - offsets[0] if len(offsets) > 1 else len(run) - offsets[0]
        if count > 1:
            for first in range(count):
                yield run[offsets[0] + first :: count]


def _line_ends(data: bytes) -> tuple[re.Pattern[bytes], ...]:
    """In JSON a line ends with an escape. In the only line of a text, `od -c` may print one."""
    return (_ENDS,) if b"\n" in data else (_ENDS, _ESCAPED_ENDS)


def _spans_in(lines: list[tuple[_Line, bytes]], find: Find) -> Iterator[Span]:
    ends: list[int] = []
    for _, data in lines:
        ends.append((ends[-1] if ends else 0) + len(data))
    for start, end in find(b"".join(data for _, data in lines)):
        touched = [
            line
            for (line, data), upto in zip(lines, ends, strict=True)
            if upto > start and upto - len(data) < end
        ]
        yield touched[0].start, touched[-1].end


def begun(data: bytes) -> int:
    """Count the bytes at the end that are lines of a dump, with the beginning of another one."""
    return max(_begun(data, ends) for ends in _line_ends(data))


def _begun(data: bytes, ends: re.Pattern[bytes]) -> int:
    *whole, (at, end) = _bounds(data, ends)
    start = _begun_in_line(data, at, end)
    if start is None:
        return 0
    if not data[at:start].strip():
        start = at
        for bounds in reversed(whole):
            line = _read(data, *bounds)
            if line is None:
                break
            start = line.start
    return len(data) - start


def _begun_in_line(data: bytes, at: int, end: int) -> int | None:
    """Return where a dump begins in a line that may go on. Its last group may be cut."""
    line = _read(data, at, end) or _read(data, at, at + data[at:end].rstrip().rfind(b" ") + 1)
    if line is not None:
        return line.start
    found = _BEGUN.search(data, max(at, end - _BEGUN_CHARS_MAX), end)
    return found.start() if found is not None and (found[0] or at == end) else None


def _runs(data: bytes, ends: re.Pattern[bytes]) -> Iterator[list[_Line]]:
    run: list[_Line] = []
    for bounds in _bounds(data, ends):
        line = _read(data, *bounds)
        if line is not None:
            run.append(line)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _bounds(data: bytes, ends: re.Pattern[bytes]) -> list[Span]:
    found, at = list[Span](), 0
    for each in ends.finditer(data):
        found.append((at, each.start()))
        at = each.end()
    return [*found, (at, len(data))]


def _read(data: bytes, start: int, end: int) -> _Line | None:
    line = data[start:end]
    offset = _OFFSET.search(line)
    if offset is None:
        is_bare = line[:1] == b" " or len(line.split()) >= _BARE_GROUPS_MIN
        read = _groups(line) if is_bare else None
        if read is None and line.startswith(_NO_OFFSET):  # the next format of the same bytes
            read = _characters(line[len(_NO_OFFSET) :])
        return _Line(start, end, *read, has_offset=False) if read is not None else None
    rest = line[offset.end() :]
    if offset[2]:
        rest = _without_text(rest.lstrip())
    elif len(rest.split(maxsplit=1)[0]) == len(offset[1]):
        rest = line[offset.start() :]  # a group like the others, and no offset
    read = _groups(rest) or _characters(line[offset.end() :])
    if read is None:
        return None
    return _Line(start + offset.start(), end, *read, has_offset=True)


def _without_text(rest: bytes) -> bytes:
    """
    Return the groups of a line of `xxd`. Two spaces stand before its text, and with `-e` also
    before a last group that is short; the text has one character for each byte.
    """
    for found in itertools.islice(_GAP.finditer(rest), _GAPS_MAX):
        groups, text = rest[: found.start()], rest[found.start() + 2 :]
        read = _groups(groups)
        if read is None:
            break
        if len(text.lstrip()) <= len(read[0]) <= len(text):
            return groups
    return rest.strip().partition(b"  ")[0]


def _groups(text: bytes) -> tuple[bytes, bytes] | None:
    """Return the bytes of equal groups in both orders, or None if there is anything else."""
    tokens = text.split()
    if not tokens:
        return None
    width, forward, backward = 0, bytearray(), bytearray()
    for token in tokens:
        if token.startswith(_TEXT_COLUMN):
            break
        digits = found[1] if (found := _HEX.match(token)) is not None else token
        width = width or len(digits)
        group = _group(digits, width)
        if group is None:
            return None
        forward += group
        backward += group[::-1]
    return (bytes(forward), bytes(backward)) if forward else None


def _group(digits: bytes, width: int) -> bytes | None:
    if width in _HEX_BYTES and len(digits) <= width and _HEX.match(digits) is not None:
        return bytes.fromhex(digits.decode())
    if width in _OCTAL_BYTES and len(digits) == width and _OCTAL.match(digits) is not None:
        value = int(digits, 8)
        size = _OCTAL_BYTES[width]
        return value.to_bytes(size, "big") if value < 256**size else None
    return None


def _characters(cells: bytes) -> tuple[bytes, bytes] | None:
    """Return the bytes of columns that hold one character each."""
    found = bytearray()
    for at in range(0, len(cells), _CELL):
        cell = cells[at : at + _CELL]
        name = cell.strip()
        if len(cell) < _CELL and not name:
            break  # half a cell, of a line that may go on
        if len(cell) < _CELL or not cell.startswith(b" "):
            return None
        if len(name) == 1:
            found += name
        elif name in _NAMED:
            found += _NAMED[name]
        elif (byte := _group(name, 3)) is not None:
            found += byte
        else:
            return None
    return (bytes(found), bytes(found)) if found.strip() else None
