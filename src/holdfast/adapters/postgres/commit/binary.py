"""
Values in the server's binary format, packed at once.

The driver looks at each value and at each element of an array by itself, which costs more than
framing a record. The statements that append pack their values here instead.
"""

import struct
from collections.abc import Sequence
from itertools import chain, repeat
from uuid import UUID

# The server's names of its types.
BYTEA, BIGINT, INT, TEXT, UUID_TYPE = 17, 20, 23, 25, 2950
BYTEA_ARRAY, INT_ARRAY, BIGINT_ARRAY, UUID_ARRAY = 1001, 1007, 1016, 2951

_NULL = b"\xff\xff\xff\xff"  # a length of -1
_BIGINT = struct.Struct(">q")
_INT = struct.Struct(">i")
_ARRAY = struct.Struct(">iiiii")


def bigint(value: int | None) -> bytes | None:
    return None if value is None else _BIGINT.pack(value)


def integer(value: int | None) -> bytes | None:
    return None if value is None else _INT.pack(value)


def bigint_array(values: Sequence[int | None]) -> bytes:
    return _integers(BIGINT, values, _BIGINT)


def int_array(values: Sequence[int | None]) -> bytes:
    return _integers(INT, values, _INT)


def bytea_array(values: Sequence[bytes | None]) -> bytes:
    return _elements(BYTEA, values)


def uuid_array(values: Sequence[UUID | None]) -> bytes:
    return _elements(UUID_TYPE, [None if each is None else each.bytes for each in values])


def bigint_of(value: bytes | None) -> int | None:
    """The number that the server sent."""
    return None if value is None else int(_BIGINT.unpack(value)[0])


def bytea_array_of(value: bytes | None) -> list[bytes] | None:
    """The elements that the server sent, none of which is null."""
    if value is None:
        return None
    found: list[bytes] = []
    start = _ARRAY.size
    while start < len(value):
        (size,) = _INT.unpack_from(value, start)
        found.append(value[start + 4 : start + 4 + size])
        start += 4 + size
    return found


def _integers(element: int, values: Sequence[int | None], each: struct.Struct) -> bytes:
    if None in values:
        return _elements(element, [None if one is None else each.pack(one) for one in values])
    with_lengths = chain.from_iterable(zip(repeat(each.size), values))
    code = each.format.removeprefix(">")
    return _start(element, len(values)) + struct.pack(f">{f'i{code}' * len(values)}", *with_lengths)


def _elements(element: int, values: Sequence[bytes | None]) -> bytes:
    parts = [_start(element, len(values), has_null=None in values)]
    for each in values:
        if each is None:
            parts.append(_NULL)
        else:
            parts += (len(each).to_bytes(4, "big"), each)
    return b"".join(parts)


def _start(element: int, length: int, *, has_null: bool = False) -> bytes:
    """One dimension whose first index is 1; an empty array has no dimension."""
    if not length:
        return struct.pack(">iii", 0, 0, element)
    return _ARRAY.pack(1, has_null, element, length, 1)
