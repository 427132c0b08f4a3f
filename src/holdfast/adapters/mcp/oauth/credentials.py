"""
The token that goes with each request to one server, by the way that settings choose: a token from a
variable, a login of the client itself, or a login that a person made.

A server that refuses a token may get another one for a request without effects. A call is sent
once, so it is never among them.
"""

import os
from typing import Protocol

import msgspec

from holdfast import secrecy
from holdfast.adapters.mcp.oauth.challenge import Challenge
from holdfast.adapters.mcp.oauth.client import OAuthClient
from holdfast.adapters.mcp.oauth.discovery import Resource, find_authority
from holdfast.adapters.mcp.oauth.identity import exchange_identity, read_identity
from holdfast.adapters.mcp.oauth.saved_login import LoginFile, SavedLogin
from holdfast.adapters.mcp.oauth.tokens import TokenRequest, Tokens, is_token
from holdfast.adapters.mcp.oauth.web import LoginFailed
from holdfast.ports.tool_servers import ToolServer
from holdfast.threads import BLOCKING

_KNOWN_MAX = 16  # secrets of one server, the newest first


class Credentials(Protocol):
    async def token(self) -> str | None:
        """Return the token for the next request. Raise LoginFailed."""
        ...

    async def another(self, challenge: Challenge, refused: str | None) -> str | None:
        """Return a token that may do better than the refused one. Raise LoginFailed."""
        ...

    def remedy(self, challenge: Challenge) -> str:
        """Say what a person can do about the refusal."""
        ...

    def hidden(self, message: bytes) -> bytes:
        """Return a message of the server without the secrets of this login."""
        ...

    def close(self) -> None: ...


def credentials_of(server: str, settings: ToolServer, home: str) -> Credentials:
    if settings.token_env is not None:
        return _Fixed(settings.token_env)
    if settings.login == "client":
        return _ClientLogin(server, settings)
    return _PersonLogin(server, settings, home)


class NoCredentials:
    """For a request that is to learn what a server wants."""

    async def token(self) -> str | None:
        return None

    async def another(self, challenge: Challenge, refused: str | None) -> str | None:
        del challenge, refused
        return None

    def remedy(self, challenge: Challenge) -> str:
        return f"the server wants a login (status {challenge.status})"

    def hidden(self, message: bytes) -> bytes:
        return message

    def close(self) -> None:
        pass


class _Fixed(NoCredentials):
    def __init__(self, variable: str) -> None:
        self._variable = variable

    async def token(self) -> str | None:
        found = os.environ.get(self._variable)
        if not found:
            raise LoginFailed(
                f"the variable {self._variable} that holds its token is not set; set it where "
                "Holdfast starts"
            )
        if not is_token(found):
            raise LoginFailed(
                f"the variable {self._variable} holds something that is not a token; set it to the "
                "token alone, without blanks"
            )
        return found

    def remedy(self, challenge: Challenge) -> str:
        if challenge.wants_scopes:
            return f"the token in {self._variable} lacks {_scopes_text(challenge)}"
        return f"the server refused the token in {self._variable}"


class _KnownSecrets:
    """
    Secrets that came while this process ran. No journal of it accepts them, nor the ones before: a
    token that was replaced may still be good.
    """

    _known: tuple[str, ...] = ()
    _secrecy = secrecy.secrecy_of(())

    def _learn(self, found: tuple[str, ...]) -> None:
        if set(found) <= set(self._known):
            return
        self._known = tuple(dict.fromkeys((*found, *self._known)))[:_KNOWN_MAX]
        self._secrecy = secrecy.secrecy_of(self._known)
        secrecy.learn(self, self._known)

    def hidden(self, message: bytes) -> bytes:
        return self._secrecy.hidden_json(message) if self._secrecy.holds(message) else message

    def close(self) -> None:
        secrecy.forget(self)


class _ClientLogin(_KnownSecrets):
    """`login = "client"`: the client's own secret, key or identity, at the issuer of settings."""

    def __init__(self, server: str, settings: ToolServer) -> None:
        self._server, self._settings = server, settings
        self._request: TokenRequest | None = None
        self._tokens: Tokens | None = None
        self._scopes = settings.scopes

    async def token(self) -> str | None:
        if self._tokens is None or self._tokens.is_over:
            return await self._new()
        return self._tokens.access

    async def another(self, challenge: Challenge, refused: str | None) -> str | None:
        del refused  # it is kept here alone
        more = tuple(each for each in challenge.scopes if each not in self._scopes)
        if challenge.wants_scopes and (self._settings.scopes or not more):
            return None  # settings bound the scopes, or it was asked for all of them already
        self._scopes = (*self._scopes, *more) if not self._settings.scopes else self._scopes
        return await self._new()

    async def _new(self) -> str:
        self._request = self._request or await self._asked_for()
        self._tokens = await self._granted(self._request)
        self._learn((self._tokens.access,))
        return self._tokens.access

    async def _granted(self, request: TokenRequest) -> Tokens:
        settings = self._settings
        if settings.identity_file is None:
            return await request.by_client(self._scopes)
        identity = await read_identity(settings.identity_file)
        self._learn((identity,))
        if settings.identity_issuer is not None:
            identity = await exchange_identity(settings, identity, request.authority)
            self._learn((identity,))
        return await request.by_identity(identity, self._scopes)

    async def _asked_for(self) -> TokenRequest:
        settings = self._settings
        url, issuer = settings.url or "", settings.issuer or ""
        # Settings name the issuer. A server could name one that collects secrets.
        authority = await find_authority(Resource(name=url, issuer=issuer), issuer)
        secret, key = own_secrets(settings)
        client = OAuthClient(id=settings.client_id or "", secret=secret, key=key)
        return TokenRequest(authority=authority, client=client, resource=url)

    def remedy(self, challenge: Challenge) -> str:
        if challenge.wants_scopes:
            return f"the client {self._settings.client_id} lacks {_scopes_text(challenge)}"
        return f"the server refused the token of the client {self._settings.client_id}"


class _PersonLogin(_KnownSecrets):
    """A login that a person made with `holdfast mcp login`."""

    def __init__(self, server: str, settings: ToolServer, home: str) -> None:
        self._server, self._settings = server, settings
        self._file = LoginFile(home, server)

    def _load(self) -> SavedLogin | None:
        login = self._file.load(self._settings.url or "")
        self._learn(() if login is None else login.secrets)
        return login

    async def token(self) -> str | None:
        login = self._load()
        if login is None or login.tokens is None:
            return None
        if login.tokens.is_over and login.tokens.renewal is not None:
            return await self._renewed(login.tokens.access)
        return login.tokens.access

    async def another(self, challenge: Challenge, refused: str | None) -> str | None:
        login = self._load()
        if login is None or login.tokens is None:
            return None
        if login.tokens.access != refused:
            return login.tokens.access  # the person has logged in since
        if challenge.wants_scopes:
            await BLOCKING.call(lambda: self._note_wanted(challenge.scopes))
            return None
        return await self._renewed(refused) if login.tokens.renewal is not None else None

    def _note_wanted(self, scopes: tuple[str, ...]) -> None:
        """Keep what the server asked for, so that the next login asks for it."""
        with self._file.locked():
            login = self._load()
            if login is None or set(scopes) <= {*login.requested, *login.wanted}:
                return
            wanted = tuple(dict.fromkeys((*login.wanted, *scopes)))
            self._file.save(msgspec.structs.replace(login, wanted=wanted))

    async def _renewed(self, refused: str) -> str | None:
        """Renew the login, unless another process has done it while this one waited."""
        lock = self._file.locked()
        await BLOCKING.call(lock.__enter__)
        try:
            login = self._load()
            if login is None or login.tokens is None:
                return None
            if login.tokens.access != refused:
                return login.tokens.access
            new = await login.request(*own_secrets(self._settings)).by_renewal(login.tokens)
            self._file.save(msgspec.structs.replace(login, tokens=new))
            self._load()
            return new.access
        finally:
            lock.__exit__(None, None, None)

    def remedy(self, challenge: Challenge) -> str:
        lacking = f": it lacks {_scopes_text(challenge)}" if challenge.wants_scopes else ""
        return f"the server wants a login{lacking}; run `holdfast mcp login {self._server}`"


def own_secrets(settings: ToolServer) -> tuple[str | None, str | None]:
    """Return the client's secret and key that settings name. Raise LoginFailed if one is unset."""
    found = []
    for variable in (settings.client_secret_env, settings.client_key_env):
        value = None if variable is None else os.environ.get(variable)
        if variable is not None and not value:
            raise LoginFailed(f"the variable {variable} is not set; set it where Holdfast starts")
        found.append(value)
    return found[0], found[1]


def _scopes_text(challenge: Challenge) -> str:
    return f"the scopes {' '.join(challenge.scopes)}" if challenge.scopes else "a scope"
