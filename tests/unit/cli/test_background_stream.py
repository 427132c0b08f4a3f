"""Output of a server that never waits for its reader: real pipes that are full."""

import fcntl
import io
import os
from collections.abc import Generator
from typing import IO

import pytest

from holdfast.cli.output.background_stream import BackgroundStream

WAIT_SECONDS = 30.0


class Pipe:
    """The smallest pipe of the system, with the writing end as a text stream."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.writer: IO[str] = io.open(writer, "w", encoding="utf-8")  # noqa: SIM115, UP020  closed below
        self.stream = BackgroundStream(
            self.writer,  # type: ignore[arg-type]
            lambda count: f"{count} dropped\n",
            bytes_max=self.size,
        )

    def read(self) -> str:
        """Read until everything is written, and then the rest."""
        text = b""
        while not self.stream.wait_until_written(0.01):
            text += os.read(self.reader, 1024)
        os.set_blocking(self.reader, False)
        while True:
            try:
                text += os.read(self.reader, 1 << 16)
            except BlockingIOError:
                return text.decode()


@pytest.fixture
def pipe() -> Generator[Pipe, None, None]:
    made = Pipe()
    yield made
    os.close(made.reader)
    made.writer.close()


def test_a_write_to_a_full_pipe_returns_and_the_reader_gets_it_later(pipe: Pipe) -> None:
    lines = [f"line {number:05}\n" for number in range(pipe.size // 11)]
    os.write(pipe.writer.fileno(), b"x" * pipe.size)  # nothing more fits
    for line in lines:
        assert pipe.stream.write(line) == len(line)
    assert pipe.read() == "x" * pipe.size + "".join(lines)


def test_output_that_does_not_fit_is_dropped_and_counted(pipe: Pipe) -> None:
    os.write(pipe.writer.fileno(), b"x" * pipe.size)
    for _ in range(pipe.size + 3):
        pipe.stream.write("\n")
    text = pipe.read()
    assert text == "x" * pipe.size + "\n" * pipe.size + "3 dropped\n"
    pipe.stream.write("later\n")
    assert pipe.stream.wait_until_written(WAIT_SECONDS)
    assert os.read(pipe.reader, 100) == b"later\n"


def test_a_reader_that_has_gone_ends_nothing() -> None:
    pipe = Pipe()
    os.close(pipe.reader)
    assert pipe.stream.write("to nobody\n") == len("to nobody\n")
    assert pipe.stream.wait_until_written(WAIT_SECONDS)
    pipe.writer.close()
