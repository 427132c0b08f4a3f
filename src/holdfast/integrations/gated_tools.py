"""Shared by all adapters: the turn that a gated tool belongs to, and the tool as it is known."""

import json
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import holdfast

_SETTINGS = frozenset({"mode", "contract", "audience", "free", "code"})
_DOUBTS_MAX = 8  # the model reads them with every request; older ones are in the journal


class _Driven:
    """A turn, and the recorded answers that its agents have not been given yet."""

    def __init__(self, turn: holdfast.ExternalTurn) -> None:
        self.turn = turn
        self.answers: deque[holdfast.LoopAnswer] | None = None


_driven: ContextVar[_Driven | None] = ContextVar("holdfast_turn", default=None)


class Paused(Exception):
    """A call waits for an approver, so the framework's run is left. It never means consent."""

    def __init__(self, approval: str | None) -> None:
        super().__init__("a call waits for an approver; run the same line again after the answer")
        self.approval = approval


class Done(NamedTuple):
    """How one run ended: the framework's own result, and whether it waits for a person."""

    result: Any
    waiting: bool
    text: str
    approvals: tuple[holdfast.Approval, ...] = ()


@contextmanager
def driving(turn: holdfast.ExternalTurn) -> Generator[None, None, None]:
    """Make this the turn of the gated tools that run inside."""
    token = _driven.set(_Driven(turn))
    try:
        yield
    finally:
        _driven.reset(token)


def turn_or_none() -> holdfast.ExternalTurn | None:
    driven = _driven.get()
    return driven.turn if driven is not None else None


def current_turn() -> holdfast.ExternalTurn:
    """The turn that a gated tool belongs to. A tool that has lost its turn must not run."""
    return _current().turn


def _current() -> _Driven:
    driven = _driven.get()
    if driven is None:
        raise holdfast.Unusable(
            "a gated tool was called outside of a turn, and did not run",
            code="no_turn",
            hint="run the agent as the adapter's page shows; a thread or a task queue may lose the "
            "turn on the way",
        )
    return driven


async def recorded_answer(adapter: str) -> holdfast.LoopAnswer | None:
    """
    The next answer of a model that the turn has recorded, or None once all were given. Agents that
    one tool runs one after another each get their own.
    """
    driven = _current()
    if driven.answers is None:
        driven.answers = deque(await driven.turn.answers(adapter=adapter))
    return driven.answers.popleft() if driven.answers else None


async def drop_unrun(turn: holdfast.ExternalTurn) -> None:
    """
    Close calls that the framework did not run after all: it refused their arguments, or ended the
    step. It asks the model again only when each call has a result.
    """
    for gate in await turn.gates():
        if gate.may_start or gate.waiting:
            await turn.drop(gate, "the framework did not run it")


def settings_by_name(
    settings: Mapping[str, Mapping[str, Any]] | None, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """
    The metadata of tools whose framework keeps none, as `schema_tool` takes it. A name that is not
    a tool is refused: a misspelt one would leave its tool with the defaults.
    """
    given = dict(settings or {})
    if unknown := sorted(set(given) - set(names)):
        raise holdfast.Unusable(
            f"settings name tools that are not here: {', '.join(unknown)}",
            code="malformed",
            hint=f"use {', '.join(sorted(names))}",
        )
    return {name: {"holdfast": dict(given.get(name, {}))} for name in names}


class Ran(NamedTuple):
    """A call as it ended, and its value if it ran just now."""

    gate: holdfast.Gate
    values: tuple[Any, ...]


async def run_call(
    turn: holdfast.ExternalTurn,
    gate: holdfast.Gate,
    run: Callable[[dict[str, Any]], Awaitable[Any]],
    *,
    agent: str,
    result: Callable[[Any], holdfast.LoopResult],
    pauses: tuple[type[BaseException], ...],
    timeout_seconds: float | None = None,
) -> Ran:
    """
    Run a call if its gate lets it. Gated tools that run inside belong to the call. `result` makes
    the record of a value, which a replay gets back.
    """
    values: list[Any] = []

    async def recorded(given: dict[str, Any]) -> holdfast.LoopResult:
        with driving(turn.child(gate, agent=agent)):
            values.append(await run(given))
        return result(values[0])

    ended = await turn.call(gate, recorded, timeout_seconds=timeout_seconds, pauses=pauses)
    return Ran(ended, tuple(values))


def schema_tool(
    name: str,
    schema: Mapping[str, Any],
    *,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    must_ask: bool = False,
) -> holdfast.SchemaTool:
    """
    Make a tool of a framework known to Holdfast. Its metadata may have `{"holdfast": {"mode":
    "auto", "contract": "pure"}}`. A framework's own wish for an approval (`must_ask`) can only
    tighten.
    """
    given = dict((metadata or {}).get("holdfast") or {})
    if unknown := sorted(set(given) - _SETTINGS):
        raise holdfast.Unusable(
            f"the metadata of {name} has unknown settings: {', '.join(unknown)}",
            code="malformed",
            hint=f"use {', '.join(sorted(_SETTINGS))}",
        )
    if must_ask:
        given["mode"] = "ask"
    return holdfast.SchemaTool(name, schema, description=description or "", **given)


def text_of(value: Any) -> str:
    """The text of a result, for the journal and for people."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        return str(value)


async def doubts_before(home: holdfast.Home, session: str, turn: str) -> str:
    """
    Say for the model which calls of earlier messages are in doubt. A framework's own history does
    not know them.
    """
    calls = await home.calls(session)
    doubts = [each for each in calls if each.outcome == "in_doubt" and each.turn != turn]
    return "\n".join(
        f"({each.tool} {json.dumps(each.arguments)} of an earlier request: {each.text})"
        for each in doubts[-_DOUBTS_MAX:]
    )
