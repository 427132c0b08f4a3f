"""
The command line that starts a module of `proof` in its own process, without an extra folder on
Python's path.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_RUN = (
    "import runpy, sys; root, module = sys.argv[1:3]; sys.argv[:3] = [module];"
    " sys.path.append(root); runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def words_for(module: str, *arguments: str) -> list[str]:
    """
    Return the command line. `proof` is not installed, so the child finds it by this repository's
    root. Installed packages come first.
    """
    return [sys.executable, "-P", "-c", _RUN, str(ROOT), module, *arguments]
