"""A Messages API on loopback, which answers from the contract's script. Claude's own program asks it."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from holdfast.testing.under import Say, next_step

_NOTE = re.compile(r"^\((\w[\w-]*): (.*)\)$", re.MULTILINE)


class MessagesAPI(ThreadingHTTPServer):
    """Counts how often the model is really asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def content(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """The answer of the script to the conversation so far."""
        self.asked += 1
        texts, results = _read(body["messages"])
        message = texts[-1].splitlines()[-1]
        results += _NOTE.findall(texts[-1])
        step = next_step(message, results, " ".join(texts))
        if isinstance(step, Say):
            return [{"type": "text", "text": step.text}]
        return [
            {
                "type": "tool_use",
                "id": call.id,
                "name": f"mcp__ops__{call.tool}",
                "input": call.arguments,
            }
            for call in step
        ]


def _read(messages: list[dict[str, Any]]) -> tuple[list[str], list[tuple[str, str]]]:
    """The person's messages, and the results of calls after the last of them."""
    texts: list[str] = []
    results: list[tuple[str, str]] = []
    for each in messages:
        content = each["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "tool_result":
                results.append((part["tool_use_id"], json.dumps(part.get("content"))))
            elif each["role"] == "user" and part["type"] == "text" and _is_persons(part["text"]):
                texts.append(part["text"])
                results = []
    return texts, results


def _is_persons(text: str) -> bool:
    return not text.startswith(("<system-reminder>", "Continue from where you left off"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: MessagesAPI

    def log_message(self, format: str, *_: Any) -> None:  # noqa: A002  # the name in the library
        del format

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        content = self.server.content(body)
        self._send(_events(body.get("model", ""), content), "text/event-stream")

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _events(model: str, content: list[dict[str, Any]]) -> bytes:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    events: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": message})]
    for index, part in enumerate(content):
        if part["type"] == "text":
            block, delta = (
                {"type": "text", "text": ""},
                {"type": "text_delta", "text": part["text"]},
            )
        else:
            written = json.dumps(part["input"])
            block, delta = (
                {**part, "input": {}},
                {"type": "input_json_delta", "partial_json": written},
            )
        events += [
            ("content_block_start", {"index": index, "content_block": block}),
            ("content_block_delta", {"index": index, "delta": delta}),
            ("content_block_stop", {"index": index}),
        ]
    stop = "tool_use" if content[0]["type"] == "tool_use" else "end_turn"
    end = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 5}}
    events += [("message_delta", end), ("message_stop", {})]
    return "".join(
        f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in events
    ).encode()
