"""Requests for tokens: by a code, by a token to renew another, by the client itself."""

import time
from typing import Any

import msgspec

from holdfast.adapters.mcp.oauth.challenge import scopes_from
from holdfast.adapters.mcp.oauth.client import OAuthClient
from holdfast.adapters.mcp.oauth.discovery import TokenIssuer
from holdfast.adapters.mcp.oauth.web import LoginFailed, post_form

_EARLY_SECONDS = 30.0  # a token that ends on its way is refused
_TOKEN_CHARS_MAX = 16 * 1024
_BY_IDENTITY = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    access: str
    renewal: str | None = None
    ends_at: float | None = None  # wall clock; None: the issuer did not say
    scopes: tuple[str, ...] = ()  # as granted; empty: the issuer did not say

    def __repr__(self) -> str:
        return "Tokens(...)"  # never their values

    @property
    def is_over(self) -> bool:
        return self.ends_at is not None and time.time() > self.ends_at - _EARLY_SECONDS


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that every request for a token has."""

    authority: TokenIssuer
    client: OAuthClient
    resource: str

    async def by_code(self, code: str, *, redirect: str, verifier: str) -> Tokens:
        form = {"grant_type": "authorization_code", "code": code}
        return await self._asked({**form, "redirect_uri": redirect, "code_verifier": verifier})

    async def by_renewal(self, old: Tokens) -> Tokens:
        new = await self._asked({"grant_type": "refresh_token", "refresh_token": old.renewal or ""})
        kept = new.renewal or old.renewal  # an issuer may keep the old one valid
        return msgspec.structs.replace(new, renewal=kept, scopes=new.scopes or old.scopes)

    async def by_client(self, scopes: tuple[str, ...]) -> Tokens:
        scope = {"scope": " ".join(scopes)} if scopes else {}
        return await self._asked({"grant_type": "client_credentials", **scope})

    async def by_identity(self, identity: str, scopes: tuple[str, ...]) -> Tokens:
        """`identity` is a token of somebody whom the issuer trusts, and says who we are."""
        scope = {"scope": " ".join(scopes)} if scopes else {}
        return await self._asked({"grant_type": _BY_IDENTITY, "assertion": identity, **scope})

    async def _asked(self, form: dict[str, str]) -> Tokens:
        proven, headers = self.client.proven(form, self.authority)
        answer = await post_form(
            self.authority.token, {**proven, "resource": self.resource}, headers
        )
        if not answer.is_ok:
            raise LoginFailed(f"the issuer {self.authority.issuer} gave no token: {answer.said}")
        return _tokens(answer.body, self.authority)


def _tokens(body: dict[str, Any], authority: TokenIssuer) -> Tokens:
    access, renewal = body.get("access_token"), body.get("refresh_token")
    if not is_token(access) or str(body.get("token_type", "bearer")).lower() != "bearer":
        raise LoginFailed(f"the issuer {authority.issuer} sent something that is not a token")
    seconds = body.get("expires_in")
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return Tokens(
        access=str(access),
        renewal=str(renewal) if is_token(renewal) else None,
        ends_at=time.time() + float(seconds) if is_number and seconds is not None else None,
        scopes=scopes_from(body.get("scope")),
    )


def is_token(value: object) -> bool:
    """A header must be able to carry it, and nothing beside it."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _TOKEN_CHARS_MAX
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )
