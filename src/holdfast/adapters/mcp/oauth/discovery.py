"""
Who lets clients into a server: the server describes itself (RFC 9728), its issuer does (RFC 8414 or
OpenID Connect), and the two must agree.

A server from before June 2025 has no description. Its own origin is then its issuer.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.mcp.oauth.challenge import Challenge, scopes_from
from holdfast.adapters.mcp.oauth.web import LoginFailed, fetch, is_fit

_RESOURCE = "/.well-known/oauth-protected-resource"
_ISSUER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it describes itself to clients."""

    name: str  # the address that a token is for
    issuer: str
    scopes: tuple[str, ...] = ()
    is_described: bool = True


class TokenIssuer(msgspec.Struct, frozen=True, kw_only=True):
    """An issuer of tokens."""

    issuer: str
    authorization: str
    token: str
    registration: str | None = None
    methods: tuple[str, ...] = ()  # in which a client may prove itself; empty: not said
    scopes: tuple[str, ...] = ()
    takes_addresses: bool = False  # as ids of clients
    names_itself: bool = False  # in the answer that the browser brings back


async def find_resource(server: str, challenge: Challenge) -> Resource:
    origin = _origin(server)
    for address in _described_at(server, challenge):
        answer = await fetch(address)
        if not answer.is_ok or not answer.body:
            continue
        name, issuers = answer.body.get("resource"), answer.body.get("authorization_servers")
        if not isinstance(name, str) or not _covers(name, server):
            raise LoginFailed(f"the server describes itself as {name!a}, and is at {server}")
        if not isinstance(issuers, list) or not issuers or not is_fit(issuers[0], server):
            raise LoginFailed("the server names no issuer that Holdfast may ask: it must be https")
        scopes = scopes_from(answer.body.get("scopes_supported"))
        return Resource(name=name, issuer=issuers[0], scopes=scopes)
    return Resource(name=server, issuer=origin, is_described=False)


def _described_at(server: str, challenge: Challenge) -> Iterator[str]:
    origin, path = _origin(server), urlsplit(server).path
    # Another origin could describe the server as it likes.
    if is_fit(challenge.metadata, server) and _origin(str(challenge.metadata)) == origin:
        yield str(challenge.metadata)
    if path.strip("/"):
        yield f"{origin}{_RESOURCE}{path}"
    yield f"{origin}{_RESOURCE}"


async def find_authority(resource: Resource, server: str) -> TokenIssuer:
    issuer = resource.issuer
    for address in _issuer_at(resource):
        answer = await fetch(address)
        if answer.is_ok and answer.body:
            return _authority(answer.body, issuer, server)
    if resource.is_described:
        raise LoginFailed(f"the issuer {issuer} does not describe itself")
    return TokenIssuer(
        issuer=issuer,
        authorization=f"{issuer}/authorize",
        token=f"{issuer}/token",
        registration=f"{issuer}/register",
    )


def _issuer_at(resource: Resource) -> Iterator[str]:
    origin, path = _origin(resource.issuer), urlsplit(resource.issuer).path.rstrip("/")
    yield f"{origin}{_ISSUER}{path}"
    if path:
        yield f"{origin}{_OPENID}{path}"
    if resource.is_described:
        yield f"{origin}{path}{_OPENID}"


def _authority(found: dict[str, Any], issuer: str, server: str) -> TokenIssuer:
    said = found.get("issuer")
    # Simple comparison, but for the slash that ends an origin: RFC 3986 has both forms as equal.
    if not isinstance(said, str) or said.removesuffix("/") != issuer.removesuffix("/"):
        raise LoginFailed(f"the issuer {issuer} calls itself {said!a}")
    authorization, token = found.get("authorization_endpoint"), found.get("token_endpoint")
    if not is_fit(token, server) or not is_fit(authorization or token, server):
        raise LoginFailed(f"the issuer {issuer} names an address that is not https")
    challenges = found.get("code_challenge_methods_supported")
    if authorization and (not isinstance(challenges, list) or "S256" not in challenges):
        authorization = None  # without PKCE a code that is stolen on its way can be used
    registration = found.get("registration_endpoint")
    return TokenIssuer(
        issuer=said,
        authorization=str(authorization or ""),
        token=str(token),
        registration=str(registration) if is_fit(registration, server) else None,
        methods=scopes_from(found.get("token_endpoint_auth_methods_supported")),
        scopes=scopes_from(found.get("scopes_supported")),
        takes_addresses=found.get("client_id_metadata_document_supported") is True,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


def _covers(name: str, server: str) -> bool:
    """Whether this name of a resource is the server's address, or a beginning of it."""
    named, asked = urlsplit(name), urlsplit(server)
    if _origin(name).lower() != _origin(server).lower() or named.query not in ("", asked.query):
        return False
    return f"{asked.path.rstrip('/')}/".startswith(f"{named.path.rstrip('/')}/")
