"""
A server behind an address (streamable HTTP): one request is one POST, sent once.

The client of the MCP library follows redirects, resumes streams and makes up errors that look like
the server's own. So requests are made here, with its HTTP client alone. A redirect is a failure. A
body or an event has a bound. Each request has a connection of its own, since a kept one may be
closed while a request is on its way. No proxy is taken from the environment.

On the older wire a server may ask on a stream of its own. It may end a stream early and keep its
rest. The rest is asked for by the id of the last event, which sends no request again. The newer
wire has neither.

A server may refuse a token. Then a request without effects is sent once more with another token, if
there is one. A call is not: it is sent once.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from holdfast.adapters.mcp.connection import (
    Asked,
    Challenged,
    NeverSent,
    OnQuestion,
    ReplyLost,
)
from holdfast.adapters.mcp.event_stream import EventStream, refuse_long
from holdfast.adapters.mcp.http_library import http_library
from holdfast.adapters.mcp.messages import (
    FromServer,
    Malformed,
    ServerReply,
    read_message,
    write_notification,
    write_request,
)
from holdfast.adapters.mcp.oauth.challenge import challenge_from
from holdfast.adapters.mcp.oauth.credentials import Credentials
from holdfast.adapters.mcp.oauth.web import LoginFailed
from holdfast.adapters.mcp.replies.questions import AskableCalls, OpenQuestions
from holdfast.errors import Unusable
from holdfast.limits import MCP_MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    import httpx2

_CONNECT_SECONDS = 10.0
_LISTEN_SECONDS = 2.0  # until a server that has a stream for its questions opens it
_CLOSE_SECONDS = 2.0  # for the farewell to a server that keeps a session; it may be lost
_RESUMES_MAX = 5  # of one answer; its time-out bounds them all
_STREAM = "text/event-stream"
_SESSION = "mcp-session-id"
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,512}\Z")  # as the protocol allows; a header can carry it
_OK = range(200, 300)
_NOT_HERE = (404, 405)
_CALL = "tools/call"  # the one request with an effect


class HttpConnection:
    def __init__(self, url: str, *, credentials: Credentials) -> None:
        library = http_library()
        self._library = library
        self._url = url
        self._credentials = credentials
        self._token: str | None = None  # of the last request
        self._headers = {
            "accept": f"application/json, {_STREAM}",
            "content-type": "application/json",
        }
        self._client: httpx2.AsyncClient = library.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            limits=library.Limits(max_keepalive_connections=0),
            timeout=library.Timeout(None, connect=_CONNECT_SECONDS),
        )
        self._next = 1
        self._version = ""
        self._names_requests = False
        self._session: str | None = None
        self._over = ""
        self._askable = AskableCalls()
        self._listening: asyncio.Task[None] | None = None
        self._hears: bool | None = None  # whether the server has such a stream

    @property
    def is_open(self) -> bool:
        return not self._over

    def speak(self, version: str, *, names_requests: bool = False) -> None:
        self._version, self._names_requests = version, names_requests

    async def read(self, asked: Sequence[Asked], *, timeout_seconds: float) -> list[ServerReply]:
        """One after the other: a refused token is renewed once for all of them."""
        return [await self.request(*each, timeout_seconds=timeout_seconds) for each in asked]

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout_seconds: float,
        headers: Mapping[str, str] | None = None,
        on_question: OnQuestion | None = None,
    ) -> ServerReply:
        if self._over:
            raise NeverSent(self._over)
        extra = {**self._named(method, params), **(headers or {})}
        token = await _had(self._credentials.token())
        try:
            return await self._sent(method, params, extra, token, timeout_seconds, on_question)
        except Challenged as exc:
            another = await _had(self._credentials.another(exc.challenge, token))
            if another is None or method == _CALL:
                raise
        return await self._sent(method, params, extra, another, timeout_seconds, on_question)

    async def _sent(
        self,
        method: str,
        params: dict[str, Any],
        extra: Mapping[str, str],
        token: str | None,
        timeout_seconds: float,
        on_question: OnQuestion | None,
    ) -> ServerReply:
        number, self._next = self._next, self._next + 1
        self._token = token
        body, may_act = write_request(number, method, params), method == _CALL
        try:
            async with asyncio.timeout(timeout_seconds) as limit:
                questions = OpenQuestions(on_question, self._tell, limit)
                if on_question is None:
                    return await self._exchanged(number, body, extra, questions, may_act=may_act)
                await self._listen()
                async with self._askable.during(questions):
                    return await self._exchanged(number, body, extra, questions, may_act=may_act)
        except TimeoutError:
            # Closing the stream asks the server to stop. The outcome stays unknown.
            raise ReplyLost(f"no reply came within {timeout_seconds:g} s") from None

    def _named(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """The headers by which 2026-07-28 lets others see what a request is."""
        if not self._names_requests:
            return {}
        name = params.get("name", params.get("uri", params.get("taskId")))
        if not isinstance(name, str):
            return {"mcp-method": method}
        from mcp.shared.inbound import encode_header_value  # a server may name a task as it likes

        return {"mcp-method": method, "mcp-name": encode_header_value(name)}

    async def _exchanged(
        self,
        number: int,
        body: bytes,
        extra: Mapping[str, str],
        questions: OpenQuestions,
        *,
        may_act: bool,
    ) -> ServerReply:
        events = EventStream()
        answer = self._posted(body, extra)  # with the token of this request
        try:
            return await self._read(answer, number, events, questions, may_act=may_act)
        except ReplyLost as exc:
            lost = exc
        for _ in range(_RESUMES_MAX):
            if not events.last_id or self._names_requests or self._over:
                break
            await asyncio.sleep(events.pause_seconds)
            try:
                return await self._read(
                    self._rest(events), number, events, questions, may_act=False
                )
            except (NeverSent, ReplyLost) as exc:
                lost = ReplyLost(str(exc))
        raise lost

    async def _read(
        self,
        answer: Any,
        number: int,
        events: EventStream,
        questions: OpenQuestions,
        *,
        may_act: bool,
    ) -> ServerReply:
        """Read one answer until the reply to this request. Raise NeverSent or ReplyLost."""
        library = self._library
        try:
            async with answer as response:
                self._refuse_challenge(response, may_act=may_act)
                self._keep_session(response)
                async for message in _messages(response, events, self._credentials.hidden):
                    if isinstance(message, ServerReply):
                        if message.id == number:
                            return message
                    elif message.id is not None and not self._names_requests:
                        questions.take(message)  # the newer wire has no requests of servers
        except (library.ConnectError, library.ConnectTimeout, library.PoolTimeout) as exc:
            raise NeverSent(f"no connection to {_place(self._url)}: {_why(exc)}") from exc
        except (library.HTTPError, library.StreamError, library.InvalidURL) as exc:
            raise ReplyLost(f"the connection broke ({type(exc).__name__})") from exc
        except Malformed as exc:
            self._over = str(exc)
            raise ReplyLost(str(exc)) from exc
        raise ReplyLost("the server ended its answer without a reply to this request")

    def _refuse_challenge(self, response: "httpx2.Response", *, may_act: bool) -> None:
        """
        A worded refusal is the server's own: the request was not applied (RFC 9110, 15.5.2). The
        bare status of a call may come from anything on the way, and stays in doubt.
        """
        header = response.headers.get("www-authenticate")
        challenge = challenge_from(response.status_code, header)
        if challenge is not None and (challenge.is_worded or not may_act):
            raise Challenged(self._credentials.remedy(challenge), challenge)

    async def _listen(self) -> None:
        """
        Open the stream on which a server with sessions may ask without naming a call, before the
        call that it may ask in. It stays open; a server that has none is not asked again.
        """
        if self._session is None or self._hears is False:
            return
        if self._listening is not None and not self._listening.done():
            return
        opened = asyncio.Event()
        self._listening = asyncio.create_task(self._hear(opened))
        self._listening.add_done_callback(lambda _: opened.set())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LISTEN_SECONDS):
                await opened.wait()

    async def _hear(self, opened: asyncio.Event) -> None:
        headers = {**self._spoken(), "accept": _STREAM}
        del headers["content-type"]
        with contextlib.suppress(self._library.HTTPError, self._library.StreamError):
            async with self._client.stream("GET", self._url, headers=headers) as response:
                self._hears = response.status_code in _OK
                opened.set()
                with contextlib.suppress(ReplyLost, Malformed):
                    await self._heard(response)

    async def _heard(self, response: "httpx2.Response") -> None:
        async for message in _messages(response, EventStream(), self._credentials.hidden):
            if isinstance(message, ServerReply) or message.id is None:
                continue
            answer = self._askable.take(message)
            if answer is not None:
                await self._tell(answer)

    def _authorized(self) -> dict[str, str]:
        own = {} if self._token is None else {"authorization": f"Bearer {self._token}"}
        return {**self._headers, **own}

    def _posted(self, body: bytes, extra: Mapping[str, str]) -> Any:
        return self._client.stream(
            "POST", self._url, content=body, headers={**self._spoken(), **extra}
        )

    def _rest(self, events: EventStream) -> Any:
        headers = {**self._spoken(), "accept": _STREAM, "last-event-id": events.last_id}
        del headers["content-type"]
        return self._client.stream("GET", self._url, headers=headers)

    def _spoken(self) -> dict[str, str]:
        """The headers of every request on this connection."""
        headers = self._authorized()
        if self._version:
            headers["mcp-protocol-version"] = self._version
        if self._session is not None:
            headers[_SESSION] = self._session
        return headers

    def _keep_session(self, response: "httpx2.Response") -> None:
        found = response.headers.get(_SESSION)
        if self._session is None and found and _SESSION_ID.match(found):
            self._session = found
        if response.status_code == 404 and self._session is not None:  # noqa: PLR2004  the status
            self._over = "the server has ended the session"

    async def notify(self, method: str) -> None:
        await self._tell(write_notification(method))

    async def _tell(self, message: bytes) -> None:
        """Send a message that has no reply. Its loss does not matter."""
        with contextlib.suppress(Exception):
            async with (
                asyncio.timeout(_CONNECT_SECONDS),
                self._posted(message, {}) as response,
            ):
                await response.aclose()

    async def close(self) -> None:
        self._over = self._over or "it was closed"
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self._session is not None:
            headers = {**self._authorized(), _SESSION: self._session}
            with contextlib.suppress(Exception):  # a server may keep what it likes
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._client.delete(self._url, headers=headers)
        await self._client.aclose()
        self._credentials.close()


def _place(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _why(exc: Exception) -> str:
    if "Timeout" in type(exc).__name__:
        return f"nothing answers there within {_CONNECT_SECONDS:g} s"
    if "SSL" in str(exc):
        return "its certificate is not good, or it does not speak TLS"
    if "[Errno" in str(exc):  # of the search for its name
        return "no such host"
    return "nothing listens there"


async def _had(asking: Awaitable[str | None]) -> str | None:
    """Return a token. Without one that can be had, nothing is sent."""
    try:
        return await asking
    except (LoginFailed, Unusable, OSError) as exc:
        raise NeverSent(str(exc)) from exc


async def _messages(
    response: "httpx2.Response", events: EventStream, hidden: Callable[[bytes], bytes]
) -> AsyncIterator[ServerReply | FromServer]:
    """Yield the messages of one answer, without our own secrets. Raise ReplyLost or Malformed."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _STREAM and response.status_code in _OK:
        async for event in events.data(response):
            yield read_message(hidden(event))
    elif kind == "application/json":
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            refuse_long(len(body), MCP_MESSAGE_BYTES_MAX)
        # A refusal with another status may carry the server's own error for this request.
        if response.status_code in _OK or _has_our_shape(bytes(body)):
            yield read_message(hidden(bytes(body)))
        else:
            raise ReplyLost(_status(response))
    else:
        raise ReplyLost(_status(response))


def _status(response: "httpx2.Response") -> str:
    wrong = ", as where no MCP server is; look at its url" * (response.status_code in _NOT_HERE)
    return f"the server answered with the status {response.status_code}{wrong}"


def _has_our_shape(body: bytes) -> bool:
    try:
        return isinstance(read_message(body), ServerReply)
    except Malformed:
        return False


def param_headers(definition: str, arguments: bytes) -> dict[str, str]:
    """
    Return the arguments that the tool's own schema wants in headers. The schema is pinned, so a
    person has seen which.
    """
    from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

    schema = msgspec.json.decode(definition).get("inputSchema")
    headers: dict[str, str] = mcp_param_headers(
        x_mcp_header_map(schema), msgspec.json.decode(arguments)
    )
    return headers


def flaw_of_headers(definition: str) -> str:
    """Return why a tool cannot be called over HTTP by its own schema, or an empty text."""
    from mcp.shared.inbound import find_invalid_x_mcp_header

    return find_invalid_x_mcp_header(msgspec.json.decode(definition).get("inputSchema")) or ""
