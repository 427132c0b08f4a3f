"""
The library's entry point: a home, its sessions, and the verbs, with the field names of `--json`.

    async with holdfast.open("./state", agents=[ops]) as home:
        turn = await home.send("ops/api", "restart_service service=api", source=alice)
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from os import PathLike
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from holdfast.argument_checks import (
    a_circle,
    a_cursor,
    a_path,
    a_source,
    a_workspace,
    asking,
    require_consenting_person,
    texts,
)
from holdfast.errors import HoldfastError, NotSaved, Refused, Untrusted, Unusable
from holdfast.ids import ApprovalId, GrantId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.ports.tools import BUILTIN_TOOLS, Tool
from holdfast.runtime.cancellation import finish
from holdfast.runtime.context import AgentSpec
from holdfast.runtime.external_loop import ExternalTurn
from holdfast.runtime.jobs.reports import JobReport
from holdfast.runtime.jobs.verbs import cancel_job, list_jobs, show_job
from holdfast.runtime.reminders import Wanted
from holdfast.runtime.reports.grants import GrantReport
from holdfast.runtime.reports.types import (
    AnswerReport,
    ApprovalReport,
    ErrorReport,
    ReminderReport,
    SessionReport,
    TurnReport,
)
from holdfast.runtime.service import Service
from holdfast.runtime.streams.feed import Heard
from holdfast.runtime.streams.in_flight import Follower, InFlight
from holdfast.session.authority.context import MessageSource
from holdfast.settings.settings import did_you_mean
from holdfast.settings.values import is_name
from holdfast.wiring import LazyModels, home_path, open_service

_P = ParamSpec("_P")
_R = TypeVar("_R")

Approval = ApprovalReport
Turn = TurnReport
Answer = AnswerReport
Grant = GrantReport
Session = SessionReport
Reminder = ReminderReport
Job = JobReport
Followed = Record | Heard


@dataclass(frozen=True)
class Agent:
    """
    A name, a model, instructions, and tools: functions decorated with `@holdfast.tool`, or names of
    built-in ones.

    `model` is a name ("demo", "script:FILE", "anthropic:...") or any Pydantic AI model. `delegates`
    are agents that it may hand tasks to. Each is called as the tool `delegate_NAME`, and has no
    tool that this agent lacks.
    """

    name: str
    model: Any = "demo"
    instructions: str = ""
    tools: Sequence[Any] = field(default_factory=tuple)
    delegates: "Sequence[Agent | str]" = field(default_factory=tuple)


def _verb(
    method: "Callable[Concatenate[Home, _P], Coroutine[Any, Any, _R]]",
) -> "Callable[Concatenate[Home, _P], Coroutine[Any, Any, _R]]":
    """Count the call as in flight: closing the home stops it first."""

    @wraps(method)
    async def run(home: "Home", /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with home._in_flight.verb():  # noqa: SLF001  # a method of it
            return await method(home, *args, **kwargs)

    return run


class Home:
    """An open home. Created by `holdfast.open`; use it as an async context manager."""

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Service]]) -> None:
        self._opener = opener
        self._context: AbstractAsyncContextManager[Service] | None = None
        self._service: Service | None = None
        self._in_flight = InFlight()

    async def __aenter__(self) -> Self:
        if self._context is not None:
            raise Unusable(
                "the home is open already",
                hint="hand the open one around, or call holdfast.open(...) again for another",
            )
        self._context = self._opener()
        try:
            self._service = await self._context.__aenter__()
        except BaseException:
            self._context = None
            raise
        self._service.jobs.drives = True
        self._in_flight = InFlight()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        context, self._service = self._context, None
        try:
            await finish(self._in_flight.stop(besides=asyncio.current_task()))
        finally:
            self._context = None
            if context is not None:
                await context.__aexit__(kind, error, trace)

    @property
    def service(self) -> Service:
        """The runtime underneath, for integrations."""
        if self._service is None:
            raise Unusable(
                "the home is not open", hint="use `async with holdfast.open(...) as home`"
            )
        return self._service

    @_verb
    async def send(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        model: str | None = None,
        dedup: str | None = None,
        workspace: str | PathLike[str] | None = None,
        wait: bool = True,
    ) -> Turn:
        """
        Send a message and drive its turn to its end or a pause. `source=None` is recorded as the
        least authority.
        """
        texts({"session": session, "text": text}, {"agent": agent, "model": model, "dedup": dedup})
        folder = a_workspace(workspace)
        told = None if source is None else a_source(source)
        return await self.service.send(
            session,
            text,
            source=told,
            agent=agent,
            model=model,
            dedup=dedup,
            workspace=folder,
            wait=wait,
        )

    @_verb
    async def answer(
        self,
        approval: Approval,
        option: str,
        *,
        by: MessageSource,
        reason: str | None = None,
        arguments: Any = None,
        answer_id: str | None = None,
        wait: bool = True,
    ) -> Answer:
        """
        Answer a prompt that was seen, and drive its turn on. The answer is bound to the digest of
        the shown plan.

        A refused answer returns `result="failed"` with its reason; the prompt then stays as it was.
        """
        if not isinstance(approval, ApprovalReport):
            raise Unusable(
                f"{approval!r} is no approval",
                code="malformed",
                hint="answer the one that was seen: turn.approvals, or await home.approval(ID)",
            )
        texts({"option": option}, {"reason": reason, "answer_id": answer_id})
        by = a_source(by)
        try:
            who = require_consenting_person(by)
            return await self.service.answer(
                approval.id,
                option,
                by=who,
                digest=approval.digest,
                reason=reason,
                arguments=arguments,
                answer_id=answer_id,
                asserted_by=by.asserted_by,
                wait=wait,
            )
        except (Refused, NotSaved, Untrusted) as exc:
            return AnswerReport(
                result="failed",
                reason=exc.code,
                turn=await self._turn_after(
                    approval,
                    ErrorReport.of(exc),
                    sealed=isinstance(exc, Untrusted) or exc.code == "sealed",
                ),
            )

    async def _turn_after(self, approval: Approval, error: ErrorReport, *, sealed: bool) -> Turn:
        if sealed:
            return TurnReport(
                session=approval.session, turn=approval.turn, outcome="sealed", error=error
            )
        try:
            turn = await self.service.turn(approval.session, approval.turn)
        except Refused:
            turn = TurnReport(session=approval.session, turn=approval.turn, outcome="failed")
        return TurnReport(
            session=turn.session,
            turn=turn.turn,
            outcome=turn.outcome,
            reply=turn.reply,
            approvals=turn.approvals,
            error=error,
            usage=turn.usage,
            seq=turn.seq,
        )

    @_verb
    async def approval(self, id: str) -> Approval:  # noqa: A002  # the field's name
        """One prompt, open or closed, to show and to answer."""
        texts({"id": id}, {})
        return await self.service.approval(ApprovalId(id))

    @_verb
    async def approvals(self, for_: str | None = None) -> tuple[Approval, ...]:
        """Return the open prompts; with `for_`, only those that this person may answer."""
        texts({}, {"for_": for_})
        return await self.service.approvals(for_=for_)

    def follow(self, session: str, after: int | None = None) -> Follower[Followed]:
        """
        Yield records as they are stored, and pieces of text as they come, until the home is closed.
        Leave the loop to stop.

        `after` is the seq to continue from, 0 for the whole history. Without it, the stream starts
        now.
        """
        texts({"session": session}, {})
        return self._in_flight.follow(self.service.follow(session, after=a_cursor(after)))

    @_verb
    async def cancel(
        self, session: str, *, by: MessageSource, turn: str | None = None
    ) -> tuple[Turn, ...]:
        """
        End the running turn, or the named one. Started calls end with their real outcome or in
        doubt. Only the requester and an operator may cancel.
        """
        texts({"session": session}, {"turn": turn})
        operator = a_source(by).principal == "operator"
        turns = await self.service.cancel(
            session,
            by=asking(by, may_all=operator),
            turn=TurnId(turn) if turn else None,
            may_all=operator,
        )
        await self.service.drive_above(session)
        return turns

    @_verb
    async def resume(
        self, session: str | None = None, *, model: str | None = None
    ) -> tuple[Turn, ...]:
        """
        Fire due reminders, then drive the owed work, in one session or in all. An error in one
        session is raised after the others were driven.
        """
        texts({}, {"session": session, "model": model})
        if session is not None:
            return (await self.service.resume(session, by="library", model=model),)
        turns: list[Turn] = []
        hindered: list[HoldfastError] = []
        for name, since in (await self.service.owing_heads()).items():
            try:
                turns.append(
                    await self.service.resume(name, by="library", model=model, since=since)
                )
            except HoldfastError as exc:
                hindered.append(exc)
        for error in hindered:
            raise error
        return tuple(turns)

    @_verb
    async def remind(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource,
        at: str | datetime | None = None,
        every: str | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        may_prompt: bool = False,
        agent: str | None = None,
        model: str | None = None,
        workspace: str | PathLike[str] | None = None,
    ) -> Reminder:
        """
        Schedule `text` as a turn of its own: once `at` a time, `every` so often, or by `cron` in a
        `time_zone`.

        It runs with the authority of `source`, or less. It cannot prompt, unless `may_prompt` lets
        prompts reach that person.
        """
        moment = at.isoformat() if isinstance(at, datetime) else at
        texts(
            {"session": session, "text": text},
            {
                "at": moment,
                "every": every,
                "cron": cron,
                "time_zone": time_zone,
                "agent": agent,
                "model": model,
            },
        )
        wanted = Wanted(
            text=text, at=moment, every=every, cron=cron, time_zone=time_zone, may_prompt=may_prompt
        )
        return await self.service.remind(
            session,
            wanted,
            source=a_source(source),
            agent=agent,
            model=model,
            workspace=a_workspace(workspace),
        )

    @_verb
    async def reminders(self) -> tuple[Reminder, ...]:
        """Return the active reminders of all sessions, the next one first."""
        return await self.service.reminders()

    @_verb
    async def cancel_reminder(self, reminder: str, *, by: MessageSource) -> Reminder:
        texts({"reminder": reminder}, {})
        operator = a_source(by).principal == "operator"
        return await self.service.cancel_reminder(
            reminder, by=asking(by, may_all=operator), may_all=operator
        )

    @_verb
    async def grants(self) -> tuple[Grant, ...]:
        """
        Return the remembered approvals that have not expired. `counts` says whether policy lets
        each count at present; `covers` describes the calls that it covers.
        """
        return await self.service.grants()

    @_verb
    async def revoke(self, grant: str, *, by: MessageSource) -> None:
        """
        Revoke a remembered approval; its requester and its giver may. The next call asks again.
        """
        texts({"grant": grant}, {})
        system = a_source(by).principal == "system"
        await self.service.revoke(GrantId(grant), by=asking(by, may_all=system), may_all=system)

    @_verb
    async def jobs(
        self, session: str | None = None, *, by: MessageSource, everything: bool = False
    ) -> tuple[Job, ...]:
        """
        Return the running jobs of the same audience and boundary. With `everything`, also those
        that ended recently.
        """
        texts({}, {"session": session})
        return await list_jobs(self.service, a_circle(by), session=session, everything=everything)

    @_verb
    async def job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        """
        Return one job and, once it has ended, its result. A job of another audience or boundary is
        reported as unknown.
        """
        texts({"id": id}, {})
        return await show_job(self.service, id, a_circle(by))

    @_verb
    async def cancel_job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        """Stop a job. The request is durable before anything is ended."""
        texts({"id": id}, {})
        return await cancel_job(self.service, id, a_circle(by))

    @_verb
    async def session(self, session: str) -> Session:
        """
        Return the session's state: its phase, the work it owes, whether it is sealed, and the files
        of its journal.
        """
        texts({"session": session}, {})
        return await self.service.show(session)

    @asynccontextmanager
    async def turn(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        workspace: str | PathLike[str] | None = None,
    ) -> AsyncGenerator[ExternalTurn, None]:
        """A turn driven by your own loop: see `ExternalTurn.gate` and `ExternalTurn.record`."""
        texts({"session": session, "text": text}, {"agent": agent})
        told = None if source is None else a_source(source)
        beginning = self.service.foreign_turn(
            session, text, source=told, agent=agent, workspace=a_workspace(workspace)
        )
        with self._in_flight.verb():
            async with beginning as turn:
                yield turn

    @asynccontextmanager
    async def take_up(self, session: str, turn: str) -> AsyncGenerator[ExternalTurn, None]:
        """
        Resume a turn of your own loop that was parked when the loop left it or died. Continue with
        `await turn.wait()`, whether it was answered or not.
        """
        texts({"session": session, "turn": turn}, {})
        taking = self.service.foreign_turn_again(session, TurnId(turn))
        with self._in_flight.verb():
            async with taking as taken:
                yield taken


def specs_from_agents(agents: Sequence[Agent]) -> tuple[list[AgentSpec], list[Tool], LazyModels]:
    """Convert agents for wiring: their specs, their tools and models that are objects."""
    tools: dict[str, Tool] = {}
    models = LazyModels()
    specs = []
    if isinstance(agents, Agent | str) or not isinstance(agents, Iterable):
        raise Unusable("agents is no list of agents", hint="write agents=[holdfast.Agent(...)]")
    agents = list(agents)
    if not all(isinstance(each, Agent) for each in agents):
        raise Unusable("agents is no list of agents", hint="write agents=[holdfast.Agent(...)]")
    for agent in _with_delegates(agents):
        if not is_name(agent.name):
            raise Unusable(
                f"{agent.name!r} is no name for an agent",
                hint="use a short word, without invisible characters or spaces at its ends",
            )
        names = tuple(_named(each, tools) for each in agent.tools)
        model = agent.model if isinstance(agent.model, str) else models.register(agent.model)
        delegates = tuple(each if isinstance(each, str) else each.name for each in agent.delegates)
        specs.append(
            AgentSpec(
                name=agent.name,
                model=model,
                instructions=agent.instructions,
                tools=names,
                delegates=delegates,
            )
        )
    _refuse_unknown_tools(specs, tools)
    return specs, list(tools.values()), models


def _refuse_unknown_tools(specs: Sequence[AgentSpec], tools: Mapping[str, Tool]) -> None:
    """
    Refuse an unknown tool name here; otherwise only the model would learn that the tool is missing.
    """
    known = (*tools, *BUILTIN_TOOLS)
    for spec in specs:
        for name in spec.tools:
            if ":" not in name and name not in known:
                raise Unusable(
                    f"the agent {spec.name!r} names a tool {name!r}, and there is no such built-in "
                    f"tool{did_you_mean(name, known)}",
                    hint="hand the function itself, decorated with @holdfast.tool, or name it as "
                    "module:function",
                )


def _with_delegates(agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents in their order, then the agents that they delegate to."""
    known: dict[str, Agent] = {}
    for agent in agents:
        if known.setdefault(agent.name, agent) is not agent:
            raise Unusable(
                f"two agents are called {agent.name!r}", hint="give one of them another name"
            )
    found = list(agents)
    for agent in found:  # the list grows during the loop
        if isinstance(agent.tools, str) or isinstance(agent.delegates, str | Agent):
            raise Unusable(
                f"the agent {agent.name!r} has one where a list must be",
                hint="write tools=[...] and delegates=[...]",
            )
        for each in agent.delegates:
            if isinstance(each, str):
                continue
            if known.setdefault(each.name, each) is not each:
                raise Unusable(
                    f"two agents are called {each.name!r}", hint="give one of them another name"
                )
            if not any(each is one for one in found):
                found.append(each)
    return found


def _named(tool: Any, tools: dict[str, Tool]) -> str:
    if isinstance(tool, str):
        return tool
    if not hasattr(tool, "definition"):
        raise Unusable(
            f"{tool!r} is no tool", hint="decorate it with @holdfast.tool, or name a built-in tool"
        )
    name: str = tool.definition.name
    if tools.setdefault(name, tool) is not tool:
        raise Unusable(
            f"two tools are called {name!r}",
            hint="give one of them another name with @holdfast.tool(name=...)",
        )
    return name


def open(path: str | PathLike[str] | None = None, *, agents: Sequence[Agent] = ()) -> Home:  # noqa: A001  # holdfast.open
    """
    Open the home at `path` (else $HOLDFAST_HOME, else ~/.holdfast). It is created if it does not
    exist.

    `agents` are added to those in the home's settings; the first is the default.
    """
    specs, tools, models = specs_from_agents(agents)
    folder = home_path(None if path is None else a_path(path, what="path"))
    return Home(
        lambda: open_service(folder, agents=specs, tools=tools, models=models, lasting=True)
    )
