"""
A person logs in at a server's issuer, in a browser of their own (RFC 8252, PKCE).

Holdfast shows an address and opens none. The browser comes back to a port on this machine, or the
person pastes the address that it ended at. Only an answer with the state of this login counts.
"""

import asyncio
import base64
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from holdfast.adapters.mcp.connection import Challenged, ReplyLost
from holdfast.adapters.mcp.http import HttpConnection
from holdfast.adapters.mcp.oauth.challenge import Challenge
from holdfast.adapters.mcp.oauth.client import OAuthClient, register
from holdfast.adapters.mcp.oauth.credentials import NoCredentials, own_secrets
from holdfast.adapters.mcp.oauth.discovery import (
    Resource,
    TokenIssuer,
    find_authority,
    find_resource,
)
from holdfast.adapters.mcp.oauth.saved_login import LoginFile, SavedLogin
from holdfast.adapters.mcp.oauth.web import LoginFailed
from holdfast.adapters.mcp.protocol import NotUsable, ServerSession
from holdfast.ports.tool_servers import ToolServer
from holdfast.session.view.safe_text import render_line

_HEAD_BYTES_MAX = 16 * 1024
_HEAD_SECONDS = 5.0
_PATH = "/callback"
_OFFLINE = "offline_access"
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>Holdfast</title>"
    "<p>Holdfast has the answer. You can close this window.</p>"
)


class OpenLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A login that waits for the browser."""

    address: str  # for the person to open
    login: SavedLogin
    state: str
    verifier: str


async def begin_login(settings: ToolServer, file: LoginFile, *, redirect: str) -> OpenLogin:
    """Ask the server whom it trusts, and make the address. Raise LoginFailed."""
    url = settings.url or ""
    before = file.load(url)
    challenge = await _challenge(url)
    resource = await find_resource(url, challenge)
    if settings.issuer is not None:
        if resource.is_described and _bare(resource.issuer) != _bare(settings.issuer):
            raise LoginFailed(
                f"the server names the issuer {resource.issuer}, and settings {settings.issuer}"
            )
        resource = msgspec.structs.replace(resource, issuer=settings.issuer)
    authority = await find_authority(resource, url)
    if not authority.authorization:
        raise LoginFailed(f"the issuer {authority.issuer} has no login for people with PKCE (S256)")
    if before is not None and before.authority.issuer != authority.issuer:
        before = None  # nothing of one issuer goes to another
    client = await _client(settings, authority, before, redirect)
    scopes = _scopes(settings, challenge, resource, authority, before)
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    login = SavedLogin(
        url=url,
        resource=resource.name,
        authority=authority,
        client=client,
        redirect=redirect,
        requested=scopes,
    )
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": _s256(verifier),
        "code_challenge_method": "S256",
        "resource": resource.name,
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"prompt": "consent"} if _OFFLINE in scopes else {}),
    }
    joined = "&" if urlsplit(authority.authorization).query else "?"
    address = f"{authority.authorization}{joined}{urlencode(query)}"
    return OpenLogin(address=address, login=login, state=state, verifier=verifier)


async def finish_login(
    opened: OpenLogin, answered: str, settings: ToolServer, file: LoginFile
) -> SavedLogin:
    """`answered` is the address at which the browser ended. Raise LoginFailed."""
    login = opened.login
    code = _code(opened, answered)
    request = login.request(*own_secrets(settings))
    tokens = await request.by_code(code, redirect=login.redirect, verifier=opened.verifier)
    saved = msgspec.structs.replace(login, tokens=tokens)
    with file.locked():
        file.save(saved)
    return saved


async def _challenge(url: str) -> Challenge:
    """Ask the server without a token, and return what it wants."""
    session = ServerSession(HttpConnection(url, credentials=NoCredentials()))
    try:
        await session.begin()
        await session.listed()
    except Challenged as exc:
        return exc.challenge
    except (NotUsable, ReplyLost):
        pass  # it may not say so in a way that we know
    finally:
        await session.close()
    return Challenge(status=401)


async def _client(
    settings: ToolServer, authority: TokenIssuer, before: SavedLogin | None, redirect: str
) -> OAuthClient:
    own = settings.client_id
    if own is not None and (authority.takes_addresses or not own.startswith("https://")):
        return OAuthClient(id=own)
    if before is not None and before.redirect == redirect:
        return before.client
    return await register(authority, redirect)


def _scopes(
    settings: ToolServer,
    challenge: Challenge,
    resource: Resource,
    authority: TokenIssuer,
    before: SavedLogin | None,
) -> tuple[str, ...]:
    """
    Return the scopes of settings; else those that the server asks for now or asked for before; else
    those that it describes.
    """
    if settings.scopes:
        return settings.scopes
    asked = challenge.scopes or resource.scopes
    kept = () if before is None else (*before.requested, *before.wanted)
    scopes = tuple(dict.fromkeys((*kept, *asked)))
    if scopes and _OFFLINE in authority.scopes and _OFFLINE not in scopes:
        scopes = (*scopes, _OFFLINE)  # without it a login ends within the hour
    return scopes


def _code(opened: OpenLogin, answered: str) -> str:
    found = _query(answered)
    if not secrets.compare_digest(found.get("state", "").encode(), opened.state.encode()):
        raise LoginFailed("the answer does not belong to this login")
    authority, issuer = opened.login.authority, found.get("iss")
    # Simple comparison (RFC 9207): another issuer could have sent the browser here.
    if issuer != authority.issuer and (issuer is not None or authority.names_itself):
        raise LoginFailed(f"the answer does not come from the issuer {authority.issuer}")
    if "code" not in found:
        said = render_line(f"{found.get('error', '')} {found.get('error_description', '')}"[:200])
        raise LoginFailed(f"the issuer did not agree: {said.text.strip() or 'it does not say why'}")
    return found["code"]


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def _state_in(address: str) -> str | None:
    return _query(address).get("state")


def _s256(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _bare(issuer: str) -> str:
    return issuer.removesuffix("/")


class BrowserReturn:
    """A port on this machine to which the browser comes back, once."""

    def __init__(self, port: int) -> None:
        self.redirect = f"http://127.0.0.1:{port}{_PATH}"
        self._port = port
        self._state = ""
        self._answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def address(self, state: str, *, timeout_seconds: float) -> str:
        """Return the address at which the browser ended with this state. Raise LoginFailed."""
        self._state = state
        try:
            return await asyncio.wait_for(self._answered, timeout_seconds)
        except TimeoutError:
            raise LoginFailed(f"nobody logged in within {timeout_seconds:g} s") from None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_HEAD_SECONDS):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.split("\r\n")
            hosts = [line[5:].strip() for line in lines if line.lower().startswith("host:")]
            method, _, rest = first.partition(" ")
            path = rest.partition(" ")[0]
            # Another page in the browser may ask here too, under another name of this machine.
            is_ours = (method, hosts) == ("GET", [f"127.0.0.1:{self._port}"]) and (
                path.startswith(f"{_PATH}?") and _state_in(path) == self._state != ""
            )
            if is_ours and not self._answered.done():
                self._answered.set_result(f"http://127.0.0.1:{self._port}{path}")
                status, body = "200 OK", _PAGE
            else:
                status, body = "404 Not Found", ""
            writer.write(
                f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
                f"cache-control: no-store\r\nconnection: close\r\n\r\n{body}".encode()
            )
            await writer.drain()
        writer.close()


@asynccontextmanager
async def browser_return(port: int) -> AsyncGenerator[BrowserReturn, None]:
    """Listen on this port of this machine; 0 for any. Raise LoginFailed if it is taken."""
    waiting: list[BrowserReturn] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waiting[0].serve(reader, writer)

    try:
        server = await asyncio.start_server(serve, "127.0.0.1", port, limit=_HEAD_BYTES_MAX)
    except OSError as exc:
        raise LoginFailed(f"the port {port} is taken ({exc.strerror})") from exc
    waiting.append(BrowserReturn(server.sockets[0].getsockname()[1]))
    async with server:
        yield waiting[0]
