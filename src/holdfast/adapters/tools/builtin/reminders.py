"""
The tools that set, cancel and list reminders. This module types, checks and displays the calls.

Each call is an append to its own session, which is decided there under the turn's journalled
context. So the runtime executes it, and nothing runs here.
"""

from collections.abc import Callable

from holdfast.adapters.tools.builtin.base import Builtin, Values, definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.adapters.zones import find_zone
from holdfast.errors import InvariantBroken, Unusable
from holdfast.ports.tools import InvalidArguments, Scene
from holdfast.session.authority.plan import Binding
from holdfast.session.features.reminders.parse import read_schedule
from holdfast.session.features.reminders.schedule import Schedule, in_words
from holdfast.session.view.safe_text import framed, render_content

_SET = """Set a reminder: later, `text` comes back as a turn of its own, for the same person.
Exactly one of `at` (2026-11-17T09:00:00Z, or without an offset and with `time_zone`),
`every` (90m, 1d), `cron` (five fields, with `time_zone`).
Nobody can be asked in such a turn, unless `may_prompt` lets prompts reach the person who set it."""


def set_reminder(now_ms: Callable[[], int]) -> Builtin:
    text = str | None
    fields = {
        "text": (str, REQUIRED),
        **dict.fromkeys(("at", "every", "cron", "time_zone"), (text, None)),
        "may_prompt": (bool, False),
    }
    types = ArgumentTypes("set_reminder", fields)
    definition = definition_of(
        "set_reminder",
        _SET,
        types,
        contract="idempotent",
        mode="ask",
        kind="reminder",
        audience="personal",
    )

    def check(values: Values) -> None:
        if not values["text"].strip():
            raise InvalidArguments("text is empty; say what the turn should be about")
        _schedule(values, now_ms())

    def bind(values: Values, scene: Scene) -> Binding:
        shown = render_content(values["text"])
        schedule = _schedule(values, now_ms())
        asks = (
            f"prompts in it may reach {scene.requester}"
            if values["may_prompt"]
            else "nobody can be asked in it"
        )
        lines = [
            f"set a reminder, {in_words(schedule)}",
            framed(shown.text),
            f"it runs as {scene.requester} ({scene.boundary}), and {asks}",
        ]
        return Binding(display=display_of(lines), warnings=shown.warnings)

    return Builtin(definition, types, check=check, bind=bind, work=_never)


def _schedule(values: Values, now: int) -> Schedule:
    try:
        return read_schedule(
            at=values["at"],
            every=values["every"],
            cron=values["cron"],
            time_zone=values["time_zone"],
            find_zone=find_zone,
            now=now,
        )
    except Unusable as exc:
        raise InvalidArguments(f"{exc.message}; {exc.hint}") from exc


def cancel_reminder() -> Builtin:
    types = ArgumentTypes("cancel_reminder", {"reminder": (str, REQUIRED)})
    about = "Cancel a reminder of this conversation by its whole id, as list_reminders shows it."
    definition = definition_of(
        "cancel_reminder",
        about,
        types,
        contract="idempotent",
        mode="ask",
        kind="reminder",
        audience="personal",
    )

    def bind(values: Values, scene: Scene) -> Binding:
        del scene
        name = render_content(values["reminder"])
        return Binding(
            display=display_of(["cancel the reminder", framed(name.text)]), warnings=name.warnings
        )

    return Builtin(definition, types, check=lambda _values: None, bind=bind, work=_never)


def list_reminders() -> Builtin:
    types = ArgumentTypes("list_reminders", {})
    about = "List the reminders that stand in this conversation."
    definition = definition_of(
        "list_reminders",
        about,
        types,
        contract="pure",
        mode="auto",
        kind="reminder",
        audience="team",
    )
    return Builtin(
        definition,
        types,
        check=lambda _values: None,
        bind=lambda _values, _scene: Binding(display="list the reminders that stand here"),
        work=_never,
    )


def _never(values: Values, binding: Binding, scene: Scene) -> str:
    raise InvariantBroken(
        f"a reminder's call {scene.call} was run as a tool ({binding.display!r}, {len(values)} "
        "values)"
    )
