"""
`POST /v1/gates`: may a coding agent run a built-in tool of its own? For `holdfast hook`.

The call is gated like every call of a client: a turn of its own, a prompt if policy asks, an answer
from a person. The agent runs the tool itself, so this is a convenience and not a barrier.
"""

from typing import Any

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import AnyRoute, ApiCall, Route
from holdfast.gateway.http.schemas import GateDecision, GateIn
from holdfast.gateway.mcp.calls.relayed_call import RelayedCall
from holdfast.gateway.mcp.clients import refuse_approver, session_of_client, source_of_call
from holdfast.gateway.mcp.peer_user import shares_user

_FOLDER = "in_folder"  # beside the tool's own arguments, in the prompt and in the journal


class GateRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="POST", path="/v1/gates", scope="send", handle=self.decide,
                request=GateIn, response=GateDecision, id="gateTool",
                summary="Ask whether a coding agent may run a tool of its own",
                answer="allowed, denied, or waiting for a person", problems=(422, 429),
            ),
        ]  # fmt: skip

    async def decide(self, call: ApiCall[GateIn]) -> GateDecision:
        bearer, asked = call.bearer, call.body
        refuse_approver(bearer)
        scope = call.request.scope
        same = shares_user(scope.get("client"), scope.get("server"))
        relayed = RelayedCall(
            session=session_of_client(bearer, asked.agent),
            source=source_of_call(bearer, shares_user=same),
            client=asked.agent,
            tool=f"{asked.agent}.{asked.tool}",
            arguments=msgspec.json.encode(_shown(asked), order="sorted").decode(),
        )
        while (decided := await self._decided(relayed)) is None:
            pass
        return decided

    async def _decided(self, relayed: RelayedCall) -> GateDecision | None:
        """
        Decide, or return None if another request has the result: an approval lets one call go, so
        an equal one that waited for the same prompt begins anew.
        """
        wait_seconds = self._gateway.settings.mcp_wait_seconds
        async with self._gateway.desk.call(relayed, wait_seconds=wait_seconds) as (flight, gate):
            if gate.waiting:
                name = gate.approval.id if gate.approval is not None else None
                text = f"it waits for a person's approval, {name}; try the same call again later"
                return GateDecision(decision="wait", reason=text, approval=name)
            if gate.outcome != "ok":
                flight.deliver()
                return GateDecision(decision="deny", reason=gate.text)
            if not await flight.collect():
                return None
            return GateDecision(decision="allow", reason=gate.text)


def _shown(asked: GateIn) -> dict[str, Any]:
    """Return the arguments with the agent's folder: the same command elsewhere is another call."""
    if asked.folder is None:
        return asked.arguments
    if _FOLDER in asked.arguments:
        raise Refused(
            f"the tool has an argument {_FOLDER!r} of its own, so its folder can't be shown",
            code="malformed",
            hint="ask without a folder",
        )
    return {**asked.arguments, _FOLDER: asked.folder}
