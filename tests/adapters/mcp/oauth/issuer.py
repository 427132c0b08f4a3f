"""
A server that wants a login, and its issuer, on one port of loopback, in the test's own loop.

It gives out real codes and tokens by the rules of OAuth: a code is good once and only with its PKCE
verifier, a renewal is good once. Everything that came is in `got`.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.adapters.mcp.conftest import ECHO


class Came(NamedTuple):
    path: str
    headers: dict[str, str]
    form: dict[str, str]  # of the query, or of the body
    message: dict[str, Any]  # of JSON


class Issuer:
    def __init__(self) -> None:
        self.port = 0
        self.got: list[Came] = []
        self.scope = "basic"  # that every request needs
        self.call_scope = "basic"  # that a call needs beside it
        self.says = "done"  # the text of a call's result; `{token}` stands for the token
        self.worded = True
        self.resource: dict[str, Any] = {}  # instead of what is true
        self.metadata: dict[str, Any] = {}
        self.answer: dict[str, str] = {}  # beside the code
        self.lifetime: int | None = 3600
        self.named_issuer: str | None = None
        self.refuses_identities = False
        self.moved = ""  # where to send whoever asks for the description
        self._codes: dict[str, tuple[str, str]] = {}
        self._numbers = iter(range(1, 99))
        self.tokens: dict[str, str] = {}  # with their scopes
        self.renewals: dict[str, str] = {}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def came(self, path: str) -> list[Came]:
        return [each for each in self.got if each.path == path]

    def calls(self) -> list[Came]:
        return [each for each in self.got if each.message.get("method") == "tools/call"]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {n.lower(): v for n, v in (each.split(": ", 1) for each in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            target = urlsplit(first.split()[1])
            is_json = headers.get("content-type", "").startswith("application/json")
            text = target.query or ("" if is_json else body.decode())
            form = {name: values[0] for name, values in parse_qs(text).items()}
            message = json.loads(body) if is_json and body else {}
            came = Came(target.path, headers, form, message)
            self.got.append(came)
            status, found, more = self._answered(came)
            sent = json.dumps(found).encode()
            said = [f"HTTP/1.1 {status}", "content-type: application/json", *more]
            said += [f"content-length: {len(sent)}", "connection: close"]
            writer.write("\r\n".join(said).encode() + b"\r\n\r\n" + sent)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answered(self, came: Came) -> tuple[str, dict[str, Any], list[str]]:
        match came.path:
            case "/mcp":
                return self._mcp(came)
            case "/.well-known/oauth-protected-resource/mcp":
                if self.moved:
                    return "307 Temporary Redirect", {}, [f"location: {self.moved}"]
                issuer = self.named_issuer or self.origin
                return "200 OK", {
                    "resource": self.url, "authorization_servers": [issuer], **self.resource,
                }, []  # fmt: skip
            case "/.well-known/oauth-authorization-server":
                return "200 OK", self._described(), []
            case "/register":
                return "201 Created", {"client_id": "ours"}, []
            case "/authorize":
                return self._authorized(came.form)
            case "/token":
                return self._token(came.form)
            case _:
                return "404 Not Found", {}, []

    def _described(self) -> dict[str, Any]:
        found = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "code_challenge_methods_supported": ["S256"],
            **self.metadata,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _authorized(self, form: dict[str, str]) -> tuple[str, dict[str, Any], list[str]]:
        code = f"a-code-{next(self._numbers)}"
        self._codes[code] = form["code_challenge"], form.get("scope", "")
        query = {"code": code, "state": form["state"], **self.answer}
        return "302 Found", {}, [f"location: {form['redirect_uri']}?{urlencode(query)}"]

    def _token(self, form: dict[str, str]) -> tuple[str, dict[str, Any], list[str]]:
        match form["grant_type"]:
            case "authorization_code":
                challenge, scope = self._codes.pop(form["code"], ("", ""))
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != challenge:
                    return "400 Bad Request", {"error": "invalid_grant"}, []
            case "refresh_token":
                found = self.renewals.pop(form["refresh_token"], None)
                if found is None:
                    return "400 Bad Request", {"error": "invalid_grant"}, []
                scope = found
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                kind = form["requested_token_type"]
                return "200 OK", {"access_token": "a-grant", "issued_token_type": kind}, []
            case "urn:ietf:params:oauth:grant-type:jwt-bearer" if self.refuses_identities:
                return "400 Bad Request", {"error": "invalid_grant"}, []
            case _:
                scope = form.get("scope", "basic")
        number = next(self._numbers)
        access, renewal = f"an-access-token-{number}", f"a-renewal-token-{number}"
        self.tokens[access], self.renewals[renewal] = scope, scope
        ends = {} if self.lifetime is None else {"expires_in": self.lifetime}
        return "200 OK", {
            "access_token": access, "refresh_token": renewal, "token_type": "Bearer",
            "scope": scope, **ends,
        }, []  # fmt: skip

    def _mcp(self, came: Came) -> tuple[str, dict[str, Any], list[str]]:
        token = came.headers.get("authorization", "").removeprefix("Bearer ")
        method = came.message.get("method")
        needed = {self.scope, *([self.call_scope] if method == "tools/call" else [])}
        held = set(self.tokens.get(token, "").split())
        if token not in self.tokens:
            where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            text = f'www-authenticate: Bearer scope="{self.scope}", resource_metadata="{where}"'
            return "401 Unauthorized", {}, [text] if self.worded else []
        if not needed <= held:
            text = f'error="insufficient_scope", scope="{" ".join(sorted(needed - held))}"'
            return "403 Forbidden", {}, [f"www-authenticate: Bearer {text}"]
        results = {
            "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {}},
            "tools/list": {"tools": [ECHO]},
            "tools/call": {
                "content": [{"type": "text", "text": self.says.replace("{token}", token)}]
            },
        }
        result = results.get(str(method), {})
        return "200 OK", {"jsonrpc": "2.0", "id": came.message.get("id"), "result": result}, []


@asynccontextmanager
async def issuing() -> AsyncGenerator[Issuer, None]:
    issuer = Issuer()
    listening = await asyncio.start_server(issuer._serve, "127.0.0.1", 0)
    issuer.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield issuer
