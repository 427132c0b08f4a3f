"""
`--app MODULE:AGENT`: the user's own agents, loaded by file from the folder that the user is in or
names. No other folder is searched.
"""

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError, Unusable

if TYPE_CHECKING:
    from holdfast.adapters.tools.user_program import UserProgram
    from holdfast.home import Agent


class Given(NamedTuple):
    """The arguments of `assembly.service.open_service`."""

    specs: list[Any]
    tools: list[Any]
    models: Any  # LazyModels; None if there are no models to register
    program: "UserProgram"


def agents_of(app: str | None, home: Path, *, here: str | None = None) -> Given:
    """
    Load the agents of `--app`. `here` is for a command that begins something: tools that settings
    name may be found there for the first time.
    """
    app = app or named_app(home)
    if app is None:
        return Given([], [], None, program_of(home, [], here=here))
    from holdfast.home import specs_from_agents

    module, attribute, folder = _parts(app)
    program = program_of(home, [folder], here=None)
    agents = _load(app, program, module, attribute, folder)
    return Given(*specs_from_agents(agents), program)


APP_VARIABLE = "HOLDFAST_APP"


def named_app(home: Path) -> str | None:
    """Return the default of `--app`: the variable, else the setting, as a path below the home."""
    from holdfast.settings import SettingsSource

    if given := os.environ.get(APP_VARIABLE, "").strip():
        return given
    setting = SettingsSource(home).now().tools_app
    return None if setting is None else str(home / os.path.expanduser(setting))  # noqa: PTH111  an unknown user is not an error


def program_of(home: Path, folders: list[str], *, here: str | None) -> "UserProgram":
    """
    Search the given folders, then the folder that settings name. Without either, use the folder
    that a module was first loaded from.
    """
    from holdfast.adapters.tools.user_program import UserProgram
    from holdfast.cli.shared.program_folders import first_folder
    from holdfast.settings import SettingsSource

    named = SettingsSource(home).now().tools_folder
    return UserProgram(
        [*folders, *([str(home / named)] if named else [])],
        remembered=first_folder(home, None if named else here),
    )


def _parts(app: str) -> tuple[str, str, str]:
    """
    Module, attribute and folder.

    >>> _parts("/srv/bots/bot.py:ops")  # doctest: +SKIP
    ('bot', 'ops', '/srv/bots')
    """
    module, colon, attribute = app.rpartition(":")
    if not (module and colon and attribute):
        hint = "for example --app bot:ops, with bot.py in this folder, or --app FOLDER/bot.py:ops"
        raise Unusable(f"--app {app!r} is not MODULE:AGENT", code="bad_app", hint=hint)
    if "/" not in module and not module.endswith(".py"):
        return module, attribute, os.getcwd()  # noqa: PTH109
    path = Path(os.path.abspath(os.path.expanduser(module)))  # noqa: PTH100, PTH111  # an unknown user is not an error of Python's
    if not path.is_file() and not path.is_dir():
        raise Unusable(
            f"--app {app}: no {path}",
            code="bad_app",
            hint="name the file, such as --app FOLDER/bot.py:ops",
        )
    return path.name.removesuffix(".py"), attribute, str(path.parent)


def _load(
    app: str, program: "UserProgram", module: str, attribute: str, folder: str
) -> "list[Agent]":
    from holdfast.home import Agent

    try:
        value = getattr(program.load(module), attribute)
    except HoldfastError:
        raise
    except AttributeError as exc:
        raise Unusable(
            f"--app {app}: {exc}", code="bad_app", hint="check the name after the colon"
        ) from exc
    except (
        Exception,
        SystemExit,
        # A user's module may raise anything while it is imported. Its own exit code would be
        # mistaken for ours.
    ) as exc:
        raise Unusable(
            f"--app {app}: importing {module} failed: {type(exc).__name__}: {exc}",
            code="bad_app",
            hint=f"`cd {quote(folder)} && python -c 'import {module}'` shows where",
        ) from exc
    agents = (
        [value]
        if isinstance(value, Agent)
        else list(value)
        if isinstance(value, (list, tuple))
        else []
    )
    if not agents or not all(isinstance(each, Agent) for each in agents):
        raise Unusable(
            f"--app {app}: that is not a holdfast.Agent",
            code="bad_app",
            hint="name an Agent, or a list of them",
        )
    return agents
