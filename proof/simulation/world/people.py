"""
The people of a simulation: they write, answer, cancel, set reminders, stop jobs and give up
waiting. They ask a server or run a command of their own.

`Told` keeps the answers that they received and may rely on; `judge.py` compares it with the final
state.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

from holdfast.errors import Busy, Fenced, HoldfastError, InDoubt, Refused, Untrusted, Unusable
from holdfast.ids import SessionId
from holdfast.runtime.jobs.verbs import Viewer, cancel_job, list_jobs
from holdfast.runtime.reminders import ReminderRequest
from holdfast.runtime.reports.types import ApprovalReport, ReminderReport
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource
from proof.simulation.home import Gone, SimulatedHome, a_command
from proof.simulation.kinds import Has, sessions_of
from proof.simulation.world.model import soon

NAMES = ("alice", "bob", "carol")
THINGS_EACH = (
    3  # actions of a person: enough for turns to meet, few enough for a thousand runs a minute
)
STORM_SECONDS = 25.0
TRIES_MAX = 12


class AcknowledgedReplies:
    """Answers that people received and may rely on."""

    def __init__(self) -> None:
        self.inputs: dict[tuple[SessionId, str], str] = {}  # (session, dedup): text
        self.answers: dict[str, tuple[str, str]] = {}  # approval: (answer id, option)
        self.refused: set[str] = set()  # answer ids that were refused at the first try
        self.reminders: dict[str, SessionId] = {}  # created ones, with their session


class People:
    def __init__(self, home: SimulatedHome) -> None:
        self.home = home
        self.told = AcknowledgedReplies()

    @property
    def _dice(self) -> Any:
        return self.home.chaos.dice

    async def live(self, name: str) -> None:
        for number in range(THINGS_EACH):
            await asyncio.sleep(self._dice.uniform(0, STORM_SECONDS / THINGS_EACH))
            session, roll = self._session_for(name), self._dice.random()
            if roll < 0.55:
                await self._send(name, session, number)
            elif roll < (0.7 if Has.REMINDERS in self.home.kind else 0.8):
                await self._answer_something(name, f"{name}-{number}")
            elif roll < 0.93:
                await self._look_after(name, session)
            else:
                await self.once(lambda service: service.compact(session))  # noqa: B023  # awaited before the next

    def _session_for(self, name: str) -> SessionId:
        """Return usually their own session, if they have one."""
        names = sessions_of(self.home.kind)
        own = SessionId(f"notes/{name}")
        return own if own in names and self._dice.random() < 0.7 else self._dice.choice(names)

    async def _look_after(self, name: str, session: SessionId) -> None:
        """Create or stop a reminder or a job; otherwise cancel a turn."""
        roll = self._dice.random()
        if Has.REMINDERS in self.home.kind and roll < 0.7:
            await (self._remind(name, session) if roll < 0.5 else self._cancel_reminder(name))
        elif Has.JOBS in self.home.kind and roll < 0.85:
            await self._cancel_job(name)
        else:
            may_all = self._dice.random() < 0.3
            await self.once(lambda service: service.cancel(session, by=name, may_all=may_all))

    # --- requests

    async def _asked_of_somebody(self, work: Any) -> Any:
        """Ask a server, or run a command of one's own."""
        servers = self.home.servers()
        if servers and self._dice.random() < 0.5:
            return await self._dice.choice(servers).ask(work)
        async with a_command(self.home) as process:
            return await process.ask(work)

    async def once(self, work: Any) -> Any:
        try:
            return await self._asked_of_somebody(work)
        except (HoldfastError, Gone):
            return None

    async def persist(self, work: Any) -> tuple[Any, HoldfastError | None, int]:
        """
        Repeat the work, as a client with a key does, until there is a lasting answer. Return the
        answer and the number of tries.
        """
        for tries in range(1, TRIES_MAX + 1):
            try:
                return await self._asked_of_somebody(work), None, tries
            except (Gone, Busy, InDoubt, Fenced):
                await asyncio.sleep(self._dice.uniform(0, 4))
            except (Refused, Untrusted, Unusable) as exc:
                return None, exc, tries
        return None, None, TRIES_MAX

    # --- messages and answers

    async def _send(self, name: str, session: SessionId, number: int) -> None:
        key, source = f"{name}-{number}", _source(name, self._dice, self.home.kind)
        text = self._dice.choice(("do it", "do more", "yes"))
        if Has.MEMORY in self.home.kind:
            # The words let memory find something, and one of them identifies the search.
            text = f"the service {tag(key)}"
        wait = self._dice.random() < 0.6
        report, _, _ = await self.persist(
            lambda service: service.send(
                session, Incoming(text=text, source=source, dedup=key), wait=wait
            )
        )
        if report is not None and (report.error is None or report.error.code != "answer_word"):
            self.told.inputs[session, key] = text

    async def _answer_something(self, name: str, answer: str) -> None:
        everything = self._dice.random() < 0.25  # somebody who has not seen that it is answered
        waiting: Any = await self.once(lambda service: service.approvals(everything=everything))
        if not waiting:
            return
        asked: ApprovalReport = self._dice.choice(waiting)
        by = (
            self._dice.choice(asked.may_answer)
            if asked.may_answer and self._dice.random() < 0.8
            else name
        )
        option = self._dice.choice((*asked.options, "approve_once", "yes"))
        digest = asked.digest if self._dice.random() < 0.9 else "another"
        arguments = {"what": "b"} if option == "edit" else None
        wait = self._dice.random() < 0.6

        def work(service: Service) -> Any:
            return service.answer(
                asked.id,
                option,
                by=by,
                digest=digest,
                arguments=arguments,
                answer_id=answer,
                reason="because",
                wait=wait,
            )

        report, refusal, tries = await self.persist(work)
        if report is not None:
            self.told.answers[asked.id] = answer, option
        elif refusal is not None and refusal.code != "voided" and tries == 1:
            self.told.refused.add(answer)

    # --- reminders and jobs

    async def _remind(self, name: str, session: SessionId) -> None:
        def work(service: Service) -> Awaitable[ReminderReport]:
            wanted = self._wanted()
            source = MessageSource.local(name)
            incoming = Incoming(text=wanted.text, kind="reminder", source=source)
            return service.reminders.set(session, wanted, incoming)

        report, _, _ = await self.persist(work)
        if report is not None:
            self.told.reminders[report.id] = session

    def _wanted(self) -> ReminderRequest:
        """
        Use another text for each try. There is no key here, so a try without an answer may have set
        one too.
        """
        at, every = (
            (soon(self._dice.uniform(1, 20)), None) if self._dice.random() < 0.7 else (None, "1m")
        )
        return ReminderRequest(
            text=f"again {self._dice.randrange(10**9)}",
            at=at,
            every=every,
            may_prompt=self._dice.random() < 0.5,
        )

    async def _cancel_reminder(self, name: str) -> None:
        standing: Any = await self.once(lambda service: service.reminders.list())
        if standing:
            chosen = self._dice.choice(standing).id
            await self.once(lambda service: service.reminders.cancel(chosen, by=name))

    async def _cancel_job(self, name: str) -> None:
        reader_set = Viewer.local(name, may_all=self._dice.random() < 0.7)
        running: Any = await self.once(lambda service: list_jobs(service.runtime, reader_set))
        if running:
            chosen = self._dice.choice(running).id
            await self.once(lambda service: cancel_job(service.runtime, chosen, reader_set))


def tag(key: str) -> str:
    """Return a message's key as one word."""
    return key.replace("-", "")


def _source(name: str, dice: Any, kind: frozenset[Has]) -> MessageSource | None:
    roll = dice.random()
    if roll < (0.55 if Has.MEMORY in kind else 0.7):
        return MessageSource.local(name)
    if roll < 0.85:
        return MessageSource.team(name, "ops")
    return MessageSource.automation(name, channel="webhook") if roll < 0.95 else None
