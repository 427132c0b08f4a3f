"""
A token that says who this client is: the platform keeps it in a file, and renews it there. It goes
to the issuer that settings name, in return for a token of the server (RFC 7523).

At an enterprise the file holds the token of a person's session. The enterprise's own issuer gives
another one for it, which names the server, and that one goes on (RFC 8693).
"""

import os

from holdfast.adapters.mcp.oauth.discovery import Resource, TokenIssuer, find_authority
from holdfast.adapters.mcp.oauth.tokens import is_token
from holdfast.adapters.mcp.oauth.web import LoginFailed, post_form
from holdfast.ports.tool_servers import ToolServer
from holdfast.threads import BLOCKING

_BYTES_MAX = 64 * 1024
_TYPE = "urn:ietf:params:oauth:token-type:"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


async def read_identity(path: str) -> str:
    """Read the token anew: it ends soon. Raise LoginFailed."""
    found = await BLOCKING.call(lambda: _bytes(path))
    text = found.decode(errors="replace").strip()
    if not is_token(text):
        raise LoginFailed(f"{path} does not hold a token")
    return text


def _bytes(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise LoginFailed(f"the identity in {path} can't be read ({exc.strerror})") from exc
    try:
        return os.read(fd, _BYTES_MAX)
    except OSError as exc:
        raise LoginFailed(f"the identity in {path} can't be read ({exc.strerror})") from exc
    finally:
        os.close(fd)


async def exchange_identity(settings: ToolServer, identity: str, authority: TokenIssuer) -> str:
    """Return the enterprise's word for the server's issuer. Raise LoginFailed."""
    url, issuer = settings.url or "", settings.identity_issuer or ""
    at = await find_authority(Resource(name=url, issuer=issuer), issuer)
    form = {
        "grant_type": _EXCHANGE,
        "requested_token_type": f"{_TYPE}id-jag",
        "subject_token_type": f"{_TYPE}id_token",
        "subject_token": identity,
        "audience": authority.issuer,
        "resource": url,
        "client_id": settings.identity_client_id or settings.client_id or "",
    }
    if settings.scopes:
        form["scope"] = " ".join(settings.scopes)
    answer = await post_form(at.token, form)
    found = answer.body.get("access_token")
    if not answer.is_ok or answer.body.get("issued_token_type") != form["requested_token_type"]:
        raise LoginFailed(f"the issuer {at.issuer} gave nothing for the identity: {answer.said}")
    if not is_token(found):
        raise LoginFailed(f"the issuer {at.issuer} sent something that is not a token")
    return str(found)
