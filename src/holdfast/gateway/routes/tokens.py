"""`/v1/me` and `/v1/codes`: the token itself."""

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import ANY_BEARER, OPEN, AnyRoute, ApiCall, Route
from holdfast.gateway.http.schemas import CodeIn, TokenGiven, Whoami
from holdfast.gateway.server.one_time_codes import PAGE_TOKEN_SECONDS
from holdfast.runtime.reports.types import iso


class TokenRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/me", scope=ANY_BEARER, handle=self.whoami, response=Whoami,
                id="whoami", summary="Who this token speaks for",
                answer="from the server's record",
            ),
            Route(
                method="POST", path="/v1/codes", scope=OPEN, handle=self.exchange_code,
                request=CodeIn, response=TokenGiven, status=201,
                id="exchangeCode", summary="A one-time code for a token",
                answer="shown this once", problems=(401, 503),
            ),
        ]  # fmt: skip

    async def exchange_code(self, call: ApiCall[CodeIn]) -> TokenGiven:
        gateway, live = self._gateway, self._gateway.service.live
        found = await gateway.book.exchange(
            call.body.code,
            name=gateway.page_token_name(),
            expires_at=live.now_ms() + PAGE_TOKEN_SECONDS * 1000,
            now=live.clock_ms(),
        )
        if found is None:
            # Count only wrong codes, so that guessing can't keep the owner out.
            if not gateway.code_tries.take(""):
                raise Refused("too many codes were tried", code="too_many", hint="wait a moment")
            raise Refused(
                "this code is unknown, used or too old",
                code="unauthorized",
                hint="`holdfast serve code` gives a new one",
            )
        token, added = found
        return TokenGiven(
            token=token,
            name=added.name,
            person=added.person,
            scopes=added.scopes,
            audience=added.audience,
            expires_at=iso(added.expires_at) if added.expires_at is not None else None,
        )

    async def whoami(self, call: ApiCall[None]) -> Whoami:
        bearer = call.bearer
        return Whoami(
            name=bearer.name,
            person=bearer.person,
            scopes=tuple(sorted(bearer.scopes)),
            audience=bearer.audience.value,
            boundary=bearer.boundary,
            expires_at=iso(bearer.expires_at) if bearer.expires_at is not None else None,
            on_message=self._gateway.service.live.policy().on_message,
        )
