"""
A person's login at a server, kept in HOME/logins/NAME.json: 0600 in a 0700 folder, replaced whole.

Several processes of a home use one login, and an issuer may take each renewal once. So the process
that renews it holds a lock, and reads the file again under it.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Generator
from pathlib import Path

import msgspec

from holdfast.adapters.mcp.oauth.client import OAuthClient
from holdfast.adapters.mcp.oauth.discovery import TokenIssuer
from holdfast.adapters.mcp.oauth.tokens import TokenRequest, Tokens
from holdfast.errors import Unusable

LOGINS = "logins"
_BYTES_MAX = 256 * 1024
_NOT_OWNER = 0o077


class SavedLogin(msgspec.Struct, frozen=True, kw_only=True):
    url: str  # of the server; a login at another address counts for nothing
    resource: str
    authority: TokenIssuer
    client: OAuthClient  # a secret that settings name is not kept here
    redirect: str
    requested: tuple[str, ...]  # scopes, in this login
    tokens: Tokens | None = None
    wanted: tuple[str, ...] = ()  # scopes that the server has asked for since

    def request(self, secret: str | None = None, key: str | None = None) -> TokenRequest:
        """`secret` and `key` are those of settings, if settings name any."""
        own = msgspec.structs.replace(self.client, secret=secret or self.client.secret, key=key)
        return TokenRequest(authority=self.authority, client=own, resource=self.resource)

    @property
    def secrets(self) -> tuple[str, ...]:
        tokens = () if self.tokens is None else (self.tokens.access, self.tokens.renewal)
        return tuple(each for each in (self.client.secret, *tokens) if each)


class LoginFile:
    def __init__(self, home: str, server: str) -> None:
        self._folder = Path(home) / LOGINS
        self._path = self._folder / f"{server}.json"
        self._seen: tuple[int, int, int] | None = None
        self._read: SavedLogin | None = None

    def load(self, url: str) -> SavedLogin | None:
        """Return the login at this address. The file is read only if it has changed."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._seen = self._read = None
            return None
        except OSError as exc:
            raise Unusable(f"{self._path} can't be read ({exc.strerror})") from exc
        try:
            status = os.fstat(fd)
            if status.st_mode & _NOT_OWNER or status.st_uid != os.geteuid():
                raise Unusable(
                    f"{self._path} is not this user's alone (mode {status.st_mode & 0o777:o})",
                    hint="log out and in again: others may have its tokens",
                )
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._read = _decoded(os.read(fd, _BYTES_MAX))
                self._seen = seen
        finally:
            os.close(fd)
        return self._read if self._read is not None and self._read.url == url else None

    def save(self, login: SavedLogin) -> None:
        """Replace the file, durably. A crash leaves the old file or the new one."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}.tmp")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(login))
                file.flush()
                os.fsync(fd)
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self) -> bool:
        """Return whether there was a login."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def locked(self) -> Generator[None, None, None]:
        """Hold the login's lock. Blocking."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        lock = self._path.with_suffix(".lock")
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _decoded(data: bytes) -> SavedLogin | None:
    try:
        return msgspec.json.decode(data, type=SavedLogin)
    except msgspec.MsgspecError:
        return None  # of another version, or damaged: the person logs in again
