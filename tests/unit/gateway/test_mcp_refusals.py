"""A request that is refused leaves nothing behind: a client may send two megabytes with each."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from holdfast.gateway.mcp.answer import McpAnswer
from holdfast.gateway.mcp.endpoint import McpEndpoint
from holdfast.gateway.mcp.rpc import INVALID_PARAMS, ClientMessage, RpcProblem
from holdfast.testing.loop import in_loop


class Params(dict[str, Any]):
    """The params of a message, which a weak reference can look for."""


class RefusesAll:
    @asynccontextmanager
    async def answer(self, *_: object) -> AsyncGenerator[Any, None]:
        raise RpcProblem(INVALID_PARAMS, "no")
        yield


async def nothing_more() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


@in_loop
async def test_a_refused_request_is_freed_without_a_look_for_circles() -> None:
    endpoint = McpEndpoint(cast("Any", SimpleNamespace(service=None)))
    endpoint._methods = cast("Any", RefusesAll())
    params = Params()
    kept = weakref.ref(params)
    message = ClientMessage("tools/call", 1, params)
    refused = False
    gc.disable()
    try:
        try:
            await endpoint._answered(
                message, cast("Any", None), nothing_more, McpAnswer(cast("Any", None), None)
            )
        except RpcProblem:
            refused = True
        del message, params
        assert (refused, kept()) == (True, None)
    finally:
        gc.enable()
