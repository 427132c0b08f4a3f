"""
Read lines from the person at the terminal, one at a time. Another person's answer can interrupt the
reading.

Keys typed before a question was on the screen are discarded, so they never answer a prompt that the
person had not seen.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.output.terminal import output_above_the_line
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History

    from holdfast.secrecy import Secret

HISTORY_FILE = "chat_history"


class Interrupted(Exception):
    """An event made the question obsolete, or another question more urgent."""


class Left(Exception):
    """Ctrl-D, or the terminal is gone."""


class Stopped(Exception):
    """Ctrl-C while typing."""


def check_terminal() -> None:
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise Unusable(
            "chat needs a terminal to talk in",
            code="no_terminal",
            hint="`holdfast send SESSION TEXT` works without one",
        )


class Keyboard:
    """
    `home` gets the history of messages, never of answers. Only its owner can read it. Lines that
    contain a secret are left out.
    """

    def __init__(self, home: Path, secrets: "tuple[Secret, ...]" = ()) -> None:
        self._home = home
        self._secrets = secrets
        self._messages: PromptSession[str] | None = None
        self._answers: PromptSession[str] | None = None
        self._active: PromptSession[str] | None = None
        self._draft = ""  # text that was interrupted before it was sent
        # Set while nothing is being read: the next read ends at once. The caller clears it before
        # it checks the present state.
        self._moot = False

    async def read_message(self, mark: str) -> str:
        """Read a message. A draft that was interrupted is restored."""
        if self._messages is None:
            self._messages = _session(history=_history(self._home / HISTORY_FILE, self._secrets))
        draft, self._draft = self._draft, ""
        try:
            return await self._read(self._messages, mark, draft)
        except Interrupted:
            self._draft = self._messages.default_buffer.text
            raise

    async def read_answer(self, mark: str, default: str = "") -> str:
        """Read an answer to the question on the screen. Nothing typed before it counts."""
        if self._answers is None:
            self._answers = _session(history=None)
        _forget_typed(self._answers)
        return await self._read(self._answers, mark, default)

    async def _read(self, session: "PromptSession[str]", mark: str, default: str) -> str:
        self._active = session
        try:
            with output_above_the_line():
                return await session.prompt_async(mark, default=default, pre_run=self._begun)
        except EOFError:
            raise Left from None
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            self._active = None

    def look_afresh(self) -> None:
        """Forget earlier interruptions: the caller is about to check the present state."""
        self._moot = False

    def _begun(self) -> None:
        if self._moot:
            self._exit(Interrupted())

    def interrupt(self) -> None:
        """Raise Interrupted in the present read, or in the next one."""
        self._moot = True
        self._exit(Interrupted())

    def _exit(self, why: Exception) -> None:
        app: Any = self._active.app if self._active is not None else None
        if app is not None and app.is_running and not app.is_done:
            app.exit(exception=why)


def _session(*, history: "History | None") -> "PromptSession[str]":
    from prompt_toolkit import PromptSession

    # No search, no editor, no suspending into a shell: keys edit the line, Enter ends it.
    return PromptSession(
        history=history,
        enable_history_search=False,
        enable_open_in_editor=False,
        enable_suspend=False,
    )


def _forget_typed(session: "PromptSession[str]") -> None:
    import termios

    from prompt_toolkit.input.typeahead import clear_typeahead

    clear_typeahead(session.input)
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except termios.error:
        return  # the terminal is gone; the next read reports it


def _history(path: Path, secrets: "tuple[Secret, ...]") -> "History":
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    from holdfast.secrecy import secrecy_of

    class SafeHistory(FileHistory):
        def store_string(self, string: str) -> None:
            if not secrecy_of(secrets).holds(string):
                super().store_string(string)

    try:
        os.close(
            os.open(
                path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        )
        path.chmod(0o600)
    except OSError:
        return (
            InMemoryHistory()
        )  # a home that can't be written keeps no history; history is a convenience
    return SafeHistory(path)
