"""
Check the token of every request. Only the open routes are looked up without a living token.

A token's rights come from the server's record. A client's claims (scopes, person, audience, in a
header or a body) are never read.
"""

import logging
import re
from collections.abc import Callable

from holdfast.errors import HoldfastError, Untrusted
from holdfast.gateway.http.asgi import AsgiApp, Receive, Scope, Send
from holdfast.gateway.http.problems import problem, problem_response, status_of
from holdfast.gateway.server.rate_limit import Rate
from holdfast.gateway.server.tokens import Bearer, TokenBook

_log = logging.getLogger("holdfast.gateway.http.authentication")
_AUTHORIZATION = re.compile(rb"(?i:bearer) (hf_[A-Za-z0-9]{49})\Z")


class Authentication:
    """Put the token's owner into the scope as `holdfast.bearer`."""

    def __init__(
        self,
        app: AsgiApp,
        book: TokenBook,
        *,
        is_open: Callable[[str], bool],
        now: Callable[[], int],
        per_second: float,
        burst: float,
    ) -> None:
        self._app = app
        self._book = book
        self._is_open = is_open
        self._now = now
        self._requests = Rate(per_second=per_second, burst=burst)
        # One bucket for all clients without a token: nothing else tells them apart.
        self._strangers = Rate(per_second=200, burst=1_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_open(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            bearer = await self._bearer(scope)
        # Refuse every client. The client is unknown, so only the log reports the cause.
        except HoldfastError as exc:
            _log.warning("nobody is let in (%s): %s", exc.code, exc.message)
            code = "sealed" if isinstance(exc, Untrusted) else exc.code
            refusal = problem(
                status_of(exc),
                code,
                "this server's home can't be read now, so every request is refused",
                "for the operator: `holdfast doctor`",
            )
            await problem_response(refusal)(send)
            return
        if bearer is None:
            if self._strangers.take(""):
                refusal = problem(
                    401,
                    "unauthorized",
                    "no valid token",
                    "bring one in the header Authorization, as the scheme Bearer; `holdfast tokens "
                    "add` makes one",
                )
            else:
                refusal = problem(429, "too_many", "too many requests without a valid token")
            await problem_response(refusal)(send)
        elif not self._requests.take(bearer.digest):
            await problem_response(problem(429, "too_many", "too many requests with this token"))(
                send
            )
        else:
            scope["holdfast.bearer"] = bearer
            await self._app(scope, receive, send)

    async def _bearer(self, scope: Scope) -> Bearer | None:
        given = [value for key, value in scope["headers"] if key == b"authorization"]
        found = _AUTHORIZATION.match(given[0]) if len(given) == 1 else None
        return (
            await self._book.find(found[1].decode(), now=self._now()) if found is not None else None
        )
