"""The base of every command: a request with the type of its result."""

from typing import Generic, TypeVar

import msgspec

Result = TypeVar("Result", covariant=True)  # noqa: PLC0105  # the result of a command


class Command(msgspec.Struct, Generic[Result], frozen=True, kw_only=True):
    """
    A request for a change. Deciding it gives events, and a result of this type for its sender.
    """
