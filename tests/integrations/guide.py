"""The examples of the guide, each run in the environment of its framework."""

import os
import re
import subprocess
import sys
from pathlib import Path

_GUIDE = Path(__file__).parents[2] / "docs/guides/frameworks.md"


def says_alone(name: str, module: str) -> bool:
    """Whether the guide's table has the very line that this framework produces here and now."""
    from proof.frameworks_alone.__main__ import Child, row

    return row(name, Child(Path(sys.executable), module)) in _GUIDE.read_text()


def run_example(extra: str, folder: Path, env: dict[str, str] | None = None) -> str:
    """
    Run the guide's example for this extra as printed, in an empty folder and a process of its own.
    Return the text that it prints.
    """
    pattern = rf"```python\n# runnable with {re.escape(extra)}\n(.*?)```"
    (code,) = re.findall(pattern, _GUIDE.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
