"""
Errors, sorted by what the caller should do next:

* HoldfastError
  x Refused         not allowed now, nothing was written   -> tell the person    exit 6  by its code
  x Busy            could not try, nothing was written      -> retry later        exit 5  503
    + NotSaved (ReadOnly), CannotDrive, NewerVersion
  x Superseded      overtaken; dropped, journalled, shown   -> nothing            exit 6  410
  x Fenced          someone else drives now, we may not     -> stop this driver   exit 5  503
  x InDoubt         may or may not have happened            -> resume             exit 5  503
  x Untrusted       the journal cannot be believed          -> sealed, a person   exit 4  423
    + Takeover, BrokenChain, CutShort
  x Unusable        settings, arguments, a missing part     -> fix it, try again  exit 2  400
* InvariantBroken   a bug in Holdfast                       -> crash

Every HoldfastError has a stable `code`, a message that states the fact with its values, and a
`hint`: the next step.
"""

from typing import ClassVar

__all__ = [
    "BrokenChain",
    "Busy",
    "CannotDrive",
    "CutShort",
    "Fenced",
    "HoldfastError",
    "InDoubt",
    "InvariantBroken",
    "NewerVersion",
    "NotSaved",
    "ReadOnly",
    "Refused",
    "Superseded",
    "Takeover",
    "Untrusted",
    "Unusable",
]


class HoldfastError(Exception):
    """The base class of all Holdfast errors; `code` is stable, `hint` is the next step."""

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint


class Refused(HoldfastError):
    """Not allowed now; nothing was written. Tell the person."""

    exit_code = 6
    default_code = "refused"


class Busy(HoldfastError):
    """The operation could not be tried; nothing was written. Try again later."""

    exit_code = 5
    default_code = "busy"

    def __init__(
        self,
        message: str,
        *,
        holder: str | None = None,
        held_seconds: float | None = None,
        code: str | None = None,
        hint: str = "try again",
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.holder = holder
        self.held_seconds = held_seconds


class NotSaved(Busy):
    """The write failed, and it is durably known that nothing of it was kept."""

    default_code = "not_saved"


class ReadOnly(NotSaved):
    """
    Nothing can be written where the journal lies: a read-only mount, or files without write
    permission. It can be read.
    """


class CannotDrive(Busy):
    """
    This process lacks the turn's model, workspace or one of its tools; the turn stays as it is.
    """

    default_code = "cannot_drive"


class NewerVersion(Busy):
    """A genuine record of a newer Holdfast: this program reads the session, but never writes it."""

    default_code = "newer_version"


class Superseded(HoldfastError):
    """Overtaken by something journalled earlier; dropped, and shown to followers."""

    exit_code = 6
    default_code = "superseded"


class Fenced(HoldfastError):
    """Another driver has the session now; this one must stop."""

    exit_code = 5
    default_code = "fenced"


class InDoubt(HoldfastError):
    """It may or may not have happened; reopening finds out."""

    exit_code = 5
    default_code = "in_doubt"


class Untrusted(HoldfastError):
    """The journal can't be believed. The session is sealed until a person decides."""

    exit_code = 4
    default_code = "sealed"

    def __init__(
        self,
        message: str,
        *,
        at_seq: int | None = None,
        segment: str | None = None,
        byte: int | None = None,
        code: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.at_seq = at_seq
        self.segment = segment
        self.byte = byte
        # Where the attempt's produced results are kept, for people; set by the code that kept them.
        self.quarantined: tuple[str, ...] = ()


class Takeover(Untrusted):
    """A writer without our key changed history while the lock was released."""

    default_code = "takeover"


class BrokenChain(Untrusted):
    """A complete record does not verify."""

    default_code = "broken"


class CutShort(Untrusted):
    """Acknowledged history is missing."""

    default_code = "cut_short"


class Unusable(HoldfastError):
    """A setting, an argument or a part of the system is invalid; nothing was tried."""

    exit_code = 2
    default_code = "usage"

    def __init__(
        self, message: str, *, code: str | None = None, hint: str = "", line: int | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        # The line in the settings, if known. Callers may show it where they may not show the
        # message.
        self.line = line


class InvariantBroken(Exception):
    """
    A bug in Holdfast. Never caught to continue: the process stops, and the journal shows the last
    durable step.
    """


def install_hint(extra: str) -> str:
    """
    Return the next step if an optional part is missing. No release is on PyPI, so the command
    installs from the folder of this checkout.

    >>> install_hint("serve").endswith("[serve]'`")
    True
    """
    from pathlib import Path

    checkout = Path(__file__).parents[2]
    is_checkout = (checkout / "pyproject.toml").is_file()
    folder = checkout if is_checkout else "PATH/TO/THE/HOLDFAST/FOLDER"
    return f"install the extra: `pip install '{folder}[{extra}]'`"


def describe_error(exc: BaseException) -> str:
    """Describe any exception of foreign code by type and message."""
    return f"{type(exc).__name__}: {error_words(exc)}"


def error_words(exc: BaseException) -> str:
    """Return the message of any exception of foreign code."""
    try:
        return str(exc)
    except Exception:  # noqa: BLE001  its own `__str__`, which may fail as well
        return "(it can't say why)"
