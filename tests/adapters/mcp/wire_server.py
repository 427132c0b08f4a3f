"""
A server that speaks raw lines and does what a plan says: it lists, lies, dies and floods.

`python wire_server.py FOLDER`. It reads FOLDER/plan.json for every message, and writes each message
that it gets to FOLDER/got.jsonl. It uses nothing but the standard library.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(folder: str) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        with Path(folder, "got.jsonl").open("a", encoding="utf-8") as got:
            got.write(line)
        plan = json.loads(Path(folder, "plan.json").read_text(encoding="utf-8"))
        if "id" in message and "method" in message:
            answer(plan, message)


def answer(plan: dict, message: dict) -> None:
    method = message["method"]
    if method in plan.get("raw", {}):
        say(plan["raw"][method].replace("$ID", str(message["id"])))
    elif method == "server/discover" and plan.get("dies_when_discovered"):
        os._exit(1)
    elif method == "server/discover":
        if plan.get("wire") == "2025-11-25":
            reply(message, error={"code": -32601, "message": "Method not found"})
        else:
            reply(
                message,
                {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                    "instructions": plan.get("instructions", ""),
                },
            )
    elif method == "initialize":
        reply(
            message,
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "wire", "version": "1"},
                "instructions": plan.get("instructions", ""),
            },
        )
    elif method == "tools/list":
        while "list_until" in plan and not Path(plan["list_until"]).exists():
            time.sleep(0.01)
        pages = plan["pages"] if "pages" in plan else [plan["tools"]]
        at = int(message["params"].get("cursor", 0))
        more = {"nextCursor": str(at + 1)} if at + 1 < len(pages) else {}
        time.sleep(plan.get("page_seconds", 0))
        reply(message, {"tools": pages[at], **more})
    elif method.startswith("tasks/") and method in plan.get("tasks", {}):
        reply(message, {"resultType": "complete", **plan["tasks"][method]})
    elif method in plan.get("reads", {}):
        call(plan["reads"][method], message)
    elif method == "tools/call":
        call(plan.get("call", {}), message)
    else:
        reply(message, error={"code": -32601, "message": "Method not found"})


def call(how: dict, message: dict) -> None:
    match how.get("do", "echo"):
        case "echo":
            text = json.dumps(message["params"]["arguments"], sort_keys=True)
            reply(message, {"content": [{"type": "text", "text": text}]})
        case "ask" if not {"inputResponses", "requestState"} & set(message["params"]):
            reply(message, {"resultType": "input_required", **how["asks"]})
        case "ask":
            text = json.dumps(message["params"].get("inputResponses"), sort_keys=True)
            reply(message, {"content": [{"type": "text", "text": text}]})
        case "elicit":
            # As the older wire does: requests of the server, inside of the open call.
            came = [elicit(number, each) for number, each in enumerate(how["questions"])]
            text = json.dumps(came, sort_keys=True)
            reply(message, {"content": [{"type": "text", "text": text}]})
        case "result":
            reply(message, how["result"])
        case "error":
            reply(message, error=how["error"])
        case "die":
            os._exit(1)
        case "hold":
            while not Path(how["until"]).exists():
                time.sleep(0.01)
            call({}, message)
        case "hang":
            time.sleep(3600)
        case "talk":
            note = {"jsonrpc": "2.0", "method": "notifications/message"}
            line = json.dumps({**note, "params": {"data": "x" * how["of"]}})
            for _ in range(how["lines"]):
                sys.stdout.write(line + "\n")
            call({}, message)
        case "flood":
            sys.stdout.write("x" * how["bytes"])
            sys.stdout.flush()


def elicit(number: int, params: dict) -> dict:
    """Ask the client, and wait for its answer as long as it takes."""
    asked = {"jsonrpc": "2.0", "id": f"q{number}", "method": "elicitation/create"}
    say(json.dumps({**asked, "params": params}))
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == f"q{number}" and "method" not in message:
            return message.get("result") or {"error": message.get("error")}
    os._exit(1)


def reply(message: dict, result: dict | None = None, error: dict | None = None) -> None:
    body = {"result": result} if error is None else {"error": error}
    say(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
