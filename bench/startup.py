"""
Cold starts: commands that look, and a parked session resumed by a new process up to the durable
start of its tool.
"""

import json
import resource
import subprocess
import time
from pathlib import Path

from bench.ground import Ground, Row, Times, python, timed, told, under

PART = "start-up"
LOOK = """
{"call": [{"tool": "shell", "args": {"command": "true"}}]}
{"say": "done"}
"""


def measure(ground: Ground) -> list[Row]:
    folder = ground.fresh("startup")
    home = folder / "home"
    script = folder / "script.jsonl"
    script.write_text(LOOK.lstrip())
    times = ground.count(9, 3)
    parked = [_park(home, script, folder, number) for number in range(times)]
    bare, shown, verified, listed = [], [], [], []
    used = {"--help": 0.0, "verify": 0.0, "approvals": 0.0}
    for _ in range(times):
        bare.append(timed(lambda: _run(python(), "-c", "pass")))
        for command, seconds in (("--help", shown), ("verify", verified), ("approvals", listed)):
            before = _cpu_of_children()
            arguments = (
                "--home",
                str(home),
                *{"verify": ["verify"], "approvals": ["approvals", "list"]}.get(command, [command]),
            )
            seconds.append(timed(lambda arguments=arguments: _holdfast(*arguments)))
            used[command] += (_cpu_of_children() - before) / times
    before = _cpu_of_children()
    resumed = [_resume(home, number, approval) for number, approval in enumerate(parked)]
    answering = (_cpu_of_children() - before) / times
    bare_told = f"a bare Python starts in {told(Times(bare).p50)}"
    return [
        under(
            PART,
            "holdfast --help",
            Times(shown).p50,
            0.3,
            note=f"{told(used['--help'])} of CPU; {bare_told}",
        ),
        under(
            PART,
            "holdfast verify, a small home",
            Times(verified).p50,
            0.3,
            note=f"{told(used['verify'])} of CPU",
        ),
        under(
            PART,
            "holdfast approvals list, a small home",
            Times(listed).p50,
            0.3,
            note=f"{told(used['approvals'])} of CPU; a goal of ours",
        ),
        under(
            PART,
            "cold resume of a parked session: new process to ToolStarted",
            Times(resumed).p50,
            0.5,
            note=f"approvals answer, script: model; {told(answering)} of CPU for the whole command, the tool and the rest of the turn included",
        ),
    ]


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _holdfast(*arguments: str) -> str:
    return _run(python(), "-m", "holdfast", *arguments)


def _park(home: Path, script: Path, workspace: Path, number: int) -> str:
    told_ = _holdfast(
        "--home",
        str(home),
        "--json",
        "send",
        f"bench/p{number}",
        "go",
        "--model",
        f"script:{script}",
        "--workspace",
        str(workspace),
    )
    (approval,) = json.loads(told_)["approvals"]
    return str(approval["id"])


def _resume(home: Path, number: int, approval: str) -> float:
    """From the start of a new process until the journal on disk holds a ToolStarted."""
    (segment,) = (home / "sessions" / "bench" / f"p{number}").glob("*.jsonl")
    started = time.perf_counter()
    command = [
        python(),
        "-m",
        "holdfast",
        "--home",
        str(home),
        "--json",
        "approvals",
        "answer",
        approval,
        "approve_once",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while b'"type":"tool_started"' not in segment.read_bytes():
            if process.poll() is not None and b'"type":"tool_started"' not in segment.read_bytes():
                raise RuntimeError(f"the answer to {approval} started nothing")
            time.sleep(0.001)
        return time.perf_counter() - started
    finally:
        process.wait()
