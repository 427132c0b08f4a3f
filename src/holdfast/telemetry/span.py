"""
A finished span and its ids.

Ids are derived from the records that a span is made of. So a span that is exported twice has equal
ids, and a link can name a span that another process exported.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal

import msgspec

SpanKind = Literal["internal", "client"]
AttributeValue = str | int | float | bool | tuple[str, ...]


class SpanLink(msgspec.Struct, frozen=True, gc=False):
    """A span of another trace that this one goes on from."""

    trace_id: str
    span_id: str
    relation: str  # resumes, asks, answers, submitted_by


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step that is over. Times are Unix milliseconds, as in its records."""

    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    name: str
    started_at: int
    ended_at: int
    kind: SpanKind = "internal"
    parent_id: str | None = None
    error_type: str | None = None  # a failed step; a denial is not one
    attributes: Mapping[str, AttributeValue] = {}
    links: tuple[SpanLink, ...] = ()


def trace_id(*parts: str) -> str:
    """
    >>> trace_id("i1", "t1", "1") == trace_id("i1", "t1", "1") != trace_id("i1", "t1", "2")
    True
    """
    return _digest(parts, size=16, purpose=b"holdfast trace")


def span_id(*parts: str) -> str:
    """
    >>> len(span_id("i1", "call", "c1"))
    16
    """
    return _digest(parts, size=8, purpose=b"holdfast span")


def _digest(parts: tuple[str, ...], *, size: int, purpose: bytes) -> str:
    # A length before each part: ("a", "bc") and ("ab", "c") are different spans.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(text.encode(), digest_size=size, person=purpose[:16]).hexdigest()
