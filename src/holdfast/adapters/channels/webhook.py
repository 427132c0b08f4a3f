"""
`[approvals] notify = { webhook = "https://..." }`: one POST per prompt.

The body is the journalled text; `Idempotency-Key` and `webhook-id` are the delivery's id. With a
key, the request is signed as Standard Webhooks ask. A redirect does not confirm
and is not followed: a message for one address goes to no other.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
import time
from urllib.parse import urlsplit

from holdfast.adapters.channels.command import NOTIFY
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered, Parcel
from holdfast.threads import ThreadPool
from holdfast.webhook_signature import signature

TIMEOUT_SECONDS = 10.0
_POSTS = ThreadPool(8, "holdfast-webhook")  # each may wait for a slow server
_OK, _REDIRECT, _SERVER = 200, 300, 500
_MAY_PASS = {408, 425, 429}


class WebhookChannel:
    """
    A 2xx status confirms the delivery. Any other answer is a known failure. Without an answer after
    the request was sent, the outcome is unknown.
    """

    name = NOTIFY

    def __init__(
        self,
        address: str,
        *,
        key: bytes | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._parts = urlsplit(address)
        self._key = key
        self._timeout_seconds = timeout_seconds

    def takes(self, kind: str, *, of: str) -> bool:  # noqa: ARG002  # prompts of every channel
        return kind == "prompt"

    async def send(self, parcel: Parcel) -> str | None:
        connection = self._connection()
        try:
            return await _POSTS.call(lambda: self._post(connection, parcel))
        except asyncio.CancelledError:
            _cut(
                connection
                # Otherwise its thread, and the end of the process, would wait for an answer that
                # nobody wants.
            )
            raise

    def _post(self, connection: http.client.HTTPConnection, parcel: Parcel) -> str | None:
        try:
            try:
                connection.connect()
            except (OSError, ssl.SSLError) as exc:
                raise NotDelivered(
                    f"no connection to {self._parts.netloc}: {exc}", may_pass=True
                ) from exc
            return self._exchange(connection, parcel)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_seconds, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)

    def _exchange(self, connection: http.client.HTTPConnection, parcel: Parcel) -> str | None:
        target = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": parcel.delivery,
            "User-Agent": "holdfast",
        }
        body = parcel.text.encode()
        if self._key is not None:
            # The clock of this machine, at this try: the receiver compares it with its own.
            now, ident = int(time.time()), parcel.delivery.replace(".", "-")
            headers |= {
                "webhook-id": ident,
                "webhook-timestamp": str(now),
                "webhook-signature": signature(self._key, ident=ident, timestamp=now, body=body),
            }
        try:
            connection.request("POST", target, body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as exc:
            raise DeliveryInDoubt(
                f"{self._parts.netloc} gave no answer: {str(exc) or type(exc).__name__}"
            ) from exc
        if _OK <= status < _REDIRECT:
            return str(status)
        raise NotDelivered(
            f"{self._parts.netloc} answered {status}",
            may_pass=status >= _SERVER or status in _MAY_PASS,
        )


def _cut(connection: http.client.HTTPConnection) -> None:
    """Shut the connection down from another thread: its reader or writer gets an error."""
    sock: socket.socket | None = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):  # already closed
            socket.socket.shutdown(
                sock, socket.SHUT_RDWR
            )  # for TLS too: two threads may not run its own shutdown
