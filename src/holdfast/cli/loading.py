"""Finding commands: a module `holdfast.cli.NAME` with a function `register(app)` is one; a name without a module is not there in this install."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

import typer


def register_all(app: typer.Typer, package: str, names: Sequence[str]) -> None:
    for name in names:
        if find_spec(f"{package}.{name}") is not None:
            import_module(f"{package}.{name}").register(app)
