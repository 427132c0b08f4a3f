"""
Find commands: a module `holdfast.cli.commands.NAME` with a function `register(app)` is one. A name
without a module is not part of this install.
"""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import typer

_TAKE_A_VALUE = frozenset({"--home", "--app"})
_TAKE_NONE = frozenset({"--json"})


def wanted(arguments: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """
    Return the command that these arguments name, or all of them if any may be needed: help,
    completion, an unknown name.

    >>> wanted(["--home", "send", "--json", "approvals", "list"], ("send", "approvals"))
    ('approvals',)
    >>> wanted(["--help", "send"], ("send", "approvals"))
    ('send', 'approvals')
    """
    rest = iter(arguments)
    for each in rest:
        if each in _TAKE_A_VALUE:
            next(rest, None)
        elif each not in _TAKE_NONE and each.partition("=")[0] not in _TAKE_A_VALUE:
            return (each,) if each in names else names
    return names


def register_all(app: typer.Typer, package: str, names: Sequence[str]) -> None:
    for name in names:
        if find_spec(f"{package}.{name}") is not None:
            import_module(f"{package}.{name}").register(app)
