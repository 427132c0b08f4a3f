"""
`POST /v1/hooks/NAME`: a signed webhook starts a turn.

Person, audience, session and agent come from settings. The body is quoted: it informs the model and
has no authority. Nobody is there to answer a prompt, so a call that must ask is denied, unless
policy names approvers. The message is durable before the sender gets an answer, and a webhook that
is sent again is the same message.
"""

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import OPEN, AnyRoute, ApiCall, Parameter, Route
from holdfast.gateway.http.schemas import MessageTaken
from holdfast.gateway.server.inbound_hook import HOOK_BODY_BYTES_MAX, InboundHook
from holdfast.gateway.server.rate_limit import Rate
from holdfast.ids import session_id
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.messages import Quote
from holdfast.webhook_signature import is_signed

# A session remembers its last 4,096 keys. So few come while a signature holds, five minutes before
# and after its time, that none is forgotten: a recorded request never becomes a second message.
TAKEN_PER_SECOND, TAKEN_AT_ONCE = 5, 100
_NO_KEYS = (bytes(32),)  # an unknown hook costs the same as a wrong signature
_HEADERS = tuple(
    Parameter(name, text, {"type": "string", "minLength": 1, "maxLength": 1_000})
    for name, text in (
        ("webhook-id", "the same id again is the same message"),
        ("webhook-timestamp", "Unix seconds; five minutes off are refused"),
        ("webhook-signature", "v1, and the base64 of HMAC-SHA256 over id.timestamp.body"),
    )
)


class HookRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        # Requests that are not signed share a bucket, and can't use up that of the genuine ones.
        self._strangers = Rate(per_second=200, burst=1_000)
        workers = gateway.share.workers  # each takes its part of them
        self._taken = Rate(per_second=TAKEN_PER_SECOND / workers, burst=TAKEN_AT_ONCE / workers)

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="POST", path="/v1/hooks/{hook}", scope=OPEN, handle=self.receive,
                response=MessageTaken, status=202, headers=_HEADERS,
                id="receiveWebhook", summary="Receive a signed webhook", answer="durable",
                problems=(401, 413, 422, 429),
            ),
        ]  # fmt: skip

    async def receive(self, call: ApiCall[None]) -> MessageTaken:
        request = call.request
        name = request.path_parts["hook"]
        hook = self._gateway.settings.hooks.get(name)
        ident = request.header("webhook-id")
        body = await request.raw(HOOK_BODY_BYTES_MAX)
        is_ours = is_signed(
            hook.keys if hook is not None else _NO_KEYS,
            ident=ident,
            timestamp=request.header("webhook-timestamp"),
            signatures=request.header("webhook-signature"),
            body=body,
            now_seconds=self._gateway.service.live.clock_ms() // 1000,
        )
        if hook is None or ident is None or not is_ours:
            if not self._strangers.take(""):
                raise Refused(
                    "too many requests without a valid signature",
                    code="too_many",
                    hint="try again later, signed",
                )
            raise Refused(
                "no such webhook, or its signature does not hold",
                code="unauthorized",
                hint="sign with the secret that [hooks.NAME] names, with a clock that is right",
            )
        if not self._taken.take(hook.session):
            raise Refused("too many webhooks at once", code="too_many", hint="send it again later")
        return await self._accept(name, hook, ident, body)

    async def _accept(self, name: str, hook: InboundHook, ident: str, body: bytes) -> MessageTaken:
        try:
            quote = Quote(speaker=f"webhook {name}", text=body.decode())
        except UnicodeDecodeError as exc:
            raise Refused("the body is not UTF-8", code="malformed", hint="send JSON") from exc
        session = session_id(hook.session)
        report = await self._gateway.service.send(
            session,
            Incoming(
                text=hook.text,
                source=msgspec.structs.replace(hook.source(), quotes=(quote,), message_id=ident),
                agent=hook.agent,
                dedup=f"hook:{name}:{ident}",
                workspace=self._gateway.workspace(),
            ),
            wait=False,
        )
        self._gateway.drives.wake(session)
        self._gateway.metrics.messages += 1
        return MessageTaken(
            session=session,
            turn=report.turn,
            input=f"i{(report.turn or '')[1:]}",
            seq=report.seq,
            superseded=report.superseded,
        )
