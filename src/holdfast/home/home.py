"""
The library's entry point: a home, its sessions, and the verbs, with the field names of `--json`.

    async with holdfast.open("./state", agents=[ops]) as home:
        turn = await home.send("ops/api", "restart_service service=api", source=alice)
"""

from collections.abc import Sequence
from datetime import datetime
from os import PathLike
from typing import Any

from holdfast.argument_checks import (
    asking,
    check_cursor,
    check_flag,
    check_path_text,
    check_source,
    check_workspace,
    require_consenting_person,
    texts,
    viewer_from_source,
)
from holdfast.assembly.home_path import home_path
from holdfast.assembly.service import open_service
from holdfast.errors import HoldfastError, NotSaved, Refused, Untrusted, Unusable
from holdfast.home.agents import Agent, specs_from_agents
from holdfast.home.loop_verbs import HomeLoops
from holdfast.home.opened import verb
from holdfast.ids import ApprovalId, GrantId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.ports.tools import Tool
from holdfast.runtime.jobs.reports import JobReport
from holdfast.runtime.reminders import ReminderRequest
from holdfast.runtime.reports.grants import GrantReport
from holdfast.runtime.reports.session_list import SessionLine
from holdfast.runtime.reports.types import (
    AnswerReport,
    ApprovalReport,
    ErrorReport,
    ReminderReport,
    SessionReport,
    TurnReport,
)
from holdfast.runtime.streams.feed import Heard
from holdfast.runtime.streams.in_flight import Follower
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource

Approval = ApprovalReport
Turn = TurnReport
Answer = AnswerReport
Grant = GrantReport
Session = SessionReport
Reminder = ReminderReport
Job = JobReport
Followed = Record | Heard


class Home(HomeLoops):
    """An open home. Created by `holdfast.open`; use it as an async context manager."""

    @verb
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
        folder = check_workspace(workspace)
        checked = None if source is None else check_source(source)
        return await self.service.send(
            session,
            Incoming(
                text=text, source=checked, agent=agent, model=model, dedup=dedup, workspace=folder
            ),
            wait=wait,
        )

    @verb
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
                f"{approval!r} is not an approval",
                code="malformed",
                hint="answer the one that was seen: turn.approvals, or await home.approval(ID)",
            )
        texts({"option": option}, {"reason": reason, "answer_id": answer_id})
        by = check_source(by)
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

    @verb
    async def approval(self, id: str) -> Approval:  # noqa: A002  # the field's name
        """One prompt, open or closed, to show and to answer."""
        texts({"id": id}, {})
        return await self.service.approval(ApprovalId(id))

    @verb
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
        return self._in_flight.follow(self.service.follow(session, after=check_cursor(after)))

    @verb
    async def cancel(
        self, session: str, *, by: MessageSource, turn: str | None = None
    ) -> tuple[Turn, ...]:
        """
        End the running turn, or the named one. Started calls end with their real outcome or in
        doubt. Only the requester and an operator may cancel.
        """
        texts({"session": session}, {"turn": turn})
        by = check_source(by)
        operator = by.principal == "operator"
        turns = await self.service.cancel(
            session,
            by=asking(by, may_all=operator),
            turn=TurnId(turn) if turn else None,
            may_all=operator,
        )
        await self.service.drive_above(session)
        return turns

    @verb
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

    @verb
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
        wanted = ReminderRequest(
            text=text,
            at=moment,
            every=every,
            cron=cron,
            time_zone=time_zone,
            may_prompt=check_flag(may_prompt, what="may_prompt"),
        )
        return await self.service.reminders.set(
            session,
            wanted,
            Incoming(
                text=wanted.text,
                kind="reminder",
                source=check_source(source),
                agent=agent,
                model=model,
                workspace=check_workspace(workspace),
            ),
        )

    @verb
    async def reminders(self) -> tuple[Reminder, ...]:
        """Return the active reminders of all sessions, the next one first."""
        return await self.service.reminders.list()

    @verb
    async def cancel_reminder(self, reminder: str, *, by: MessageSource) -> Reminder:
        texts({"reminder": reminder}, {})
        by = check_source(by)
        operator = by.principal == "operator"
        return await self.service.reminders.cancel(
            reminder, by=asking(by, may_all=operator), may_all=operator
        )

    @verb
    async def grants(self) -> tuple[Grant, ...]:
        """
        Return the remembered approvals that have not expired. `counts` says whether policy lets
        each count at present; `covers` describes the calls that it covers.
        """
        return await self.service.grants()

    @verb
    async def revoke(self, grant: str, *, by: MessageSource) -> None:
        """
        Revoke a remembered approval; its requester and its giver may. The next call asks again.
        """
        texts({"grant": grant}, {})
        by = check_source(by)
        system = by.principal == "system"
        await self.service.revoke(GrantId(grant), by=asking(by, may_all=system), may_all=system)

    @verb
    async def jobs(
        self, session: str | None = None, *, by: MessageSource, everything: bool = False
    ) -> tuple[Job, ...]:
        """
        Return the running jobs of the same audience and boundary. With `everything`, also those
        that ended recently.
        """
        texts({}, {"session": session})
        return await self.service.jobs.list(
            viewer_from_source(by), session=session, everything=everything
        )

    @verb
    async def job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        """
        Return one job and, once it has ended, its result. A job of another audience or boundary is
        reported as unknown.
        """
        texts({"id": id}, {})
        return await self.service.jobs.show(id, viewer_from_source(by))

    @verb
    async def cancel_job(self, id: str, *, by: MessageSource) -> Job:  # noqa: A002  # the field's name
        """Stop a job. The request is durable before anything is ended."""
        texts({"id": id}, {})
        return await self.service.jobs.cancel(id, viewer_from_source(by))

    @verb
    async def session(self, session: str) -> Session:
        """
        Return the session's state: its phase, the work it owes, whether it is sealed, and the files
        of its journal.
        """
        texts({"session": session}, {})
        return await self.service.show(session)

    def know(self, *tools: Tool, agent: str | None = None) -> None:
        """
        Give an agent tools that were not known when the home was opened, such as those of an MCP
        server. A tool that was added before is replaced by one of the same name.

        `agent` is the default agent if it is not named.
        """
        texts({}, {"agent": agent})
        for each in tools:
            if not all(hasattr(each, part) for part in ("definition", "validate", "bind")):
                raise Unusable(
                    f"{each!r} is not a tool",
                    code="malformed",
                    hint="hand in holdfast.SchemaTool(...) or a function with @holdfast.tool",
                )
        self.service.live.add_tools(tools, agent)

    @verb
    async def sessions(self) -> tuple[SessionLine, ...]:
        """All sessions of this home, sorted, with their state."""
        return await self.service.sessions()


def open(path: str | PathLike[str] | None = None, *, agents: Sequence[Agent] = ()) -> Home:  # noqa: A001  # holdfast.open
    """
    Open the home at `path` (else $HOLDFAST_HOME, else ~/.holdfast). It is created if it does not
    exist.

    `agents` are added to those in the home's settings; the first is the default.
    """
    specs, tools, models = specs_from_agents(agents)
    folder = home_path(None if path is None else check_path_text(path, what="path"))
    return Home(lambda: open_service(folder, agents=specs, tools=tools, models=models))
