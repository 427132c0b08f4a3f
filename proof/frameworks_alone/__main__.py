"""
`make frameworks-alone`: the table of what each framework does without Holdfast in the same crash.
A framework whose environment is missing is left out, and named.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from proof.frameworks_alone.effect import FileEffect, dying

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 120  # for one process, on a slow machine with a large framework to import
FRAMEWORKS = {
    "Pydantic AI": ("pydantic-ai", "pydantic_ai_alone"),
    "LangChain on LangGraph": ("langchain", "langchain_alone"),
    "OpenAI Agents": ("openai-agents", "openai_agents_alone"),
    "ADK": ("adk", "adk_alone"),
    "Agent Framework": ("agent-framework", "agent_framework_alone"),
}
HEAD = (
    "| framework alone | approved once, killed in mid-tool, gone on | killed while it waits: the"
    " prompt | consent from a stranger | tried with |\n|---|---|---|---|---|"
)


class Child(NamedTuple):
    """The processes of one framework."""

    python: Path
    module: str

    def run(self, step: str, folder: Path, *, dies: bool = False) -> Any:
        command = [str(self.python), "-m", "proof.frameworks_alone.step"]
        ended = subprocess.run(  # the framework's own environment
            [*command, self.module, step, str(folder)],
            cwd=ROOT,
            env={**os.environ, **(dying() if dies else {})},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        expected = -signal.SIGKILL if dies else 0
        if ended.returncode != expected:
            raise SystemExit(f"{self.module} {step}: {ended.returncode}\n{ended.stderr[-3000:]}")
        return None if dies else json.loads(ended.stdout.splitlines()[-1])


def row(name: str, child: Child) -> str:
    """Run the three stories, and return the line of the table."""
    with tempfile.TemporaryDirectory() as place:
        crash, stranger = Path(place) / "crash", Path(place) / "stranger"
        crash.mkdir()
        stranger.mkdir()
        about = child.run("packages", crash)
        child.run("ask", crash)
        waiting = child.run("pending", crash)
        child.run("approve", crash, dies=True)
        child.run("approve", crash)
        ran = FileEffect(crash).count()
        child.run("ask", stranger)
        child.run("approve", stranger)  # nobody says who approves, and nobody asks
        accepted = "accepted" if FileEffect(stranger).count() else "refused"
    prompt = "lost" if not waiting else f"stands, stored by {about['stored_by']}"
    times = f"the tool ran {ran} times" if ran > 1 else "the tool ran once"
    return f"| {name} | {times} | {prompt} | {accepted} | {about['packages']} |"


def main() -> None:
    print(HEAD)  # a table for people
    missing = []
    for name, (environment, module) in FRAMEWORKS.items():
        python = ROOT / f".venv-{environment}" / "bin" / "python"
        if not python.exists():
            missing.append(f"{name} (make .venv-{environment}/.made)")
            continue
        print(row(name, Child(python, module)), flush=True)  # as above
    if missing:
        sys.stderr.write(f"not tried, since their environments are missing: {', '.join(missing)}\n")


if __name__ == "__main__":
    main()
