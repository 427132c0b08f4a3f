"""Holdfast as a client of an issuer: its id, and how it proves itself when it asks for a token."""

import base64
import secrets
import time
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.adapters.mcp.oauth.discovery import TokenIssuer
from holdfast.adapters.mcp.oauth.web import LoginFailed, post_json

_BASIC, _POST, _NONE, _KEY = (
    "client_secret_basic",
    "client_secret_post",
    "none",
    "private_key_jwt",
)
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS = 60


class OAuthClient(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    id: str
    method: str = ""  # as the issuer said when it registered us; empty: by what there is
    secret: str | None = None
    key: str | None = None  # a private key, as PEM

    def __repr__(self) -> str:
        return f"OAuthClient({self.id!r})"  # never a secret

    def proven(
        self, form: dict[str, str], authority: TokenIssuer
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the form and the headers of a request for a token."""
        match self._method(authority):
            case "client_secret_basic":
                pair = f"{quote(self.id, safe='')}:{quote(self.secret or '', safe='')}"
                return form, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
            case "client_secret_post":
                return {**form, "client_id": self.id, "client_secret": self.secret or ""}, {}
            case "private_key_jwt":
                assertion = _assertion(self.id, self.key or "", authority.issuer)
                proof = {"client_assertion_type": _ASSERTION, "client_assertion": assertion}
                return {**form, "client_id": self.id, **proof}, {}
            case _:
                return {**form, "client_id": self.id}, {}

    def _method(self, authority: TokenIssuer) -> str:
        if self.key is not None:
            return _KEY
        if self.secret is None:
            return _NONE
        if self.method:
            return self.method
        return _POST if authority.methods == (_POST,) else _BASIC


def _assertion(client: str, pem: str, issuer: str) -> str:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError) as exc:
        raise LoginFailed("the client's key is not a private key in PEM") from exc
    match key:
        case ec.EllipticCurvePrivateKey():
            algorithm = {256: "ES256", 384: "ES384", 521: "ES512"}.get(key.key_size, "")
        case rsa.RSAPrivateKey():
            algorithm = "RS256"
        case ed25519.Ed25519PrivateKey():
            algorithm = "EdDSA"
        case _:
            algorithm = ""
    if not algorithm:
        raise LoginFailed("the client's key must be an EC, RSA or Ed25519 key")
    now = int(time.time())
    claims = {
        "iss": client,
        "sub": client,
        "aud": issuer,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": secrets.token_urlsafe(16),
    }
    return str(jwt.encode(claims, pem, algorithm=algorithm))


async def register(authority: TokenIssuer, redirect: str) -> OAuthClient:
    """Make ourselves known to an issuer (RFC 7591), as a program on a person's machine."""
    if authority.registration is None:
        raise LoginFailed(
            f"the issuer {authority.issuer} registers no clients; give client_id in settings"
        )
    offered = authority.methods or (_NONE,)
    method = next((each for each in (_NONE, _BASIC, _POST) if each in offered), None)
    if method is None:
        raise LoginFailed(f"the issuer {authority.issuer} takes none of our ways to prove a client")
    wanted: dict[str, Any] = {
        "client_name": "Holdfast",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    answer = await post_json(authority.registration, wanted)
    found, secret = answer.body.get("client_id"), answer.body.get("client_secret")
    if not answer.is_ok or not isinstance(found, str) or not found:
        raise LoginFailed(f"the issuer {authority.issuer} did not register us ({answer.status})")
    said = answer.body.get("token_endpoint_auth_method")
    method = said if said in (_NONE, _BASIC, _POST) else method
    has_secret = method != _NONE and isinstance(secret, str) and bool(secret)
    return OAuthClient(id=found, method=method, secret=str(secret) if has_secret else None)
