"""
The person at the keyboard. The authenticated identity is the operating system's user, by uid;
nothing in the environment can change it.

`--as WHO` is an assertion by the home's owner and is recorded as one; nobody else may make it.
Commands that carry consent refuse if a tool started them. That is a tripwire, not the barrier: the
barrier is that an isolated command sees nothing of the user.
"""

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import Refused, Unusable

TOOL_VARIABLE = "HOLDFAST_TOOL"
_ANCESTORS_MAX = 128  # deeper than any real process tree; a loop in /proc would be a kernel bug


class Who(NamedTuple):
    """
    `person` acts. `asserted_by` is the owner who asserts this, if it is not the person's own login.
    """

    person: str
    asserted_by: str | None
    is_owner: bool  # the home's owner, acting as themselves

    @property
    def may_all(self) -> bool:
        return self.is_owner and self.asserted_by is None


def login() -> str:
    """Return the user's name by uid, or the uid if it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def who(home: Path, asserted: str | None) -> Who:
    """
    Return the person that `[people]` maps this login to, else the login itself; or the person that
    the owner asserts with `--as`.
    """
    owns = _owns(home)
    own = _own_person(home)
    if asserted is None or asserted == own:
        if own is None:
            raise Refused(
                f"settings know a person {login()!r} by another login than yours, so you are "
                "unknown here",
                code="no_authority",
                hint=f'give [people.NAME] local = "{login()}" in holdfast.toml, or speak as '
                "somebody with --as NAME",
            )
        return Who(own, None, owns)
    if not owns:
        raise Refused(
            f"only the owner of {home} may speak as {asserted!r}",
            code="no_authority",
            hint="leave --as out",
        )
    return Who(person_named(asserted), own or login(), owns)


def _own_person(home: Path) -> str | None:
    from holdfast.settings import SettingsSource

    return SettingsSource(home).now().person_for("local", login())


def _owns(home: Path) -> bool:
    try:
        return home.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return True  # its creator will own it
    except OSError:
        return False


def person_named(text: str) -> str:
    """Return the name unchanged if it can't be mistaken for another name."""
    from holdfast.settings.values import is_name

    if not is_name(text):
        raise Unusable(
            f"{text!r} is not a valid person name",
            code="malformed",
            hint="in Unicode normal form C, nothing invisible, no spaces at its ends, 128 at most",
        )
    return text


def owner_only(what: str) -> Refused:
    return Refused(
        f"only the home's owner may {what}",
        code="no_authority",
        hint="run it as the user who owns the home, without --as",
    )


def refuse_tools(what: str) -> None:
    """Raise if a tool's call started this process."""
    if (call := _tool_above()) is not None:
        raise Refused(
            f"{what} carries a person's consent, and this process was started by a tool ({call})",
            code="started_by_tool",
            hint="run the command yourself, in a shell of your own",
        )


def _tool_above() -> str | None:
    if call := os.environ.get(TOOL_VARIABLE):
        return call
    return next((call for pid in _ancestors() if (call := _tool_of(pid)) is not None), None)


def _ancestors() -> Iterator[int]:
    pid = os.getppid()
    for _ in range(_ANCESTORS_MAX):
        if pid <= 0:
            return
        yield pid
        try:
            # The name in parentheses may contain anything, parentheses too. Only numbers follow the
            # last one.
            fields = (
                Path(f"/proc/{pid}/stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()
            )
            pid = int(fields[1])
        except (OSError, IndexError, ValueError):
            return


def _tool_of(pid: int) -> str | None:
    prefix = f"{TOOL_VARIABLE}=".encode()
    with contextlib.suppress(OSError):  # another user's process, or gone: not a tool of this user
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(prefix) and len(entry) > len(prefix):
                return entry[len(prefix) :].decode(errors="replace")
    return None
