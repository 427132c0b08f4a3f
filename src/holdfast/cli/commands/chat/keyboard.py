"""
Lines from the person at the terminal, one at a time, in a way that somebody else's answer can
interrupt.

What was typed before a question was on the screen is thrown away: a key pressed in advance never
answers a prompt that nobody had seen.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.shared.terminal import guard_streams
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History

    from holdfast.secrecy import Secret

HISTORY_FILE = "chat_history"


class Interrupted(Exception):
    """Something happened meanwhile that makes the question moot, or another one more urgent."""


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
    `home` gets the history of what was said (never of what was answered), readable by its owner
    alone; lines that hold a secret stay out of it.
    """

    def __init__(self, home: Path, secrets: "tuple[Secret, ...]" = ()) -> None:
        self._home = home
        self._secrets = secrets
        self._messages: PromptSession[str] | None = None
        self._answers: PromptSession[str] | None = None
        self._active: PromptSession[str] | None = None
        self._draft = ""  # typed, and interrupted before it was sent
        # Set while nobody reads: the next reading ends at once. Cleared by whoever looks at how
        # things stand now.
        self._moot = False

    async def read_message(self, mark: str) -> str:
        """A message; what was half typed when something came in between is there again."""
        if self._messages is None:
            self._messages = _session(history=_history(self._home / HISTORY_FILE, self._secrets))
        draft, self._draft = self._draft, ""
        try:
            return await self._read(self._messages, mark, draft)
        except Interrupted:
            self._draft = self._messages.default_buffer.text
            raise

    async def read_answer(self, mark: str, default: str = "") -> str:
        """An answer to what is on the screen now; nothing typed before counts."""
        if self._answers is None:
            self._answers = _session(history=None)
        _forget_typed(self._answers)
        return await self._read(self._answers, mark, default)

    async def _read(self, session: "PromptSession[str]", mark: str, default: str) -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        self._active = session
        try:
            with patch_stdout(
                raw=True
            ):  # what comes in meanwhile is written above the line that is being typed
                guard_streams()
                return await session.prompt_async(mark, default=default, pre_run=self._begun)
        except EOFError:
            raise Left from None
        except KeyboardInterrupt:
            raise Stopped from None
        finally:
            self._active = None

    def look_afresh(self) -> None:
        """The caller is about to look: interruptions of before are dealt with by that."""
        self._moot = False

    def _begun(self) -> None:
        if self._moot:
            self._exit(Interrupted())

    def interrupt(self) -> None:
        """Whoever reads, or is about to, gets Interrupted."""
        self._moot = True
        self._exit(Interrupted())

    def _exit(self, why: Exception) -> None:
        app: Any = self._active.app if self._active is not None else None
        if app is not None and app.is_running and not app.is_done:
            app.exit(exception=why)


def _session(*, history: "History | None") -> "PromptSession[str]":
    from prompt_toolkit import PromptSession

    # No searching, no editor, no suspending into a shell: keys edit the line, Enter ends it.
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
        return  # the terminal is gone; reading will say so


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
        )  # a home that can't be written keeps no history; it is a comfort, not a promise
    return SafeHistory(path)
