"""
Turns a model's name into a model.

Resolving is cheap and imports no provider. It only checks that the package is installed and that
the key is set. An unusable name is refused with the next step. Objects (a Pydantic AI model, a
ScriptModel) are known only in the process that registered them. Another process must register its
own object under the same name, or leave the turn alone.
"""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeGuard, cast

from holdfast.adapters.models.demo import model as demo
from holdfast.adapters.models.demo.model import DemoModel
from holdfast.adapters.models.providers import (
    OBJECT_PREFIX,
    PROVIDERS,
    SCRIPT_OBJECT_PREFIX,
    SCRIPT_PREFIX,
    Provider,
    advice_for,
)
from holdfast.errors import Unusable, install_hint
from holdfast.ports.model import Model

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel


class Catalogue:
    """The models of one process, resolved under the given environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        # One adapter per name, so that a provider is loaded once.
        self._resolved: dict[str, Model] = {}
        self._objects: dict[str, tuple[object, Model]] = {}

    def resolve(self, name: str) -> Model:
        """Return the model of that name. Raise `Unusable` with the reason and the next step."""
        registered = self._objects.get(name)
        if registered is not None:
            return registered[1]
        if name.startswith((OBJECT_PREFIX, SCRIPT_OBJECT_PREFIX)):
            raise Unusable(
                f"the model {name} is an object of the program that started the turn, and this "
                "process has no such object",
                code="unknown_model",
                hint="run the program that defines it (--app MODULE:AGENT), or go on with another "
                "model: resume --model M",
            )
        if name == demo.NAME:
            return self._resolved.setdefault(name, DemoModel())
        if name.startswith(SCRIPT_PREFIX):
            return self._resolve_script(name.removeprefix(SCRIPT_PREFIX))
        return self._resolve_provider(name)

    def register(self, model: "Model | ForeignModel") -> Model:
        """
        Register an object and return it behind the model port. An object that is registered again
        keeps its name.
        """
        if not is_foreign(model):
            ours = cast("Model", model)
            if not isinstance(getattr(ours, "name", None), str):
                raise Unusable(
                    f"{model!r} is not a model",
                    code="unknown_model",
                    hint="give a name such as 'demo', or a model of Pydantic AI",
                )
            self._objects[ours.name] = (ours, ours)
            return ours
        name = base = f"{OBJECT_PREFIX}{model.model_id}"
        count = 1
        # Two objects of one provider and model may differ in settings, so they are numbered in the
        # order of registration.
        while name in self._objects and self._objects[name][0] is not model:
            count += 1
            name = f"{base}#{count}"
        from holdfast.adapters.models.pydantic_ai.model import PydanticAIModel

        advice = advice_for(model.model_id.partition(":")[0])
        adapter = PydanticAIModel(name, lambda: model, advice=advice)
        known = self._objects.setdefault(name, (model, adapter))
        return known[1]

    def _resolve_script(self, path: str) -> Model:
        if not path:
            raise Unusable(
                "script: names no file", code="unknown_model", hint="name it as script:FILE"
            )
        from holdfast.adapters.models.script import ScriptFile

        model = ScriptFile(path)
        model.load()
        return self._resolved.setdefault(model.name, model)

    def _resolve_provider(self, name: str) -> Model:
        if name in self._resolved:
            return self._resolved[name]
        provider_name, colon, model_name = name.partition(":")
        provider = PROVIDERS.get(provider_name)
        if not colon or provider is None or not model_name:
            raise unknown(name)
        check_package(name, provider)
        check_key(name, provider.keys, self._environment)
        from holdfast.adapters.models.pydantic_ai.model import PydanticAIModel

        model = PydanticAIModel(name, lambda: infer(name), advice=advice_for(provider_name))
        return self._resolved.setdefault(name, model)


def check_package(name: str, provider: Provider) -> None:
    missing = next(
        (package for package in ("pydantic_ai", provider.package) if not is_installed(package)),
        None,
    )
    if missing is not None:
        raise Unusable(
            f"the model {name} needs the package {missing}, which is not installed",
            code="model_package_missing",
            hint=install_hint("models")
            if missing in ("pydantic_ai", "openai", "anthropic")
            else f'pip install "pydantic-ai-slim[{provider.extra}]"',
        )


def check_key(name: str, keys: Sequence[str], environment: Mapping[str, str]) -> None:
    """Require one of the variables, if any is named."""
    if keys and not any(environment.get(key) for key in keys):
        raise Unusable(
            f"the model {name} needs {' or '.join(keys)}, which is not set",
            code="model_key_missing",
            hint=f"set {keys[0]} in the environment, or try the model demo, which needs none",
        )


def is_foreign(model: object) -> "TypeGuard[ForeignModel]":
    """
    Return whether Pydantic AI defines the model's class. The check reads module names only, so it
    imports nothing.
    """
    return any(cls.__module__.partition(".")[0] == "pydantic_ai" for cls in type(model).__mro__)


def is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package of a dotted name is not installed
        return False


def infer(name: str) -> "ForeignModel":
    from pydantic_ai.models import infer_model

    return infer_model(name)


# A name without its provider is the usual first mistake.
_FAMILIES = {
    "gpt-": "openai",
    "claude-": "anthropic",
    **dict.fromkeys(("llama", "qwen", "mistral", "gemma", "phi"), "ollama"),
}


def unknown(name: str, configured: Sequence[str] = ()) -> Unusable:
    """
    >>> unknown("gpt-5").message
    "no model 'gpt-5'; did you mean 'openai:gpt-5'?"
    """
    provider = name.partition(":")[0]
    family = next((of for start, of in _FAMILIES.items() if name.startswith(start)), None)
    near = get_close_matches(provider, ["demo", "script", *PROVIDERS, *configured], n=1)
    meant = [f"{family}:{name}"] if family and ":" not in name else near
    return Unusable(
        f"no model {name!r}"
        + (f"; did you mean {meant[0]!r}?" if meant and meant[0] != provider else ""),
        code="unknown_model",
        hint="use demo, script:FILE, or PROVIDER:MODEL such as openai:..., anthropic:... or "
        "ollama:...",
    )
