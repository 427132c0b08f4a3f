"""
Any model of Pydantic AI, behind our port: one request per call, no agent, no retries, no tools of
the provider's own.

This file imports nothing of Pydantic AI: a named model is built when it is first called, since
importing a provider takes a second. A model that was passed in as an object keeps its settings;
only retries are turned off for our requests.
"""

import asyncio
import importlib
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from holdfast.ports.model import ModelFailed, ModelRequest, OnText
from holdfast.session.view.messages import ModelAnswer

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel


class PydanticAIModel:
    """A model of Pydantic AI under the name it is journalled with."""

    def __init__(self, name: str, make: "Callable[[], ForeignModel]") -> None:
        self._name = name
        self._make = make
        # Set by the first call (or the first look at its window) and never changed.
        self._made: ForeignModel | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_tokens(self) -> int | None:
        try:
            return self._loaded().context_window
        except ModelFailed:
            # The call will say it; a window that nobody knows is no failure.
            return None

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        model = await asyncio.to_thread(self._loaded) if self._made is None else self._made
        from holdfast.adapters.models.pydantic_ai.exchange import exchange

        async with aclosing(exchange(model, request, name=self._name)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelAnswer):
                    return piece
                on_text(piece)
        raise ModelFailed("malformed", f"{self._name}: no answer", may_pass=True)

    def _loaded(self) -> "ForeignModel":
        """Loads what takes long, off the event loop: the packages, the price list, the client."""
        try:
            importlib.import_module("holdfast.adapters.models.pydantic_ai.exchange")
            from holdfast.adapters.models.pydantic_ai.failures import failure_from_exception
        except ImportError as exc:
            message = f"{self._name}: Pydantic AI can't be imported: {exc}"
            raise ModelFailed("unavailable", message, may_pass=False) from exc
        try:
            if self._made is None:
                self._made = self._make()
        except Exception as exc:
            # The seam: whatever a provider's package raises while it loads is told as a failure of
            # the call.
            raise failure_from_exception(exc, model=self._name) from exc
        return self._made
