"""
The tool that hands a task to another agent. It never runs here: the runtime starts a session for
the delegate, and the delegate's reply is the call's result.

There is one tool per delegate, so that policy can name each. It takes a task and nothing else. A
delegate has at most its caller's authority, and a call that asks for more is refused with this
reason.
"""

from holdfast.adapters.tools.builtin.base import Builtin, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes, strict_object
from holdfast.errors import InvariantBroken
from holdfast.ids import delegate_tool_name
from holdfast.ports.tools import InvalidArguments, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.view.safe_text import framed, render_content

_TASK_CHARS_MAX = 16_000  # a prompt for it must fit a person's screen, if policy asks

_MORE = frozenset(
    {
        "audience",
        "boundary",
        "confine",
        "context",
        "cwd",
        "model",
        "policy",
        "principal",
        "requester",
        "sandbox",
        "tools",
        "user",
        "workspace",
    }
)
"""A call may not ask for these, whatever value it names."""


class DelegateTool(Builtin):
    def validate(self, arguments: bytes) -> bytes:
        if asked := sorted(_MORE & strict_object(arguments).keys()):
            raise InvalidArguments(
                f"a delegate has what you have, or less: {', '.join(asked)} can't be asked for. "
                "Call it again with the task alone"
            )
        return super().validate(arguments)


def delegate_tool(agent: str) -> DelegateTool:
    """
    >>> delegate_tool("researcher").definition.name
    'delegate_researcher'
    """
    name = delegate_tool_name(agent)
    types = ArgumentTypes(name, {"task": (str, REQUIRED)})
    definition = definition_of(
        name,
        f"Hand a task to the agent {agent} and get its answer back. It sees the task and nothing "
        "of this conversation, so say all it needs to know.",
        types,
        contract="once",
        mode="auto",
        kind="delegate",
        audience="team",
    )

    def bind(values: Values, scene: Scene) -> Binding:
        del scene
        task = render_content(values["task"])
        return Binding(
            display=display_of([f"hands a task to the agent {agent}", framed(task.text)]),
            warnings=task.warnings,
        )

    return DelegateTool(definition, types, check=_check, bind=bind, work=_never)


def _check(values: Values) -> None:
    if not values["task"].strip():
        raise InvalidArguments("task is empty")
    if len(values["task"]) > _TASK_CHARS_MAX:
        raise InvalidArguments(
            f"the task has {len(values['task'])} characters; {_TASK_CHARS_MAX} are the most"
        )


def _never(values: Values, binding: Binding, scene: Scene) -> str:
    raise InvariantBroken(
        f"the delegate of {scene.call} was run as a tool ({binding.display!r}, {len(values)} "
        "values)"
    )
