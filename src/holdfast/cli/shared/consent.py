"""
Check whether a person runs this command: `approvals.consent` lists the ways in which an answer
counts.

Without `script` in it, a command that carries consent must run in the foreground of its controlling
terminal. That is a tripwire, because any program of the same user can create a terminal. The
barrier is a home that belongs to a user of its own (docs/operations/serve-as-own-user.md).
"""

import os
from pathlib import Path

from holdfast.cli.shared.identity import refuse_tools
from holdfast.errors import Refused
from holdfast.session.authority.policy import Way


def way_of_answer() -> Way:
    """Return the way of an answer that is typed, or passed, to this process."""
    return "terminal" if at_a_terminal() else "script"


def at_a_terminal() -> bool:
    """
    Return whether standard input is the controlling terminal and this process is in its foreground.
    For another terminal the system refuses the question.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def is_a_person(home: Path) -> bool:
    """
    Return whether this command counts as a person's: always if scripts count, otherwise only in a
    terminal.
    """
    from holdfast.settings import SettingsSource

    return "script" in SettingsSource(home).now().consent or at_a_terminal()


def require_person(what: str, home: Path) -> None:
    """
    Check a command that carries consent other than an answer. Refuse tools, and refuse scripts
    unless settings allow them.
    """
    from holdfast.settings import SettingsSource

    refuse_tools(what)
    if is_a_person(home):
        return
    consent = SettingsSource(home).now().consent
    raise Refused(
        f"{what} carries a person's consent, and needs a terminal here: approvals.consent is "
        f"{', '.join(consent)}",
        code="no_authority",
        hint="run the command yourself, in the foreground of a terminal",
    )
