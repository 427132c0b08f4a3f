"""
The messages of a view and the answers of a model, as values.

Providers' own shapes stay in the adapters. `blob` is an adapter's opaque, versioned memory of its
own parts (thinking, signatures). It is given back to the same adapter, and no other code reads it.
"""

from typing import Literal

import msgspec

from holdfast.ids import CallId


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """
    The usage of a model call. Cost is in millionths of a US dollar, if the adapter knows prices.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_microusd: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost_microusd=self.cost_microusd + other.cost_microusd,
        )


class Quote(msgspec.Struct, frozen=True, gc=False):
    """
    A message of the conversation around the input, by a named speaker, adopted for information
    only.
    """

    speaker: str
    text: str


class UserMessage(msgspec.Struct, frozen=True, gc=False, tag="user"):
    text: str
    speaker: str | None
    quotes: tuple[Quote, ...] = ()


class NoteMessage(msgspec.Struct, frozen=True, gc=False, tag="note"):
    """A message from Holdfast to the model: a summary, a parked turn's one line, a correction."""

    text: str


class CallPart(msgspec.Struct, frozen=True, gc=False):
    """
    One call as the model made it. `arguments` is the exact JSON text. `provider_id` is data and may
    repeat.
    """

    call: CallId
    tool: str
    arguments: str
    provider_id: str | None = None


class AssistantMessage(msgspec.Struct, frozen=True, gc=False, tag="assistant"):
    text: str
    calls: tuple[CallPart, ...] = ()
    blob: str | None = None


class ResultMessage(msgspec.Struct, frozen=True, gc=False, tag="result"):
    """The one result of one call, real or synthetic."""

    call: CallId
    tool: str
    outcome: str
    text: str
    provider_id: str | None = None
    code: str | None = None  # why it did not run, or how it ended

    @property
    def model_text(self) -> str:
        """
        The result as every model reads it. Providers show an outcome differently or not at all, so
        the text holds the outcome and its code.

        >>> text, code = "Not run: nobody may approve it.", "approval_unattended"
        >>> ResultMessage(CallId("c-1"), "shell", "unattended", text, code=code).model_text
        '[unattended: approval_unattended] Not run: nobody may approve it.'
        """
        if self.code is None and self.outcome in ("ok", "error"):
            return self.text
        return (
            f"[{self.outcome}{f': {self.code}' if self.code not in (None, self.outcome) else ''}]"
            f" {self.text}"
        )


Message = UserMessage | NoteMessage | AssistantMessage | ResultMessage


class ProposedCall(msgspec.Struct, frozen=True, gc=False):
    """
    A call as a model asked for it, not yet checked: `arguments` is the JSON text that the model
    wrote.
    """

    tool: str
    arguments: str
    provider_id: str | None = None
    parent: CallId | None = None  # see `CallMade`, for these three
    path: tuple[str, ...] = ()
    may_repeat: bool = False


class ModelAnswer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    text: str
    calls: tuple[ProposedCall, ...] = ()
    usage: Usage = Usage()
    blob: str | None = None
    blob_adapter: str | None = None  # the adapter that owns the blob, such as "pydantic-ai/1"
    line: int | None = None  # the script line it came from (script models only)


FailureKind = Literal[
    "rate_limit",
    "timeout",
    "overflow",
    "server",
    "auth",
    "refused",
    "malformed",
    "script_expectation",
    "unavailable",
]
