"""
A model: given a view, it answers with text and calls, or fails in a named way.

An adapter makes one attempt per `call`; the runtime does retries, timeouts and cancellation. Text
deltas are for followers and never enter history; only the returned answer does. An adapter never
runs a tool, never retries, and translates every foreign exception into ModelFailed.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.session.view.messages import FailureKind, Message, ModelAnswer


class ToolSchema(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: msgspec.Raw  # JSON schema of the arguments object


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    # For script models: the lines that this session has already consumed.
    script_lines_used: frozenset[int] = frozenset()
    max_output_tokens: int | None = None


class ModelEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model at an address of its own, as settings describe it under a name."""

    model: str  # PROVIDER:MODEL
    base_url: str | None = None
    key_env: str | None = None  # the variable that holds the key
    temperature: float | None = None
    max_output_tokens: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


class ModelFailed(Exception):
    """
    The call gave no answer. `may_pass` says whether trying again can help, `hint` what a person can
    do about it, and `line` is the script line it consumed.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        may_pass: bool,
        retry_after_seconds: float | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.message = message
        self.may_pass = may_pass
        self.retry_after_seconds = retry_after_seconds
        self.line = line
        self.hint = hint


OnText = Callable[[str], None]
"""
Called with each piece of text as it comes, on the event loop. Never blocks.

An empty piece means "alive, nothing to show": the model thinks, or writes a call's arguments. It
counts as activity when gaps are measured.
"""


class Model(Protocol):
    @property
    def name(self) -> str:
        """The name that is journalled with the turn, and that `ModelCatalogue.resolve` takes."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """The size of its window, if known."""
        ...

    # A model that cannot summarise (a script, the demo) has `summarises = False`. Older turns are
    # then made smaller without a model, deterministically.
    #
    # A model that takes long to load has `wait_until_loaded`. It is awaited before `context_tokens`
    # is read, because reading must not block the event loop.

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer: ...


class ModelCatalogue(Protocol):
    """Maps a name to a model. Imports a provider only when one is called."""

    def resolve(self, name: str) -> Model:
        """
        Return the model of that name. Raise `Unusable` (code `unknown_model`) if it cannot be
        resolved here: unknown provider, missing package, missing script file.
        """
        ...
