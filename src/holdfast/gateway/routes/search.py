"""`/v1/search`: words in the conversations of the token's person."""

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, after_name, page_asked_for
from holdfast.gateway.http.router import AnyRoute, ApiCall, Parameter, Route
from holdfast.runtime.reports.search import SearchReport

_WORDS_CHARS_MAX = 200
_WORDS = Parameter(
    "q",
    "all of these words; required",
    {"type": "string", "minLength": 1, "maxLength": _WORDS_CHARS_MAX},
)


class SearchRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/search", scope="read", handle=self.find,
                response=SearchReport, query=(LIMIT, after_name("^.+$"), _WORDS),
                id="search", summary="Search conversations", answer="a page, newest first",
            ),
        ]  # fmt: skip

    async def find(self, call: ApiCall[None]) -> SearchReport:
        """
        Search the sessions in which the token's person takes part. A hit does not record its
        audience, so only a token that reads every audience may search.
        """
        bearer = call.bearer
        if not bearer.reads_every_reader_set:
            raise Refused(
                "this token may not search",
                code="no_authority",
                hint="a token with the audience personal may",
            )
        limit, after = page_asked_for(call.query)
        words = call.query.get("q", "")
        if not len(words.strip()) >= 1 or len(words) > _WORDS_CHARS_MAX:
            raise Refused(
                f"q is 1 to {_WORDS_CHARS_MAX} characters of words to look for",
                code="malformed",
                hint="for example ?q=deploy",
            )
        return await self._gateway.service.search(
            words, person=bearer.person, limit=limit, after=after
        )
