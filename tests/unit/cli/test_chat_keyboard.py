"""The line that a person types and the output above it."""

import time
from io import StringIO
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.output.plain_text import PlainTextOutput

from holdfast.cli.output.terminal import output_above_the_line


class Written(StringIO):
    """A terminal that remembers each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return super().write(text)


def wait_until_taken(stream: Any) -> None:
    """Wait until the thread that writes has taken everything that was given to it."""
    deadline = time.monotonic() + 60
    while not stream.rich_proxied_file._flush_queue.empty():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_half_a_line_waits_for_its_end() -> None:
    """The line that the person types is drawn after each write, so it would split the message."""
    screen = Written()
    with create_app_session(output=PlainTextOutput(screen)), output_above_the_line() as stream:
        stream.write("| read ")
        stream.flush()
        wait_until_taken(stream)
        stream.write("nothing.txt\n| and ")
        stream.flush()
    assert "".join(screen.writes) == "| read nothing.txt\n| and "
    assert "| read " not in screen.writes
