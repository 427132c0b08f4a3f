"""
The tool that asks a person. It parks the turn like an approval; the answer is text for the model
and grants nothing.
"""

from holdfast.adapters.tools.builtin.base import Builtin, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.errors import InvariantBroken
from holdfast.ports.tools import InvalidArguments, Scene
from holdfast.session.authority.approvals import RESERVED
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import framed, render_content

_CHOICES_MAX = 12
_CHOICE_CHARS_MAX = 200


def ask_person() -> Builtin:
    types = ArgumentTypes(
        "ask_person", {"question": (str, REQUIRED), "choices": (list[str] | None, None)}
    )
    definition = definition_of(
        "ask_person",
        "Ask the person a question and wait for the answer. `choices` suggests answers; any text "
        "may come back.",
        types,
        contract="once",
        mode="auto",
        kind="question",
        audience="team",
    )
    return Builtin(definition, types, check=_check, bind=_bind, work=_never)


def _check(values: Values) -> None:
    if not values["question"].strip():
        raise InvalidArguments("question is empty")
    choices = values["choices"] or []
    if len(choices) > _CHOICES_MAX or any(
        not one.strip() or "\n" in one or len(one) > _CHOICE_CHARS_MAX for one in choices
    ):
        raise InvalidArguments(
            f"choices must be at most {_CHOICES_MAX} lines of 1 to {_CHOICE_CHARS_MAX} characters"
        )
    if len(set(choices)) != len(choices):
        raise InvalidArguments("two choices are equal")


def _bind(values: Values, scene: Scene) -> Binding:
    del scene
    question = render_content(values["question"])
    # A choice that equals a reserved answer is not offered, so it gets no number.
    choices = [render_content(one) for one in values["choices"] or () if one not in RESERVED]
    numbered = [f"  {number}. {one.text}" for number, one in enumerate(choices, 1)]
    warnings = tuple(
        dict.fromkeys(warning for one in (question, *choices) for warning in one.warnings)
    )
    return Binding(
        display=display_of(["the agent asks", framed(question.text), *numbered]), warnings=warnings
    )


def _never(values: Values, binding: Binding, scene: Scene) -> str:
    raise InvariantBroken(
        f"a question of {scene.call} was run as a tool instead of being asked "
        f"({binding.display!r}, {len(values)} values)"
    )
