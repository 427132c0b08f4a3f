"""
`python -m bench.peers --python PEERS_PYTHON [NAME ...] [--write-docs]`: the same work done by what people use instead, one table.

Each peer runs in a process of the peers' environment, with the store that it brings for one machine and that store's own defaults. What a peer
does not do is left blank; what it does better is marked like anything else. Durability differs and is stated.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import docs
from bench.ground import machine, told

HERE = Path(__file__).parent / "peer"

PEERS = {
    "langgraph_sqlite": ("LangGraph, SQLite saver", "langgraph"),
    "openai_agents": ("OpenAI Agents, SQLite session", "openai-agents"),
    "google_adk": ("Google ADK, SQLite sessions", "google-adk"),
    "dbos_sqlite": ("DBOS, SQLite", "dbos"),
}
OURS = "Holdfast"
LIMIT_SECONDS = 150  # a peer that takes longer is left out, and said so

NOTES = (
    "Bold is the best of a row. Durability is each one's default: all of these sync before they return, at different places.",
    (
        "append: one message more (DBOS: one step more of a running workflow) at the end of that many. "
        "Holdfast's are records of its journal, off the event loop, with a MAC and an anchor; no peer has either."
    ),
    "turn: a message, a stand-in model that calls a tool, the tool, the model again. Holdfast journals who asked, the decision and the start of the tool before it runs.",
    (
        "pause: a new session, up to a tool that asks first. cold resume: from the start of a new process until the tool runs. "
        "The OpenAI SDK leaves keeping the paused state to the application; here it is a synced file."
    ),
    "disk: all under the folder, divided by the paused sessions. One database holds many in fewer blocks than a folder each; DBOS's is of twenty, and coarse.",
    "Google ADK's confirmations are answered in a live stream, so no cold resume is measured; its store was asked for 64 tasks at once like all the others.",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="The same work done by what people use instead.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {' '.join(PEERS)}")
    parser.add_argument("--python", type=Path, required=True, help="the Python of the peers' environment")
    parser.add_argument("--in", dest="folder", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write-docs", action="store_true")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-peers-", dir=asked.folder))
    try:
        facts = machine(folder)
        del facts["durability"]
        print(", ".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
        found = {OURS: _measured(sys.executable, ["-m", "bench.peers_ours"], folder / "ours")}
        for name in asked.names or PEERS:
            title, package = PEERS[name]
            print(f"{title} ...", file=sys.stderr, flush=True)
            measured = _measured(str(asked.python), [str(HERE / f"{name}.py")], folder / name)
            found[f"{title} {_version(asked.python, package)}"] = measured
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = _told(facts, found)
    print(docs._peers(result))
    if asked.json is not None:
        asked.json.write_text(json.dumps({**result, "raw": found}, indent=1) + "\n")
    if asked.write_docs:
        docs.note("peers", result)


def _measured(python: str, script: list[str], folder: Path) -> dict[str, Any]:
    folder.mkdir()
    environment = {**os.environ, "OPENAI_AGENTS_DISABLE_TRACING": "1", "PYTHONWARNINGS": "ignore"}
    command = [python, *script]
    try:
        asked = subprocess.run([*command, "work", str(folder)], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS, env=environment)
        found: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, IndexError, ValueError) as exc:
        print(getattr(exc, "stderr", None) or exc, file=sys.stderr)
        return {"durability": f"not measured: {type(exc).__name__}"}
    if "pause" in found:
        started = time.time()
        asked = subprocess.run([*command, "resume", str(folder)], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS, env=environment)
        ran = [json.loads(line)["ran"] for line in asked.stdout.splitlines() if line.startswith('{"ran"')]
        found["resume"] = (ran[0] - started) * 1e6 if ran else None
    return found


def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False).stdout.strip()


# --- telling ----------------------------------------------------------------------------------------------------------


def _told(facts: dict[str, Any], found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    names = list(found)
    rows = [
        _row(names, found, "import", lambda each: _scaled(each.get("import"), 1e6)),
        *(_row(names, found, f"append at {n:,}", lambda each, n=n: _at(each, "append", n)) for n in (10, 100, 1_000, 10_000)),
        *(_row(names, found, f"turn with one tool at {n:,} messages", lambda each, n=n: _at(each, "turn", n)) for n in (10, 1_000)),
        _row(names, found, "load 1,000 messages", lambda each: each.get("load")),
        _row(names, found, "200 sessions by 64 tasks, appends/s", lambda each: each.get("many"), tell=lambda rate: f"{rate:,.0f}/s", best=max),
        _row(names, found, "turn up to a pause", lambda each: each.get("pause")),
        _row(names, found, "cold resume, new process to tool", lambda each: each.get("resume")),
        _row(names, found, "list what waits (200)", lambda each: each.get("list")),
        _row(names, found, "disk a paused session", lambda each: each.get("parked_bytes"), tell=lambda size: f"{size / 1024:.1f} KiB"),
        {"what": "durability", "cells": {name: each.get("durability", "-") for name, each in found.items()}},
    ]
    series = {name: sorted((int(n), us) for n, us in each.get("append", {}).items()) for name, each in found.items() if name != OURS}
    return {"machine": facts, "names": names, "rows": rows, "notes": NOTES, "series": {name: line for name, line in series.items() if line}}


def _row(names, found, what, value, *, tell=lambda us: told(us / 1e6), best=min) -> dict[str, Any]:
    values = {name: value(found[name]) for name in names}
    numbers = [each for each in values.values() if isinstance(each, int | float)]
    cells = {}
    for name, each in values.items():
        if isinstance(each, int | float):
            cells[name] = f"**{tell(each)}**" if len(numbers) > 1 and each == best(numbers) else tell(each)
        elif each is not None:
            cells[name] = str(each)
    return {"what": what, "cells": cells}


def _at(found: dict[str, Any], kind: str, length: int) -> float | None:
    return found.get(kind, {}).get(str(length))


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by


if __name__ == "__main__":
    main()
