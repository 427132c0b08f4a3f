"""
What a kept fold depends on, as one short digest: the fields of every type in it, and the code that folds.

A cache of a fold says under which layout it was made; what another version of this program made of the same records is not read. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any

import msgspec
from blake3 import blake3


def layout_of(functions: Iterable[FunctionType], structs: Mapping[str, type[msgspec.Struct]], numbers: Sequence[Any] = ()) -> str:
    """32 hex digits. `numbers` are constants that the code reads by name."""
    fold = sorted((_of_code(each.__code__) for each in functions), key=repr)
    fields = [[name, list(each.__struct_fields__)] for name, each in sorted(structs.items())]
    return blake3(msgspec.json.encode([fold, fields, numbers])).hexdigest(length=16)


def _of_code(code: CodeType) -> list[Any]:
    inner = [_of_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts if not isinstance(each, frozenset)]
    return [code.co_qualname, code.co_code.hex(), code.co_names, inner]
