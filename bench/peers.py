"""
`python -m bench.peers --python PEERS_PYTHON [NAME ...] [--write-docs] [--scale 0.1]`: the same work
done by what people use instead.

Each peer runs in processes of an environment apart from ours, with the store that it brings and
that store's own defaults, on the same disk. What cannot run here is left out with its reason; what
a peer does better is marked like anything else. Durability differs and is stated.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from bench import docs, npm, postgres
from bench.ground import machine
from bench.peer_table import OURS, Peer, table

HERE = Path(__file__).parent / "peer"
LIMIT_SECONDS = 300  # a peer that takes longer for its work is left out, and the table says why
IMPORTS = 3

PEERS = {
    "langgraph_sqlite": Peer("LangGraph, SQLite saver"),
    "langgraph_postgres": Peer("LangGraph, PostgreSQL saver"),
    "openai_agents": Peer("OpenAI Agents, SQLite session"),
    "google_adk": Peer("Google ADK, SQLite sessions"),
    "dbos_sqlite": Peer("DBOS, SQLite"),
    "pydantic_ai_json": Peer("Pydantic AI, JSON history"),
    "ctrlrun_sqlite": Peer("CTRLRun, SQLite (syncs seldom)", synced=False),
    "ctrlrun_sqlite_full": Peer("CTRLRun, SQLite with synchronous=FULL"),
    "pi_jsonl": Peer("pi, JSON Lines (no sync)", synced=False),
}
PACKAGES = {
    "langgraph_sqlite": "langgraph",
    "langgraph_postgres": "langgraph",
    "openai_agents": "openai-agents",
    "google_adk": "google-adk",
    "dbos_sqlite": "dbos",
    "pydantic_ai_json": "pydantic-ai-slim",
    "ctrlrun_sqlite": "ctrlrun",
    "ctrlrun_sqlite_full": "ctrlrun",
}
# The same program with other settings.
PROGRAMS = {"ctrlrun_sqlite_full": ("ctrlrun_sqlite", {"BENCH_SYNCHRONOUS": "FULL"})}
QUIET = {"OPENAI_AGENTS_DISABLE_TRACING": "1", "PYTHONWARNINGS": "ignore"}


class Program(NamedTuple):
    """How one of them is started; the mode and the folder follow."""

    command: list[str]
    environment: dict[str, str]
    version: str


class LeftOut(Exception):
    """It was not measured; the message is the reason."""


def main() -> None:
    asked = _arguments()
    os.environ["BENCH_SCALE"] = str(asked.scale)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-peers-", dir=asked.folder))
    try:
        facts = machine(folder)
        del facts["durability"]
        if asked.scale != 1:
            facts["scale"] = f"{asked.scale:g} of the whole work, a quick look"
        print(", ".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
        found = {OURS: _ours(folder)}
        for name in asked.names or PEERS:
            found[PEERS[name]] = _peer(name, asked.python, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {"machine": facts, **table(found, _sizes())}
    print(docs.peers(result))
    if asked.json is not None:
        asked.json.write_text(
            json.dumps(
                {**result, "raw": {peer.title: each for peer, each in found.items()}}, indent=1
            )
            + "\n"
        )
    if asked.write_docs:
        docs.note("peers", result)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description="The same work done by what people use instead."
    )
    parser.add_argument(
        "names", nargs="*", choices=[*PEERS, []], metavar="NAME", help=f"some of: {' '.join(PEERS)}"
    )
    parser.add_argument(
        "--python", type=Path, required=True, help="the Python of the peers' environment"
    )
    parser.add_argument(
        "--in",
        dest="folder",
        type=Path,
        help="a folder on the disk to measure; the system's temporary folder otherwise",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="below 1: smaller and quicker")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="also write docs/internals/benchmarks.md and its picture",
    )
    return parser.parse_args()


def _sizes() -> dict[str, Any]:
    """How much every one of them is asked to do."""
    from bench.peer import work  # reads BENCH_SCALE when it is imported

    names = {
        "lengths": "LENGTHS",
        "appends": "APPENDS",
        "loads": "LOADS",
        "sessions": "SESSIONS",
        "tasks": "TASKS",
        "parked": "PARKED",
    }
    sizes = {name: getattr(work, constant) for name, constant in names.items()}
    return {
        **sizes,
        "turn_lengths": work.TURN_LENGTHS,
        "seconds": work.MANY_SECONDS,
        "text": work.TEXT,
    }


# --- each of them
# -----------------------------------------------------------------------------------------------------


def _ours(folder: Path) -> dict[str, Any]:
    return _measured(
        Program([sys.executable, "-m", "bench.peers_ours"], {}, ""), OURS.title, folder / "ours"
    )


def _peer(name: str, python: Path, folder: Path) -> dict[str, Any]:
    """What it found, or why it found nothing: one that fails never ends the run."""
    title = PEERS[name].title
    try:
        with contextlib.ExitStack() as stack:
            return _measured(_program(name, python.absolute(), folder, stack), title, folder / name)
    except Exception as exc:  # noqa: BLE001  whatever it was, it is told and the next one has its turn
        print(f"{title}: {exc!r}", file=sys.stderr, flush=True)
        return {"left_out": f"{type(exc).__name__}: {exc}"}


def _program(name: str, python: Path, folder: Path, stack: contextlib.ExitStack) -> Program:
    if name == "pi_jsonl":
        packages = folder / "npm"
        packages.mkdir()
        environment = {
            "BENCH_NODE_MODULES": str(npm.fetched(packages)),
            "BENCH_WORK": json.dumps(_sizes()),
        }
        return Program(
            [npm.node(), str(HERE / "pi_jsonl.mjs")],
            environment,
            npm.pinned(npm.LOCK.read_text())[0].version,
        )
    script, environment = PROGRAMS.get(name, (name, {}))
    if name == "langgraph_postgres":
        environment = {"BENCH_POSTGRES": stack.enter_context(postgres.server(folder))}
    return Program(
        [str(python), str(HERE / f"{script}.py")], environment, _version(python, PACKAGES[name])
    )


def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    asked = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise LeftOut(f"{package} is not installed in the peers' environment")
    return asked.stdout.strip()


def _measured(program: Program, title: str, folder: Path) -> dict[str, Any]:
    print(f"{title} ...", file=sys.stderr, flush=True)
    folder.mkdir()
    found: dict[str, Any] = {"version": program.version}
    try:
        imports = [_asked(program, "import", folder)["import"] for _ in range(IMPORTS)]
        found |= {
            "import": statistics.median(imports),
            "bare": _bare(folder),
            **_asked(program, "work", folder),
        }
    except LeftOut as exc:
        print(f"{title}: {exc}", file=sys.stderr, flush=True)
        return {**found, "left_out": str(exc)}
    found["resume"] = (
        _resumed(program, folder) if isinstance(found.get("pause"), float) else found.get("pause")
    )
    return found


def _bare(folder: Path) -> float:
    from bench.peer import work

    return work.bare_append_us(folder)


def _resumed(program: Program, folder: Path) -> float | str:
    """Microseconds from the start of a new process until its tool runs."""
    started = time.time()
    try:
        ran: float = _asked(program, "resume", folder)["ran"]
    except LeftOut as exc:
        return f"failed: {str(exc)[:60]}"
    return (ran - started) * 1e6


def _asked(program: Program, mode: str, folder: Path) -> dict[str, Any]:
    """The JSON object that it told last."""
    command = [*program.command, mode, str(folder)]
    environment = {**os.environ, **QUIET, **program.environment}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
            env=environment,
        )
    except subprocess.TimeoutExpired as exc:
        raise LeftOut(f"its {mode} took longer than {LIMIT_SECONDS} s") from exc
    told = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not told:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise LeftOut(f"its {mode} ended with {done.returncode}: {last[0][:160]}")
    found: dict[str, Any] = json.loads(told[-1])
    return found


if __name__ == "__main__":
    main()
