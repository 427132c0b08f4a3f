"""
Judge a simulation: every journal against every promise of `checkers/promises.py` and
`checkers/history.py`, against the answers that people received, and against the world's memory.

The world's memory is the better witness: which tools had an effect and as whom, which jobs ran and
how they ended, which messages arrived, which memory was searched and shown to a model.
`world/children.py` judges delegates, jobs and reminders; `world/recall.py` judges memory.
"""

from collections import Counter
from typing import NamedTuple

import msgspec

from holdfast.adapters.inmemory import InMemoryStore
from holdfast.errors import Untrusted
from holdfast.ids import SessionId, TurnId
from holdfast.journal.verify import Verdict
from holdfast.ports.journal_store import Record
from holdfast.runtime.ledger.home_ledger import HomeLedger
from proof.checkers.history import History, check_history
from proof.checkers.states import PromiseBroken, hold
from proof.simulation.home import SimulatedHome, bodies
from proof.simulation.kinds import ONLY_BELOW
from proof.simulation.simulator import Lived
from proof.simulation.world.children import check_delegates, check_jobs, check_reminders
from proof.simulation.world.people import AcknowledgedReplies
from proof.simulation.world.recall import check_memory
from proof.simulation.world.tools import HAVE_EFFECTS

_NEVER_AFTER_AN_EDIT = frozenset(
    {
        "input_accepted",
        "model_answered",
        "tool_started",
        "approval_answered",
        "delegate_started",
        "job_submitted",
        "reminder_set",
    }
)


class Edited(NamedTuple):
    """An outsider's change: the changed record, and the number of records."""

    session: SessionId
    seq: int
    records: int


class Judge:
    def __init__(
        self, home: SimulatedHome, told: AcknowledgedReplies, edited: Edited | None
    ) -> None:
        self.home = home
        self.told = told
        self.edited = edited

    async def _disbelieved_until(self) -> int:
        """The time up to which a person said that the clock was ahead."""
        home = HomeLedger(InMemoryStore(self.home.disk))
        try:
            return (await home.refresh()).disbelieved_until
        finally:
            await home.close()

    async def lived(self, seed: int) -> Lived:
        """Return a summary if every promise was kept."""
        if self.home.broken:
            raise PromiseBroken(self.home.broken[0])
        histories: dict[SessionId, History] = {}
        disbelieved_until = await self._disbelieved_until()
        for session in self.home.sessions():
            if self.edited is not None and session == self.edited.session:
                await self._check_edited(self.edited)
            else:
                records = await self.home.records(session)
                histories[session] = _checked(session, self.home, records, disbelieved_until)
        for session, history in histories.items():
            self._check_acknowledged(session, history)
            self._check_world(session, history)
            check_reminders(
                history, {name for name, where in self.told.reminders.items() if where == session}
            )
            check_jobs(history, self.home.jobs)
        check_delegates(self.home, histories)
        check_memory(self.home, histories)
        hold(
            "A4",
            all(each.tool != ONLY_BELOW for each in self.home.ran),
            f"a delegate ran {ONLY_BELOW}, which nobody above it has",
        )
        hold("T1", not self.home.disk.home.seal, "the home's own journal is sealed")
        return self._counted(seed, list(histories.values()))

    def _counted(self, seed: int, histories: list[History]) -> Lived:
        records, turns = (
            sum(len(each.entries) for each in histories),
            sum(each.state.turns_ended for each in histories),
        )
        starts = sum(len(each.of("tool_started")) for each in histories)
        return Lived(
            seed,
            records,
            turns,
            starts,
            self.home.deaths,
            effects=len(self.home.ran),
            faults=self.home.chaos.faults,
        )

    def _check_acknowledged(self, session: SessionId, history: History) -> None:
        """D1, D2: every acknowledged item is in the journal exactly once."""
        accepted = Counter(
            (each.body.get("dedup"), each.body["text"]) for each in history.of("input_accepted")
        )
        hold(
            "D2",
            all(count == 1 for count in accepted.values()),
            f"{session}: taken in twice: {accepted}",
        )
        for (where, key), text in self.told.inputs.items():
            hold(
                "D1",
                where != session or accepted[key, text] == 1,
                f"{session}: {key} was acknowledged, and is not there",
            )
        asked = {each.body["approval"] for each in history.of("approval_requested")}
        answered = {
            each.body["approval"]: (each.body["answer_id"], each.body["option"])
            for each in history.of("approval_answered")
        }
        for approval, answer in self.told.answers.items():
            hold(
                "D1",
                approval not in asked or answered.get(approval) == answer,
                f"{session}: the answer {answer} was acknowledged, and is not there",
            )
        # An answer that was taken is reported as refused only if its call was closed before it
        # could start.
        closed = {each.body["approval"] for each in history.of("approval_closed")}
        started = {each.body["call"] for each in history.of("tool_started")}
        wrong = self.told.refused & {
            each.body["answer_id"]
            for each in history.of("approval_answered")
            if each.body["approval"] not in closed or each.body["call"] in started
        }
        hold("P2", not wrong, f"{session}: refused, and there: {wrong}")
        taken = {name for each in history.of("turn_started") for name in each.body["inputs"]}
        dropped = {each.body["input"] for each in history.of("input_dropped")}
        missing = [
            each.body["input"]
            for each in history.of("input_accepted")
            if each.body["input"] not in taken | dropped
        ]
        hold("T7", not missing, f"{session}: accepted, and never taken up: {missing}")

    def _check_world(self, session: SessionId, history: History) -> None:
        """T2, A1: which tools ran, how often and as whom, and which messages arrived."""
        mine = [each for each in self.home.ran if each.session == session]
        contracts = {
            each.body["call"]: each.body.get("contract", "once")
            for each in history.of("tool_started")
        }
        for call, count in Counter(each.call for each in mine).items():
            hold(
                "T2",
                contracts[call] != "once" or count == 1,
                f"{session}: {call} had its effect {count} times",
            )
        contexts = {
            TurnId(each.body["turn"]): each.body["context"] for each in history.of("input_accepted")
        }
        for each in mine:
            context = contexts[TurnId(each.turn)]
            shown = (each.requester, each.audience, each.boundary)
            hold(
                "A1",
                shown == (context["requester"], context["audience"], context["boundary"]),
                f"{session}: {each} ran under another authority",
            )
        jobs = {each.body["call"] for each in history.of("job_submitted")}
        worldly = {
            each.body["call"]
            for each in history.of("tool_started")
            if each.body["tool"] in HAVE_EFFECTS
        } - jobs
        for body in (
            each.body for each in history.of("call_finished") if each.body["call"] in worldly
        ):
            happened = any(each.call == body["call"] for each in mine)
            hold(
                "T5",
                body["outcome"] != "ok" or body.get("code") or happened,
                f"{session}: {body['call']} is ok, and never happened",
            )
        for confirmed in (entry.body["delivery"] for entry in history.of("delivery_confirmed")):
            hold(
                "T2",
                self.home.arrived[confirmed] == 1,
                f"{session}: {confirmed} is confirmed, and arrived {self.home.arrived[confirmed]} "
                "times",
            )

    async def _check_edited(self, edited: Edited) -> None:
        """
        L4, D4: the change is found at the next open, the session is sealed, and nothing acts on it.
        """
        session = edited.session
        sealed = True
        try:
            await self.home.records(session)
            sealed = self.home.disk.living(session).seal is not None
        except Untrusted:
            pass
        hold("D4", sealed, f"{session}: record {edited.seq} was changed, and nobody noticed")
        since = self.home.disk.living(session).entries[edited.records :]
        acted = [
            kind
            for each in since
            if (kind := msgspec.json.decode(each.header)[4]) in _NEVER_AFTER_AN_EDIT
        ]
        hold(
            "L4", not acted, f"{session}: after record {edited.seq} was changed, there came {acted}"
        )


def _checked(
    session: SessionId, home: SimulatedHome, records: list[Record], disbelieved_until: int
) -> History:
    stored = home.disk.living(session)
    hold("L7", stored.seal is None, f"{session}: a false accusation: {stored.seal}")
    verdict = Verdict(
        session=session,
        verdict="holds",
        records=len(records),
        at_seq=None,
        segment=None,
        byte=None,
        sealed=False,
        detail=None,
    )
    history = check_history(
        verdict, session, stored.instance, records, disbelieved_until=disbelieved_until
    )
    dedups = Counter(
        (each["context"]["requester"], each["dedup"])
        for each in bodies(records, "input_accepted")
        if each.get("dedup")
    )
    hold(
        "D2",
        all(count == 1 for count in dedups.values()),
        f"{session}: a key is taken in twice: {dedups}",
    )
    return history
