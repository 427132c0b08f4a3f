"""
The first `send` with a provider: the provider's own import, and the time beyond it.

The provider is a fake on the loopback, so no network is measured. Both processes are cold.
"""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.ground import Ground, Row, Times, python, timed, told, under

PART = "first send with a provider"
IMPORT = "import pydantic_ai.models.openai, pydantic_ai.providers.openai"


class _Chat(BaseHTTPRequestHandler):
    """Answers every request with one short stream of chat completions."""

    def do_POST(self) -> None:  # the name that http.server calls
        self.rfile.read(int(self.headers["content-length"]))
        base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunks = [
            {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
            for delta, reason in (({"role": "assistant", "content": "hi"}, None), ({}, "stop"))
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Print nothing: the bench prints its rows."""


def measure(ground: Ground) -> list[Row]:
    folder = ground.fresh("provider")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
        "NO_PROXY": "127.0.0.1",
    }
    send = [python(), "-m", "holdfast", "--home", str(folder / "home"), "--json", "send"]
    imports, sends = [], []
    try:
        for number in range(ground.count(7, 3)):
            imports.append(timed(lambda: _run([python(), "-c", IMPORT], environment)))
            first = [*send, f"bench/s{number}", "hello", "--model", "openai-chat:m"]
            sends.append(timed(lambda first=first: _run(first, environment)))
    finally:
        server.shutdown()
        server.server_close()
    provider, whole = Times(imports).p50, Times(sends).p50
    return [
        under(
            PART,
            "holdfast send beyond the provider's import",
            whole - provider,
            1.0,
            note=f"{told(whole)} in all, of which a new Python that imports the provider takes "
            f"{told(provider)}",
        )
    ]


def _run(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, capture_output=True, check=True)
