"""`--app MODULE:AGENT`: the user's own agents, imported from the folder the command is run in."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import HoldfastError, Unusable

if TYPE_CHECKING:
    from holdfast.home import Agent


class Given(NamedTuple):
    """What wiring takes."""

    specs: list[Any]
    tools: list[Any]
    models: Any  # wiring.LazyModels; None when there is nothing to make known


def agents_of(app: str | None) -> Given:
    # Tools named in settings as `module:function` are looked for here too.
    if (here := os.getcwd()) not in sys.path:  # noqa: PTH109
        sys.path.insert(0, here)
    if app is None:
        return Given([], [], None)
    from holdfast.home import specs_from_agents

    return Given(*specs_from_agents(_load(app)))


def _load(app: str) -> "list[Agent]":
    from holdfast.home import Agent

    module_name, colon, attribute = app.partition(":")
    if not (module_name and colon and attribute):
        raise Unusable(f"--app {app!r} is not MODULE:AGENT", code="bad_app", hint="for example --app bot:ops, with bot.py in this folder")
    try:
        value = getattr(importlib.import_module(module_name), attribute)
    except HoldfastError:
        raise
    except AttributeError as exc:
        raise Unusable(f"--app {app}: {exc}", code="bad_app", hint="check the name after the colon") from exc
    except (
        Exception,
        SystemExit,
    ) as exc:  # whatever a module of the user's raises while it is imported; an exit code of its own would be taken for ours
        raise Unusable(
            f"--app {app}: importing {module_name} failed: {type(exc).__name__}: {exc}",
            code="bad_app",
            hint="run `python -c 'import ...'` to see where",
        ) from exc
    agents = [value] if isinstance(value, Agent) else list(value) if isinstance(value, (list, tuple)) else []
    if not agents or not all(isinstance(each, Agent) for each in agents):
        raise Unusable(f"--app {app}: that is no holdfast.Agent", code="bad_app", hint="name an Agent, or a list of them")
    return agents
