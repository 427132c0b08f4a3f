"""
The command `holdfast`, and `python -m holdfast`.

Nothing has begun while modules load, so Ctrl-C ends the process in silence there. From then on
`cli/main.py` reports it.
"""

import contextlib
import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    on_interrupt = signal.getsignal(signal.SIGINT)  # a shell's background process ignores it
    if on_interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from holdfast.cli.main import main as run

    signal.signal(signal.SIGINT, on_interrupt)
    run()


def _leave_the_current_folder() -> None:
    """With `-m`, Python has put the current folder first on its path. Take it off again."""
    with contextlib.suppress(OSError):
        if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # as Python wrote it there
            del sys.path[0]


if __name__ == "__main__":
    _leave_the_current_folder()
    main()
