"""Read standard input for a command that was given `-` in place of a text or a file."""

import sys

from holdfast.errors import Unusable

STDIN = "-"


def read_stdin(most: int) -> bytes:
    """
    Read to the end, or one byte more than `most`, so that the caller can detect too much input.
    """
    if sys.stdin is None:
        raise Unusable(
            "stdin is closed", code="no_file", hint="`-` reads from stdin: pipe something into it"
        )
    try:
        return sys.stdin.buffer.read(most + 1)
    except OSError as exc:
        raise Unusable(
            f"stdin can't be read: {exc.strerror}",
            code="no_file",
            hint="`-` reads from stdin: pipe something into it",
        ) from exc
