"""
How a home is opened and closed: its service, the verbs in flight, and the event loop that it
belongs to.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from holdfast.argument_checks import plain_text, plain_texts
from holdfast.errors import HoldfastError, Unusable
from holdfast.runtime.cancellation import finish
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.runtime.service import Service
from holdfast.runtime.streams.in_flight import InFlight, SameEventLoop

_P = ParamSpec("_P")
_R = TypeVar("_R")
_H = TypeVar("_H", bound="OpenedHome")


def verb(
    method: "Callable[Concatenate[_H, _P], Coroutine[Any, Any, _R]]",
) -> "Callable[Concatenate[_H, _P], Coroutine[Any, Any, _R]]":
    """
    Count the call as in flight: closing the home stops it first. Texts of a program's own type
    become plain ones.
    """

    @wraps(method)
    async def run(home: _H, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        call: Any = method
        with home._in_flight.verb():  # noqa: SLF001  # a method of it
            result: _R = await call(home, *map(plain_text, args), **plain_texts(kwargs))
            return result

    return run


class OpenedHome:
    """A home that can be opened and closed. Closing it stops the verbs in flight first."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Service]]) -> None:
        self._opener = opener
        self._context: AbstractAsyncContextManager[Service] | None = None
        self._service: Service | None = None
        self._in_flight = InFlight()
        self._loop: SameEventLoop | None = None
        # Turns without a block, which are left with the home.
        self._begun: list[ExternalTurn] = []

    async def __aenter__(self) -> Self:
        if self._context is not None:
            raise Unusable(
                "the home is open already",
                hint="hand the open one around, or call holdfast.open(...) again for another",
            )
        self._context, self._loop = self._opener(), SameEventLoop()
        try:
            self._service = await self._context.__aenter__()
        except BaseException:
            self._context = None
            raise
        self._service.jobs.drive_reports()
        self._in_flight = InFlight()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context, self._service = self._context, None
        begun, self._begun = self._begun, []
        try:
            for turn in begun:
                with suppress(HoldfastError):
                    await turn.leave()
            await finish(self._in_flight.stop(besides=asyncio.current_task()))
        finally:
            self._context = None
            if context is not None:
                await context.__aexit__(kind, error, trace)

    @property
    def service(self) -> Service:
        """The runtime underneath, for integrations."""
        if self._service is None:
            raise Unusable(
                "the home is not open", hint="use `async with holdfast.open(...) as home`"
            )
        if self._loop is not None:
            self._loop.check()
        return self._service
