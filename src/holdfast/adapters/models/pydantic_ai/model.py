"""
Any model of Pydantic AI behind the model port: one request per call, no agent, no retries and no
tools of the provider.

This file does not import Pydantic AI. A named model is built when it is first called, because
importing a provider takes a second. A model that was passed in as an object keeps its settings,
except that retries are turned off.
"""

import importlib
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from holdfast.adapters.models.providers import Advice
from holdfast.ports.model import ModelEndpoint, ModelFailed, ModelRequest, OnText
from holdfast.session.view.messages import ModelAnswer
from holdfast.threads import BLOCKING

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel


class PydanticAIModel:
    """A model of Pydantic AI under its journalled name."""

    def __init__(
        self,
        name: str,
        make: "Callable[[], ForeignModel]",
        *,
        advice: Advice = Advice(),  # noqa: B008  # immutable
        endpoint: ModelEndpoint | None = None,
    ) -> None:
        self._name = name
        self._make = make
        self._advice = advice
        self._endpoint = endpoint
        # Set once, by the first of `wait_until_loaded`, `call` and `context_tokens`.
        self._made: ForeignModel | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_tokens(self) -> int | None:
        try:
            return self._loaded().context_window
        except ModelFailed:
            # An unknown window is not a failure. The call reports the error.
            return None

    async def wait_until_loaded(self) -> None:
        """Load the provider in a thread. An error is reported by the call."""
        if self._made is None:
            with suppress(ModelFailed):
                await BLOCKING.call(self._loaded)

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        model = await BLOCKING.call(self._loaded) if self._made is None else self._made
        from holdfast.adapters.models.pydantic_ai.exchange import exchange

        made = exchange(
            model, request, name=self._name, advice=self._advice, endpoint=self._endpoint
        )
        async with aclosing(made) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelAnswer):
                    return piece
                on_text(piece)
        raise ModelFailed("malformed", f"{self._name}: no answer", may_pass=True)

    def _loaded(self) -> "ForeignModel":
        """Load the slow parts off the event loop: the packages, the price list and the client."""
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
            # The seam: any error of a provider's package while loading becomes a failure of the
            # call.
            raise failure_from_exception(exc, model=self._name, advice=self._advice) from exc
        return self._made
