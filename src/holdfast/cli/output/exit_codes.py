"""The exit code of each outcome and error."""

from collections.abc import Iterable

from holdfast.errors import HoldfastError

EXIT_OF_OUTCOME = {
    "completed": 0,
    "queued": 0,
    "running": 0,
    "failed": 1,
    "cancelled": 1,
    "waiting": 3,
    "sealed": 4,
    "superseded": 6,
}


EXIT_OF_SEVERAL = (4, 5, 1, 6, 3, 0)
"""For several sessions: the first of these codes that is present."""


_EXIT_OF_CODE = {
    "sealed": 4,
    "not_saved": 5,
    "busy": 5,
    "in_doubt": 5,
    "newer_version": 5,
    "cannot_drive": 5,
}
"""Refusals whose code has the meaning of another error class."""


def exit_code_of(error: HoldfastError) -> int:
    """
    >>> from holdfast.errors import Refused
    >>> refusals = [Refused("no", code=code) for code in ("wrong_approver", "sealed")]
    >>> exit_code_of(refusals[0]), exit_code_of(refusals[1])
    (6, 4)
    """
    return _EXIT_OF_CODE.get(error.code, error.exit_code)


def exit_code_of_several(codes: Iterable[int]) -> int:
    """
    >>> exit_code_of_several([0, 3, 1]), exit_code_of_several([])
    (1, 0)
    """
    present = set(codes)
    return next((code for code in EXIT_OF_SEVERAL if code in present), max(present, default=0))
