"""
Generate `docs/internals/state-machine.md` from the tables:
`python -m proof.generated_docs.state_machine > docs/internals/state-machine.md`.

A test compares the committed file with this output, so the page can't differ from the code.
"""

import sys
from collections.abc import Iterator

from holdfast.session.recovery import ANY, CASES, Findings
from holdfast.session.state import CallStatus, Phase
from holdfast.session.transitions import PHASE_SENTENCES, TRANSITIONS

_START = "start"
_CALL_SENTENCES = {
    CallStatus.PROPOSED: "made by the model, or edited by a person: to be decided",
    CallStatus.ALLOWED: "by policy or a grant; decided again right before it starts",
    CallStatus.WAITING: "a prompt is open",
    CallStatus.APPROVED: "by a person; starts when its siblings have answers too",
    CallStatus.STARTED: "durably, before anything runs",
    CallStatus.DELEGATED: (
        "handed to a delegate, whose own session says where it stands; its end is the call's result"
    ),
    CallStatus.FINISHED: "it has its one result, real or synthetic",
}


def document() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The state machine of a turn"
    yield ""
    yield (
        "Written by `python -m proof.generated_docs.state_machine` from `session/transitions.py`"
        " and `session/recovery.py`; do not edit it by hand."
    )
    yield ""
    yield "Any number of turns may be parked, at most one runs."
    yield (
        "Nothing else can happen: Holdfast never writes it, and does not believe a journal that"
        " contains it."
    )
    yield "Stories of what it does are in `tests/proof/scenarios/`."
    yield ""
    yield "## Phases"
    yield ""
    yield "| phase | means |"
    yield "|---|---|"
    for phase in Phase:
        yield f"| `{phase.value}` | {PHASE_SENTENCES[phase]} |"
    yield from ("", "A call of the open batch is, in turn:", "", "| call | means |", "|---|---|")
    for status in CallStatus:
        yield f"| `{status.value}` | {_CALL_SENTENCES[status]} |"
    yield from ("", "## Diagram", "", "```mermaid", "stateDiagram-v2")
    yield f"    [*] --> {Phase.READY.value}: TurnStarted"
    for (before, after), events in _arrows().items():
        if before is not after:
            yield f"    {before.value} --> {after.value}: {', '.join(events)}"
    yield from (
        f"    {Phase.ENDED.value} --> [*]",
        "```",
        "",
        "The same in plain text, with what happens without leaving a phase:",
        "",
        "```text",
    )
    yield from _plain()
    yield from ("```", "", "## Transitions", "", "| in | event | leads to |", "|---|---|---|")
    for (phase, event), after_all in TRANSITIONS.items():
        yield (
            f"| `{phase.value}` | {event.__name__} |"
            f" {' or '.join(f'`{each.value}`' for each in Phase if each in after_all)} |"
        )
    yield from _recovery()


def _arrows() -> dict[tuple[Phase, Phase], list[str]]:
    found: dict[tuple[Phase, Phase], list[str]] = {}
    for (before, event), after_all in TRANSITIONS.items():
        for after in Phase:
            if after in after_all:
                found.setdefault((before, after), []).append(event.__name__)
    return found


def _plain() -> Iterator[str]:
    arrows = _arrows()
    width = max(len(phase.value) for phase in Phase)
    yield f"{_START:<{width}}  -> {Phase.READY.value:<{width}}  TurnStarted"
    for before in Phase:
        for after in Phase:
            if (events := arrows.get((before, after))) is not None:
                arrow = (
                    "  stays" + " " * (width - 4)
                    if before is after
                    else f"  -> {after.value:<{width}}"
                )
                yield f"{before.value:<{width}}{arrow}  {', '.join(events)}"


def _recovery() -> Iterator[str]:
    yield from ("", "## After a crash", "")
    yield (
        "A driver finds what an earlier one left in flight, turn by turn; exactly one case matches"
        " any combination of findings."
    )
    yield "Everything else after a crash is what is owed anyway, computed by the same function."
    yield ""
    yield (
        f"| case | {' | '.join(name.replace('_', ' ') for name in Findings._fields)} | what is done"
        " | in words |"
    )
    yield "|---" * (len(Findings._fields) + 3) + "|"
    for case in CASES:
        cells = ("any" if want is ANY else "yes" if want else "no" for want in case.pattern)
        yield f"| {case.letter} | {' | '.join(cells)} | {case.action.value} | {case.sentence} |"
    yield ""
    yield (
        "A turn of an external loop has lost its loop with its driver: calls that it had started"
        " are in doubt, unless they may run again."
    )
    yield "It is parked until a loop takes it up."
    yield "If no loop comes within a day, it ends as `loop_lost`."
    yield "A turn that was parked is left alone: its prompts still stand."


if __name__ == "__main__":
    sys.stdout.write(document())
