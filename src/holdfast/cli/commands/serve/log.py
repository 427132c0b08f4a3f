"""
The log of `holdfast serve`: on stderr, for a person at a terminal or as JSON lines. The server
never waits for a reader of its output.
"""

import logging
import shutil
import sys
from datetime import UTC, datetime

from holdfast.cli.output.background_stream import write_in_background
from holdfast.cli.output.terminal import printable, printable_json
from holdfast.cli.output.word_wrap import WIDTH_MIN, wrap_for_terminal


class _JsonLines(logging.Formatter):
    """One JSON object per line, without any known secret."""

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        from holdfast.secrecy import known

        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        clean = {name: text.encode("utf-8", "replace").decode() for name, text in line.items()}
        shown = known().hidden(msgspec.json.encode(clean).decode())
        return printable_json(shown.encode("utf-8", "replace")).decode()


class _ShortLines(logging.Formatter):
    """One short line for a person at a terminal: the time and what happened, without a secret."""

    def format(self, record: logging.LogRecord) -> str:
        from holdfast.secrecy import known

        at = datetime.fromtimestamp(record.created).astimezone()
        text = known().hidden(" ".join(record.getMessage().split()))
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = printable(f"{at:%H:%M:%S} {level}{text}")
        return wrap_for_terminal(line, max(WIDTH_MIN, shutil.get_terminal_size().columns))


def log_to_stderr(*, quiet: bool) -> None:
    """
    Log to stderr: one JSON line per event, or short lines for a person at a terminal. No line has a
    query, a header, a message text or a known secret, or anything that a terminal interprets.
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    formatter = _ShortLines() if is_terminal else _JsonLines()
    write_in_background("stderr", lambda count: f"{formatter.format(_gap(count))}\n")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.raiseExceptions = (
        False  # if the log can't be written, the logging module must not print a trace
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("holdfast.gateway").setLevel(logging.WARNING if quiet else logging.INFO)
    if is_terminal:  # a person wants the decisions, not each request
        logging.getLogger("holdfast.gateway.access").setLevel(logging.WARNING)


def free_stdout() -> None:
    """Keep a tool's prints from waiting for a reader. The server's own output is written before."""
    log = logging.getLogger(_LOG)

    def report(count: int) -> str:
        log.handle(_gap(count))
        return ""  # stdout may be JSON

    write_in_background("stdout", report)


_LOG = "holdfast.gateway.log"


def _gap(count: int) -> logging.LogRecord:
    text = f"{count} lines of output were dropped, because nobody read the output in time"
    return logging.LogRecord(_LOG, logging.WARNING, "", 0, text, None, None)
