"""
`POST /v1/channels/NAME`: a chat platform that calls us instead of being asked. The platform
checks the signature; the message is durable before the answer.
"""

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import OPEN, AnyRoute, ApiCall, Route
from holdfast.gateway.server.rate_limit import Rate
from holdfast.limits import KIB

BODY_BYTES_MAX = 256 * KIB  # an event with the longest message, in escapes


class ChannelAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Empty, or the challenge by which a platform verifies this address."""

    challenge: str | None = None


class ChannelRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tries = Rate(per_second=50, burst=500)  # of all senders together, before any check

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="POST", path="/v1/channels/{channel}", scope=OPEN,
                handle=self.receive, response=ChannelAnswer,
                id="receiveChannelEvent", summary="Receive a signed event of a chat platform",
                answer="durable", problems=(401, 413, 429),
            ),
        ]  # fmt: skip

    async def receive(self, call: ApiCall[None]) -> ChannelAnswer:
        if not self._tries.take(""):
            raise Refused("too many events at once", code="too_many", hint="send it again later")
        request = call.request
        body = await request.raw(BODY_BYTES_MAX)
        receive = self._gateway.chat_receiver(request.path_parts["channel"])
        answer = None if receive is None else await receive(request.header, body)
        if answer is None:
            raise Refused(
                "no such channel, or its signature does not hold",
                code="unauthorized",
                hint="[channels.NAME] needs signing_secret_env, and both clocks must be right",
            )
        return ChannelAnswer(challenge=answer or None)
