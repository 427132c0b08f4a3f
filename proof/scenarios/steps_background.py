"""Steps beside a turn: reminders, jobs, compaction, deliveries."""

from datetime import UTC
from typing import cast

import msgspec

from holdfast.ids import CallId, JobId, ReminderId, TurnId, reminder_id
from holdfast.session.authority.context import LostContext, MessageSource
from holdfast.session.commands import (
    CancelJob,
    CancelReminder,
    CloseInstance,
    EndJob,
    FireReminders,
    MarkDelivery,
    QueueDelivery,
    RecordCompaction,
    ReportEndedJob,
    SetReminder,
)
from holdfast.session.events import JobOutcome
from holdfast.session.features.reminders.schedule import Cron, Every, Once, Schedule
from holdfast.session.results import ReminderStanding
from proof.scenarios.pure_session import INSTANCE, Stored, replay
from proof.scenarios.steps_reading import source_of, span_ms
from proof.scenarios.telling import Telling


class BackgroundSteps(Telling):
    # --- reminders

    def step_remind(
        self, text: str, by: str = "alice", call: str = "", prompts: str = "no", **when: str
    ) -> None:
        """
        `in=10m` once, `every=1h`, or `cron="0 9 * * *"` in UTC. `prompts=yes` lets its prompts
        reach the creator. `call=c1`: a tool's call sets it.
        """
        if "in" in when:
            schedule: Schedule = Once(self.pure.now + span_ms(when["in"]))
        else:
            schedule = (
                Every(span_ms(when["every"]) // 1000, 0)
                if "every" in when
                else Cron(when["cron"], "UTC")
            )
        command = SetReminder(
            reminder=reminder_id(
                INSTANCE, self._words.real(call) if call else f"{len(self.pure.records)}"
            ),
            text=text,
            schedule=schedule,
            zone=UTC,
            may_prompt=prompts == "yes",
            source=None if call else source_of(by, when.get("quote")),
            turn=self._turn_of(call) if call else None,
            call=CallId(self._words.real(call)) if call else None,
            agent="ops",
            model="demo",
        )
        outcome = self._do(command).decided[-1]
        if isinstance(outcome.outcome, ReminderStanding) and not outcome.events:
            self._said.append(f"{self._words.name(outcome.outcome.reminder)} was set before")

    def step_fire(self) -> None:
        """Turn due reminders into inputs, as any process may."""
        before = len(self.pure.records)
        self._do(FireReminders(zones={"UTC": UTC}))
        if len(self.pure.records) == before:
            self._said.append("nothing is due")

    def step_unremind(self, reminder: str, by: str = "alice", reader_set: str = "") -> None:
        audience, _, boundary = reader_set.partition("/")
        command = CancelReminder(
            reminder=ReminderId(self._words.real(reminder)),
            by=by,
            reader_set=(audience, boundary) if reader_set else None,
        )
        committed = self._do(command)
        if committed.decided[-1].outcome and not committed.events:
            self._said.append(f"{reminder} {committed.decided[-1].outcome}")

    def step_inputs(self) -> None:
        """Show the queued inputs literally."""
        for each in self.pure.state.queued:
            self._said.extend(f"  {each.input}: {line}" for line in each.text.split("\n") if line)

    # --- jobs

    def step_job_ends(self, job: str, outcome: str = "ok", text: str = "dug") -> None:
        """A process finds out how the job ended."""
        committed = self._do(
            EndJob(job=JobId(self._words.real(job)), outcome=cast(JobOutcome, outcome), text=text)
        )
        if committed.decided[-1].outcome == "dropped":
            self._said.append(f"the end of {job} is known, or nobody knows {job}")

    def step_report_job(self, job: str) -> None:
        self._do(ReportEndedJob(job=JobId(self._words.real(job))))

    def step_cancel_job(self, job: str, by: str = "alice") -> None:
        """Cancel with the audience that a message of this person would have."""
        source = source_of(by, None) or MessageSource.none()
        self._do(
            CancelJob(
                job=JobId(self._words.real(job)),
                by=source.person or "nobody",
                audience=source.audience,
                boundary=source.boundary,
            )
        )

    def step_jobs(self) -> None:
        for job in self.pure.state.jobs.values():
            context = job.context
            whose = (
                f"lost: {context.reason}"
                if isinstance(context, LostContext)
                else f"{context.requester} {context.boundary} {context.interactive}"
            )
            self._said.append(
                f"  {self._words.name(job.job)} {job.tool} {'ended' if job.ended else 'runs'}, for "
                f"{whose}"
            )
        for name, over in self.pure.state.ended_jobs.items():
            self._said.append(
                f"  {self._words.name(name)} is over: {over.outcome}"
                + (f" ({over.code})" if over.code else "")
            )

    def step_damage_job(self, field: str) -> None:
        """
        Remove a field from the context of the last record, which is a job's. Everything else is
        genuine, as if somebody with the key had written it.
        """
        last = self.pure.records.pop()
        body = msgspec.json.decode(last.body)
        del body["context"][field]
        self.pure.records.append(
            Stored(last.type, last.version, msgspec.json.encode(body), last.at)
        )
        self.pure.state = replay(self.pure.records)

    def step_new_instance(self) -> None:
        """Treat open work as unseal, fork or restore does."""
        self._do(CloseInstance(by="alice", reason="carried over"))

    # --- compaction, deliveries

    def step_compact(
        self,
        turns: str,
        summary: str,
        compactions: str = "",
        before: str = "1000",
        after: str = "10",
    ) -> None:
        """`before=` and `after=` are tokens."""
        number = int(compactions) if compactions else self.pure.state.compactions
        committed = self._do(
            RecordCompaction(
                summary=summary,
                turns=int(turns),
                compactions=number,
                tokens_before=int(before),
                tokens_after=int(after),
                trigger="overflow",
            )
        )
        if (outcome := committed.decided[-1].outcome) not in (None, "compacted"):
            self._said.append(str(outcome))

    def step_deliver(self, text: str, turn: str, part: str = "1") -> None:
        self._do(
            QueueDelivery(turn=TurnId(turn), channel="slack", part=part, kind="reply", text=text)
        )

    def step_delivery(self, became: str) -> None:
        for delivery in list(self.pure.state.deliveries):
            self._do(MarkDelivery(delivery=delivery, became=became))
