"""A served home in front of a real server, and the ways of other people's clients to it."""

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import holdfast
from holdfast.gateway.server.tokens import TokenBook
from tests.adapters.mcp.real import ROOT, pin_all

WAIT_SECONDS = 60.0


class ServedHome(NamedTuple):
    """A home whose server `peer` is pinned, and a token that may send."""

    home: Path
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp/peer"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of `holdfast mcp proxy`."""
        address = f"http://127.0.0.1:{self.port}"
        return {**os.environ, "HOLDFAST_TOKEN": self.token, "HOLDFAST_URL": address}

    @asynccontextmanager
    async def client(self, wire: str, transport: str) -> AsyncGenerator[Client, None]:
        """The SDK's own client. `wire` is legacy, or a version without a handshake."""
        if transport == "stdio":
            words = ["--home", str(self.home), "mcp", "proxy", "--server", "peer"]
            relay = StdioServerParameters(
                command=sys.executable, args=["-m", "holdfast", *words], env=self.environment
            )
            async with Client(relay, mode=wire) as client:
                yield client
            return
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=WAIT_SECONDS) as http_client:
            stream = streamable_http_client(self.url, http_client=http_client)
            async with Client(stream, mode=wire) as client:
                yield client


@contextmanager
def serving(home: Path) -> Generator[ServedHome, None, None]:
    """Pin everything that the server `peer` offers, and serve the home."""
    token = asyncio.run(_pinned(home))
    words = ["--home", str(home), "--json", "serve", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        try:
            port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
            yield ServedHome(home, port, token)
        finally:
            process.terminate()


async def _pinned(folder: Path) -> str:
    async with holdfast.open(folder) as home:
        await pin_all(home)
        now = home.service.runtime.world.clock.now_ms()
        token, _ = await TokenBook(home.service.home).add(
            "client", person="alice", scopes=("send",), by="tests", now=now
        )
        return token


@contextmanager
def with_token(served: ServedHome) -> Generator[str, None, None]:
    """An address that adds the token to each request, for a client that cannot send one."""

    class Forward(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {name.lower(): value for name, value in self.headers.items()}
            for name in ("host", "origin"):
                if name in headers:  # our own address is the gateway's; any other stays as it is
                    ours = f":{self.server.server_address[1]}"
                    headers[name] = headers[name].replace(ours, f":{served.port}")
            headers["authorization"] = f"Bearer {served.token}"
            there = http.client.HTTPConnection("127.0.0.1", served.port, timeout=WAIT_SECONDS)
            with closing(there), suppress(ConnectionError):  # a client that gave up is gone
                there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    there.putheader(name, value)
                there.endheaders(body)
                self._answer(there.getresponse())

        def _answer(self, answer: http.client.HTTPResponse) -> None:
            self.close_connection = True
            with closing(answer):
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "date", "server", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                while chunk := answer.read1():
                    self.wfile.write(chunk)
                    self.wfile.flush()

        do_GET = do_POST = do_DELETE = do_OPTIONS = do_PUT = _forward  # noqa: N815  its own names

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Forward) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp/peer"
        finally:
            server.shutdown()
            thread.join()
