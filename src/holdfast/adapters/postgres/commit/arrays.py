"""
Arrays in the server's binary format, packed at once.

The driver's own arrays look at each element by itself, which costs more than framing a record. An
array here is bytes with a type; `register` teaches a connection to send them as they are.
"""

import struct
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any
from uuid import UUID

_NULL = b"\xff\xff\xff\xff"  # a length of -1


class PackedArray(bytes):
    """An array of one type, as it travels. `oid` names the array's type."""

    oid = 0
    element_oid = 0


class BigintArray(PackedArray):
    oid, element_oid = 1016, 20


class IntArray(PackedArray):
    oid, element_oid = 1007, 23


class ByteaArray(PackedArray):
    oid, element_oid = 1001, 17


class UuidArray(PackedArray):
    oid, element_oid = 2951, 2950


KINDS = (BigintArray, IntArray, ByteaArray, UuidArray)


def register(connection: Any) -> None:
    """Let this connection of psycopg send packed arrays."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    for kind in KINDS:
        methods = {"oid": kind.oid, "format": Format.BINARY, "dump": lambda _, obj: bytes(obj)}
        connection.adapters.register_dumper(
            kind, type(f"{kind.__name__}Dumper", (Dumper,), methods)
        )


def bigint_array(values: Sequence[int | None]) -> BigintArray:
    return BigintArray(_integers(BigintArray, values, "q", 8))


def int_array(values: Sequence[int | None]) -> IntArray:
    return IntArray(_integers(IntArray, values, "i", 4))


def bytea_array(values: Sequence[bytes | None]) -> ByteaArray:
    return ByteaArray(_elements(ByteaArray, values))


def uuid_array(values: Sequence[UUID | None]) -> UuidArray:
    return UuidArray(
        _elements(UuidArray, [None if each is None else each.bytes for each in values])
    )


def _integers(
    kind: type[PackedArray], values: Sequence[int | None], code: str, width: int
) -> bytes:
    if any(each is None for each in values):
        packed = [None if each is None else struct.pack(f">{code}", each) for each in values]
        return _elements(kind, packed)
    each_with_length = chain.from_iterable(zip(repeat(width), values))
    return _start(kind, len(values)) + struct.pack(
        f">{f'i{code}' * len(values)}", *each_with_length
    )


def _elements(kind: type[PackedArray], values: Sequence[bytes | None]) -> bytes:
    parts = [_start(kind, len(values), has_null=any(each is None for each in values))]
    for each in values:
        if each is None:
            parts.append(_NULL)
        else:
            parts += (len(each).to_bytes(4, "big"), each)
    return b"".join(parts)


def _start(kind: type[PackedArray], length: int, *, has_null: bool = False) -> bytes:
    """One dimension whose first index is 1; an empty array has no dimension."""
    if not length:
        return struct.pack(">iii", 0, 0, kind.element_oid)
    return struct.pack(">iiiii", 1, has_null, kind.element_oid, length, 1)
