"""
`python -m holdfast` is the command `holdfast`. Python has put the current folder first on its path
by now; it is taken off again.
"""

import contextlib
import os
import sys

with contextlib.suppress(OSError):
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # as Python wrote it there
        del sys.path[0]

from holdfast.cli.main import main

main()
