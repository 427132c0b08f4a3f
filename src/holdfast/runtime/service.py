"""
The verbs: send, answer, cancel, resume, follow, list. What the library, the commands and the gateway all call.

A verb appends what was asked for, durably, and then sees to it that somebody drives: this process if it can, else whoever does. It returns when its turn has ended
or paused. Nothing here decides anything about a turn; that is `session/`. Nothing here remembers anything that the journal does not.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Self

import msgspec

from holdfast.errors import Busy, CannotDrive, HoldfastError, Refused, Untrusted, Unusable
from holdfast.ids import ApprovalId, GrantId, ReminderId, SessionId, TurnId, session_id
from holdfast.ports.journal_store import Check, Draft, Record
from holdfast.ports.tools import InvalidArguments
from holdfast.runtime import listing, reminding
from holdfast.runtime.answered_before import refuse_another
from holdfast.runtime.attempt import finish
from holdfast.runtime.compactor import CompactionReport, Compactor
from holdfast.runtime.delegating import Delegation, refuse_delegates_name
from holdfast.runtime.driver import Driver, Until, the_one, why_not
from holdfast.runtime.feed import Feed
from holdfast.runtime.following import follow_session, wait_for
from holdfast.runtime.foreign import ForeignTurn
from holdfast.runtime.granting import proposed_grant
from holdfast.runtime.home_ledger import HomeLedger
from holdfast.runtime.jobs import JobKeeper
from holdfast.runtime.ledger import Ledger
from holdfast.runtime.looking import tool_for
from holdfast.runtime.minting import new_instance
from holdfast.runtime.outbox import owed_by
from holdfast.runtime.recalling import remembers
from holdfast.runtime.reports import (
    AnswerReport,
    ApprovalReport,
    ErrorReport,
    GrantReport,
    ReminderReport,
    SessionReport,
    TurnReport,
    grant_report,
)
from holdfast.runtime.secrecy import Secrecy
from holdfast.runtime.shelf import Shelf
from holdfast.runtime.telling import session_report, turn_report
from holdfast.runtime.world import World
from holdfast.session.authority import MessageSource, Workspace
from holdfast.session.codec import encode
from holdfast.session.commands import (
    AcceptInput,
    AnswerApproval,
    Cancel,
    CancelReminder,
    Expire,
    GiveModel,
    MarkDelivery,
    QueueDelivery,
    StartModelCall,
    StartTurn,
)
from holdfast.session.decide_answers import Answered
from holdfast.session.decide_inputs import Accepted, Duplicate, OnlyAnAnswerWord
from holdfast.session.decide_life import delivery_id
from holdfast.session.events import InputKind, SessionBorn
from holdfast.session.evolve import find_turn
from holdfast.session.home_events import GrantActivated, GrantDropped
from holdfast.session.react import FIRST_TURN, is_wanted, owes_report, react, unsettled
from holdfast.session.state import CallStatus, Delegate, Phase, SessionState

HTTP_CHANNEL = "http"

_log = logging.getLogger("holdfast.service")


class Service:
    """One per open home. An async context manager: leaving it stops what it drives, gracefully."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.feed = Feed()
        self.home = HomeLedger(world.store)
        self.shelf = Shelf(
            world.store,
            also=lambda before, events: owed_by(world.channels, before, events),
            on_sealed=lambda session, instance: listing.note_sealed(world, session, instance),
        )
        self.delegation = Delegation(world, self.shelf)
        self.jobs = JobKeeper(world, self.shelf, self.feed, self.drive_all)
        self._stack = AsyncExitStack()
        self._listener: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._listener = group.create_task(self._listen())
        self._keeper = group.create_task(self.jobs.run(group))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.jobs.leave(at_once=exc[0] is not None)
        for task in (self._listener, self._keeper):
            if task is not None:
                task.cancel()
        try:
            await self._stack.__aexit__(None, None, None)
        finally:
            await self.shelf.close()
            await self.home.close()
            self.world.index.close()
            if self.world.search is not None:
                self.world.search.close()
            if self.world.memory is not None:
                self.world.memory.close()
            await self.world.store.close()

    def _driver(self, ledger: Ledger) -> Driver:
        return Driver(self.world, ledger, self.home, self.feed, self.delegation)

    async def _listen(self) -> None:
        """Notices from anywhere wake whoever waits on that session in this process."""
        async with self.world.notifier.listen() as notices:
            async for session in notices:
                if (ledger := self.shelf.get(session)) is not None:
                    ledger.notice()
                self.jobs.notice(session)

    # --- send

    async def send(
        self,
        session: str,
        text: str,
        *,
        source: MessageSource | None,
        agent: str | None = None,
        model: str | None = None,
        dedup: str | None = None,
        workspace: Workspace | None = None,
        default_workspace: Workspace | None = None,
        kind: InputKind = "message",
        wait: bool = True,
    ) -> TurnReport:
        """Take a message in, durably, and drive its turn to its end or a pause."""
        name = session_id(session)
        self._refuse_secrets(text)
        await self._ensure(name, by=_who(source))
        async with self.shelf.use(name) as ledger:
            driver = self._driver(ledger)
            accept = self._accepting(ledger.state, text, source, agent, model, dedup, workspace, default_workspace, kind)
            accept = msgspec.structs.replace(accept, asked_below=await self._asked_below(ledger.state))
            claimed = wait and await self._try_claim_quietly(driver, accept)
            try:
                accepted = await self._accept(ledger, accept, claimed=claimed)
                if not isinstance(accepted, Accepted):
                    return await self._not_new(ledger, accepted, driver if claimed else None, wait=wait)
                return await self._see_through(ledger, driver, accepted.turn, claimed=claimed, wait=wait)
            finally:
                if wait:
                    await self._leave(ledger, driver)
                else:
                    self._hand_on(ledger)

    def _refuse_secrets(self, text: str, *, what: str = "message") -> None:
        if Secrecy(self.world.secrets).holds(text):
            raise Refused(f"the {what} holds a known secret, and was not kept", code="secret", hint="send it again without the secret")

    def _accepting(
        self,
        state: SessionState,
        text: str,
        source: MessageSource | None,
        agent: str | None,
        model: str | None,
        dedup: str | None,
        workspace: Workspace | None,
        default_workspace: Workspace | None,
        kind: InputKind,
    ) -> AcceptInput:
        """A session keeps the agent, the model and, for each person, the workspace it was last given."""
        person = source.person if source is not None else None
        spec = self.world.agent(agent or (state.agent if state.agent in self.world.agents else None))
        kept = state.model if state.agent == spec.name else None
        # Over HTTP it comes from the server's settings only, never from what a person's own machine was told.
        remembers = source is not None and source.channel != HTTP_CHANNEL
        remembered = state.workspaces.get(person) if person is not None and remembers else None
        return AcceptInput(
            text=text,
            source=source,
            agent=spec.name,
            model=kept if kept is not None and model is None else self.world.model(model or spec.model).name,
            policy=self.world.policy(),
            workspace=workspace or remembered or default_workspace,
            dedup=dedup,
            kind=kind,
        )

    async def _try_claim_quietly(self, driver: Driver, accept: AcceptInput) -> bool:
        """Claim before the message is in, so that one commit can take it in and start on it. Whatever hinders it is said later."""
        try:
            self.world.model(accept.model)
            if not await driver.claim():
                return False
        except (CannotDrive, Unusable):
            return False
        return True

    async def _accept(self, ledger: Ledger, accept: AcceptInput, *, claimed: bool) -> Any:
        commands: list[Any] = [Expire(), accept]
        epoch = ledger.epoch
        if claimed and epoch is not None and ledger.state.running is None and not remembers(self.world):
            following = f"t{ledger.state.inputs + 1}"
            commands += [StartTurn(epoch=epoch), StartModelCall(turn=TurnId(following), epoch=epoch, policy=accept.policy)]
        outcome = await (ledger.drive if claimed else ledger.commit)(*commands, check=Check.FENCE)
        self.world.notifier.notify(ledger.session)
        return outcome.decided[1].outcome

    async def _not_new(self, ledger: Ledger, known: Duplicate | OnlyAnAnswerWord, driver: Driver | None, *, wait: bool) -> TurnReport:
        report = await self._told(ledger, known.turn)
        if isinstance(known, OnlyAnAnswerWord):
            hint = f"holdfast approvals answer {known.approvals[0]} approve_once"
            told = ErrorReport("answer_word", "a plain word is no answer to a prompt; nothing was approved or replaced", hint)
            return msgspec.structs.replace(report, error=told)
        if wait and report.outcome in ("running", "queued"):
            own = driver or self._driver(ledger)
            return await self._see_through(ledger, own, known.turn, claimed=driver is not None, wait=True)
        return report

    async def create(self, session: str, *, by: str) -> None:
        """Bear a session of that name if there is none, so that it can be followed before its first message."""
        await self._ensure(session_id(session), by=by)

    async def _ensure(self, session: SessionId, *, by: str) -> None:
        if await self.world.store.current(session) is not None:
            return
        refuse_delegates_name(session)
        instance = new_instance()
        born = SessionBorn(session=session, instance=instance, origin="created", by=by)
        try:
            journal = await self.world.store.create(session, instance, [Draft(*encode(born))], origin="created", by=by)
        except Refused as exc:
            if exc.code != "exists":
                raise
        else:
            await journal.close()

    # --- seeing a turn through

    async def _see_through(self, ledger: Ledger, driver: Driver, turn: TurnId, *, claimed: bool, wait: bool) -> TurnReport:
        if not wait:
            return await turn_report(ledger, turn)
        await self._drive_turn(ledger, driver, turn, claimed=claimed)
        return await self._told(ledger, turn)

    async def _told(self, ledger: Ledger, turn: TurnId | None) -> TurnReport:
        """A turn as it stands; what its delegates ask people is what it waits for."""
        report = await turn_report(ledger, turn)
        open_turn = find_turn(ledger.state, turn) if turn is not None else None
        if open_turn is None or not open_turn.delegated:
            return report
        asked = (*report.approvals, *await self.delegation.prompts_below(open_turn))
        return msgspec.structs.replace(report, approvals=asked, outcome="waiting" if asked and open_turn.parked else report.outcome)

    async def _asked_below(self, state: SessionState) -> dict[TurnId, tuple[ApprovalId, ...]]:
        parked = [turn for turn in state.turns.values() if turn.delegated]
        return {turn.turn: tuple(each.id for each in await self.delegation.prompts_below(turn)) for turn in parked}

    async def _drive_turn(self, ledger: Ledger, driver: Driver, turn: TurnId, *, claimed: bool = False) -> None:
        """To its end, or to a pause that only a person ends: what its delegates can do without one is done."""
        await self._drive_until(ledger, driver, _over_or_parked(turn), claimed=claimed)
        if claimed and driver.owns_claim:  # over in the commit that took it in: nobody drove, and its end is still to be told
            await driver.deliver_owed()
        while await self._moved_below(ledger, turn):
            await self._drive_until(ledger, driver, _over_or_parked(turn))

    async def _moved_below(self, ledger: Ledger, turn: TurnId) -> bool:
        """Drive the delegates of a parked turn, side by side, as far as they come. True: one of them ended, and the turn may go on."""
        await self.delegation.settle_lost(ledger)
        before = find_turn(ledger.state, turn)
        if before is None or not before.delegated:
            return False
        children = [call.delegate for call in before.delegated if call.delegate is not None]
        try:
            async with asyncio.TaskGroup() as group:
                drives = [group.create_task(self._drive_below(child)) for child in children]
        except BaseExceptionGroup as errors:
            raise the_one(errors) from None
        await ledger.look()
        await self.delegation.settle_lost(ledger)
        after = find_turn(ledger.state, turn)
        if after is None or len(after.delegated) < len(before.delegated):
            return True
        if hindered := next((each.result() for each in drives if each.result() is not None), None):
            raise hindered
        return False

    async def _drive_below(self, child: Delegate) -> HoldfastError | None:
        """One delegate to its end or its pause. What hinders it is said by whoever waits for it, after its siblings had their chance."""
        try:
            async with self.shelf.use(child.session) as ledger:
                driver = self._driver(ledger)
                try:
                    await ledger.commit(Expire(), check=Check.FENCE)
                    await self._drive_turn(ledger, driver, FIRST_TURN)
                finally:
                    await self._leave(ledger, driver)
        except HoldfastError as exc:
            return exc
        return None

    async def _drive_up(self, ledger: Ledger) -> TurnReport | None:
        """After a delegate moved: drive on whoever waits for it, up to the request that a person made, and tell of that. None: it is nobody's delegate."""
        parent = ledger.state.parent
        if parent is None or await self.world.store.current(parent.session) != parent.instance:
            return None
        async with self.shelf.use(parent.session) as above:
            driver = self._driver(above)
            try:
                if above.journal.sealed is None and ledger.state.reported:
                    with suppress(CannotDrive):  # the delegate's own end stands; who has what the parent needs goes on
                        await self._drive_turn(above, driver, parent.turn)
                return await self._drive_up(above) or await self._told(above, parent.turn)
            finally:
                if above.journal.sealed is None:
                    await self._leave(above, driver)

    async def _drive_until(self, ledger: Ledger, driver: Driver, until: Until, *, claimed: bool = False) -> None:
        """
        Until it holds, drive if nobody does; else follow whoever does, trying the claim on each notice and every second.

        Raises CannotDrive when nobody drives and this process can't.
        """
        watch = ledger.watch()
        try:
            while not until(ledger.state):
                watch.clear()
                if claimed or (not ledger.driving and await driver.claim()):
                    claimed, before = False, ledger.state.seq
                    await self._drive(ledger, driver, until)
                    if ledger.state.seq != before:
                        continue  # else another drive at once would come no further either
                await wait_for(watch)
                if not ledger.driving:
                    await ledger.refresh()
        finally:
            ledger.unwatch(watch)

    async def _drive(self, ledger: Ledger, driver: Driver, until: Until) -> None:
        try:
            await driver.run(until)
        finally:
            await driver.give_up()
        for child in tuple(ledger.state.delegates.values()):
            if not is_wanted(ledger.state, child):
                await self._drive_below(child)  # it was cancelled, and ends once what it had started has
        # Whoever gives up looks once more: what came in between the last look and the release is told to all.
        await ledger.look()
        if react(ledger.state):
            self.world.notifier.notify(ledger.session)

    async def _leave(self, ledger: Ledger, driver: Driver) -> None:
        """On every way out: the claim is given up, the anchor is durable, the index knows, followers are told."""
        if ledger.newer is not None or ledger.journal.sealed is not None or ledger.attempt.stopped is not None:
            return
        if ledger.driving and ledger.attempt.epoch is not None and driver.owns_claim:
            await driver.give_up()
        syncing = asyncio.create_task(ledger.journal.sync_anchor())
        try:
            await asyncio.sleep(0)  # it is on its way; the index is written meanwhile
            listing.note(self.world, ledger)
            self.world.notifier.notify(ledger.session)
        finally:
            await finish(syncing)
        await ledger.keep_snapshot_if_due()

    def _hand_on(self, ledger: Ledger) -> None:
        """After an append that somebody else drives on: it is durable already, and the anchor may lag. The index knows."""
        if ledger.journal.sealed is None and ledger.attempt.stopped is None:
            listing.note(self.world, ledger)

    # --- answer

    async def answer(
        self,
        approval: ApprovalId,
        option: str,
        *,
        by: str,
        digest: str | None = None,
        reason: str | None = None,
        arguments: Any = None,
        answer_id: str | None = None,
        asserted_by: str | None = None,
        wait: bool = True,
    ) -> AnswerReport:
        """Record an answer, durably, and drive the turn on. A refused one is raised; the prompt stays as it was."""
        session = await listing.session_of(self.world, self.shelf, approval)
        if session is None:
            raise Refused(f"there is no approval {approval}", code="unknown", hint="`holdfast approvals list` shows what waits")
        edited = msgspec.json.encode(arguments).decode() if arguments is not None else None
        self._refuse_secrets(reason or "", what="answer")
        self._refuse_secrets(edited or "", what="answer")
        command = AnswerApproval(
            approval=approval,
            option=option,
            by=by,
            answer_id=answer_id or "r-" + secrets.token_hex(16),
            digest=digest,
            reason=reason,
            arguments=edited,
            asserted_by=asserted_by,
        )
        async with self.shelf.use(session) as ledger:
            driver = self._driver(ledger)
            try:
                if await self.delegation.stop_if_unwanted(ledger):
                    await self.delegation.report(ledger)
                answered = await self._record_answer(ledger, command)
                self.world.notifier.notify(session)
                report = await self._after_answer(ledger, driver, approval, answered, wait=wait)
                return await self._answered_above(ledger, report) if wait else report
            except Refused as refused:
                if wait and refused.code == "expired":
                    await self._go_on_without(ledger, driver, approval)
                raise
            finally:
                if wait:
                    await self._leave(ledger, driver)
                else:
                    self._hand_on(ledger)

    async def _record_answer(self, ledger: Ledger, command: AnswerApproval) -> Answered:
        """GrantProposed, ApprovalAnswered, GrantActivated: in this order, so that a grant never stands without its answer."""
        await ledger.commit(Expire())
        await refuse_another(self.world, ledger, command)
        command = self._checked_edit(ledger, command)
        grant = proposed_grant(ledger.state, command, now=self.world.clock.now_ms())
        if grant is None:
            return await self._commit_answer(ledger, command)
        await self.home.append(grant)
        try:
            answered = await self._commit_answer(ledger, msgspec.structs.replace(command, grant=grant.grant))
        except Refused:
            await self.home.append(GrantDropped(grant=grant.grant))
            raise
        try:
            await self.home.append(GrantDropped(grant=grant.grant) if answered.again else GrantActivated(grant=grant.grant))
        except Busy as exc:
            # The answer is durable, and must not be told as refused. Whoever asks for grants next settles this one by what the session says.
            _log.warning("%s: the grant %s waits for its activation: %s", ledger.session, grant.grant, exc.message)
        return answered

    async def _answered_above(self, ledger: Ledger, report: AnswerReport) -> AnswerReport:
        """Of a delegate's prompt: whoever waits for it goes on, and the request that a person made is told of. The answer stands, whatever hinders that."""
        try:
            above = await self._drive_up(ledger)
        except HoldfastError as exc:
            return msgspec.structs.replace(report, reason=exc.message, turn=msgspec.structs.replace(report.turn, error=ErrorReport.of(exc)))
        return report if above is None else msgspec.structs.replace(report, turn=above)

    async def _go_on_without(self, ledger: Ledger, driver: Driver, approval: ApprovalId) -> None:
        """The prompt's time is over, which is journalled by now and denies it: its turn goes on. What hinders that is said to whoever drives next."""
        where = ledger.state.approvals.get(approval)
        if where is not None and where[0] in ledger.state.turns:
            with suppress(HoldfastError):
                await self._drive_turn(ledger, driver, where[0])
                await self._drive_up(ledger)

    @staticmethod
    async def _commit_answer(ledger: Ledger, command: AnswerApproval) -> Answered:
        outcome = await ledger.commit(command, check=Check.FENCE)
        answered: Answered = outcome.decided[0].outcome
        return answered

    def _checked_edit(self, ledger: Ledger, command: AnswerApproval) -> AnswerApproval:
        """New arguments are validated before they are taken."""
        where = ledger.state.approvals.get(command.approval)
        if command.arguments is None or where is None:
            return command
        turn, call = ledger.state.turns[where[0]], ledger.state.open_call(where[0], where[1])
        tool = tool_for(self.world, turn, call.tool) if call is not None else None
        if tool is None:
            raise Refused(
                "the new arguments can't be checked here: this process lacks the tool", code="option_unavailable", hint="edit where the tool is"
            )
        try:
            return msgspec.structs.replace(command, arguments=tool.validate(command.arguments.encode()).decode())
        except InvalidArguments as exc:
            raise Refused(
                f"these arguments don't fit {tool.definition.name}: {exc}", code="malformed", hint="the prompt stands; edit them again"
            ) from exc

    async def _after_answer(self, ledger: Ledger, driver: Driver, approval: ApprovalId, answered: Answered, *, wait: bool) -> AnswerReport:
        if answered.waiting and not _is_started(ledger, answered):
            return AnswerReport(result="deferred", reason=None, turn=await turn_report(ledger, answered.turn))
        if answered.again or not wait:
            result = "handed_on" if _waits_for_a_driver(ledger.state, answered) else "started"
            return AnswerReport(result=result, reason=None, turn=await turn_report(ledger, answered.turn))
        try:
            await self._drive_turn(ledger, driver, answered.turn)
        except CannotDrive as exc:
            return await self._stopped_short(ledger, answered, "handed_on", exc)
        except HoldfastError as exc:
            # The answer is durable: it was not refused, whatever hindered what came after it.
            return await self._stopped_short(ledger, answered, "started" if _is_started(ledger, answered) else "handed_on", exc)
        self._raise_if_voided(ledger, approval, answered)
        return AnswerReport(result="started", reason=None, turn=await self._told(ledger, answered.turn))

    @staticmethod
    def _raise_if_voided(ledger: Ledger, approval: ApprovalId, answered: Answered) -> None:
        """The answer was taken, but what it allowed may not run any more: told as failed, since nothing ran and nothing will."""
        settled = ledger.state.settled.get(approval)
        if answered.call not in ledger.started and settled is not None and settled.closed_as == "voided":
            raise Refused(
                "nothing ran: what would run is no longer what was shown, or may no longer run", code="voided", hint="ask again if it is still wanted"
            )

    @staticmethod
    async def _stopped_short(ledger: Ledger, answered: Answered, result: str, error: HoldfastError) -> AnswerReport:
        report = await turn_report(ledger, answered.turn)
        outcome = "sealed" if isinstance(error, Untrusted) else report.outcome
        return AnswerReport(result=result, reason=error.message, turn=msgspec.structs.replace(report, outcome=outcome, error=ErrorReport.of(error)))

    # --- cancel, resume

    async def cancel(self, session: str, *, by: str, turn: TurnId | None = None, may_all: bool = False) -> tuple[TurnReport, ...]:
        """Durable when this returns. A driver elsewhere sees it at the next notice, within a second at most."""
        async with self.shelf.use(session_id(session)) as ledger:
            outcome = await ledger.commit(Expire(), Cancel(by=by, turn=turn, may_all=may_all), check=Check.FENCE)
            self.world.notifier.notify(ledger.session)
            cancelled: tuple[TurnId, ...] = outcome.decided[1].outcome or ()
            await self.delegation.stop_unwanted_below(ledger)
            await self.delegation.report(ledger)
            listing.note(self.world, ledger)
            return tuple([await turn_report(ledger, each) for each in cancelled])

    async def resume(self, session: str, *, by: str, model: str | None = None) -> TurnReport:
        """Drive on whatever is owed, until nothing is."""
        async with self.shelf.use(session_id(session)) as ledger:
            driver = self._driver(ledger)
            try:
                await ledger.commit(Expire(), check=Check.FENCE)
                await reminding.fire_due(self.world, ledger)
                await self.delegation.settle_lost(ledger)
                await self.jobs.settle(ledger)
                self.jobs.watch(ledger.session)
                if model is not None:
                    await self._give_model(ledger, model, by=by)
                before = _subject(ledger.state)
                await self._drive_until(ledger, driver, _nothing_owed)
                for turn in tuple(ledger.state.turns):
                    while await self._moved_below(ledger, turn):
                        await self._drive_until(ledger, driver, _nothing_owed)
                await self._drive_up(ledger)
                return await self._told(ledger, before)
            finally:
                await self._leave(ledger, driver)

    async def _give_model(self, ledger: Ledger, model: str, *, by: str) -> None:
        self.world.model(model)
        await ledger.commit(GiveModel(model=model, by=by))

    async def compact(self, session: str) -> CompactionReport:
        """Summarise all but the last turns in what the model sees. The journal keeps everything; nothing is driven."""
        async with self.shelf.use(session_id(session)) as ledger:
            await ledger.commit(check=Check.FENCE)
            report = await Compactor(self.world, ledger, self.feed, ledger.commit).now()
            listing.note(self.world, ledger)
            self.world.notifier.notify(ledger.session)
            return report

    async def mirror(self, session: str, turn: TurnId, *, channel: str, part: str, text: str, receipt: str = "", kind: str = "reply") -> str:
        """
        Record that a channel has shown something of a turn, by itself: an owned write, also while the turn runs. Returns the delivery's id.

        One id per (turn, channel, part): the same again records nothing, and what is recorded here is never sent by the outbox.
        """
        async with self.shelf.use(session_id(session)) as ledger:
            name = delivery_id(ledger.state, turn, channel, part)
            await ledger.commit(
                QueueDelivery(turn=turn, channel=channel, part=part, kind=kind, text=text),
                MarkDelivery(delivery=name, became="sent"),
                MarkDelivery(delivery=name, became="confirmed", detail=receipt),
            )
            self.world.notifier.notify(ledger.session)
            return name

    async def owing(self) -> Sequence[SessionId]:
        """Sessions in which a driver could do something now, from the index; those behind their journal are opened, and those with jobs looked at."""
        owing = await listing.owing(self.world, self.shelf, sealed=(await self.home.refresh()).sealed)
        for session in listing.with_jobs(self.world):
            if session not in owing and await self._settle_jobs(session):
                owing = [*owing, session]
        return owing

    async def _settle_jobs(self, session: SessionId) -> bool:
        """Say of its jobs which are over; whether any is. Those that run are watched from now on, for as long as this process stays."""
        try:
            async with self.shelf.use(session) as ledger:
                await ledger.refresh()
                ended = await self.jobs.settle(ledger)
        except HoldfastError as exc:
            _log.warning("%s: its jobs could not be looked at (%s): %s", session, exc.code, exc.message)
            return False
        self.jobs.watch(session)
        return ended > 0

    # --- reminders

    async def remind(
        self,
        session: str,
        wanted: reminding.Wanted,
        *,
        source: MessageSource,
        agent: str | None = None,
        model: str | None = None,
        workspace: Workspace | None = None,
        default_workspace: Workspace | None = None,
    ) -> ReminderReport:
        """Set a reminder for whoever the source says, durably; whoever serves this home is told."""
        name = session_id(session)
        self._refuse_secrets(wanted.text, what="reminder")
        when = reminding.when_of(self.world, wanted)
        await self._ensure(name, by=_who(source))
        async with self.shelf.use(name) as ledger:
            await ledger.refresh()
            kept = self._accepting(ledger.state, wanted.text, source, agent, model, None, workspace, default_workspace, "reminder")
            report = await reminding.set_by_source(ledger, wanted, when, source=source, agent=kept.agent, model=kept.model, workspace=kept.workspace)
            await self._changed(ledger)
            return report

    async def reminders(self) -> tuple[ReminderReport, ...]:
        """Every one that stands, in all sessions, the next one first."""
        return await listing.reminders(self.world, self.shelf)

    async def reminder(self, reminder: str) -> ReminderReport:
        found = next((each for each in await self.reminders() if each.id == reminder), None)
        if found is None:
            raise Refused(f"there is no reminder {reminder}", code="unknown", hint="`holdfast reminders list` shows those that stand")
        return found

    async def cancel_reminder(self, reminder: str, *, by: str, may_all: bool = False) -> ReminderReport:
        """Durable when this returns: it fires no more, in no process."""
        found = await self.reminder(reminder)
        async with self.shelf.use(found.session) as ledger:
            await ledger.commit(CancelReminder(reminder=ReminderId(reminder), by=by, may_all=may_all), check=Check.FENCE)
            await self._changed(ledger)
        return found

    async def _changed(self, ledger: Ledger) -> None:
        """What this process appended is anchored, the index knows, and whoever waits for the next reminder is told."""
        await ledger.journal.sync_anchor()
        listing.note(self.world, ledger)
        self.world.notifier.notify(ledger.session)

    # --- turns of a foreign loop

    @asynccontextmanager
    async def foreign_turn(
        self, session: str, text: str, *, source: MessageSource | None, agent: str | None = None, workspace: Workspace | None = None
    ) -> AsyncGenerator[ForeignTurn, None]:
        """A turn driven by the caller's own loop; left without an end, it has failed."""
        name = session_id(session)
        self._refuse_secrets(text)
        await self._ensure(name, by=_who(source))
        async with self.shelf.use(name) as ledger:
            driver = self._driver(ledger)
            try:
                await self._claim_or_say_busy(ledger, driver)
                accept = self._accepting(ledger.state, text, source, agent, None, None, workspace, None, "message")
                accept = msgspec.structs.replace(accept, loop="foreign", model="foreign")
                outcome = await ledger.drive(accept, StartTurn(epoch=ledger.epoch or 0), check=Check.FENCE)
                turn = ForeignTurn(self.world, ledger, self.home, driver, outcome.decided[0].outcome.turn)
                yield turn
                if not turn.is_over and not ledger.state.turns[turn.turn].parked:
                    await turn.fail("loop_left", "the loop that drove this turn left it without an end")
                if driver.owns_claim:
                    await driver.deliver_owed()
            finally:
                await self._leave(ledger, driver)

    async def _claim_or_say_busy(self, ledger: Ledger, driver: Driver) -> None:
        if not await driver.claim():
            raise Busy(f"{ledger.session} is driven by another process", hint="try again when its turn has ended")
        await ledger.refresh()
        await driver.run(_nothing_owed)

    # --- looking

    async def approvals(self, *, for_: str | None = None, everything: bool = False) -> tuple[ApprovalReport, ...]:
        return await listing.approvals(self.world, self.shelf, for_=for_, everything=everything)

    async def approvals_json(self) -> msgspec.Raw:
        """Everything that waits, as one JSON array of ApprovalReports: for whoever only passes it on."""
        return await listing.approvals_json(self.world, self.shelf)

    async def approval(self, approval: ApprovalId) -> ApprovalReport:
        return await listing.approval(self.world, self.shelf, approval)

    async def show(self, session: str) -> SessionReport:
        async with self.shelf.use(session_id(session)) as ledger:
            return await session_report(ledger, now=self.world.clock.now_ms())

    async def turn(self, session: str, turn: TurnId) -> TurnReport:
        async with self.shelf.use(session_id(session)) as ledger:
            await ledger.refresh()
            return await self._told(ledger, turn)

    async def sessions(
        self, *, after: SessionId | None = None, limit: int | None = None, sees: listing.Sees | None = None
    ) -> tuple[listing.SessionLine, ...]:
        sealed = (await self.home.refresh()).sealed
        return await listing.sessions(self.world, self.shelf, sealed=sealed, after=after, limit=limit, sees=sees)

    def follow(self, session: str, *, after: int | None = None) -> AsyncIterator[Record | Any]:
        """Records as they are stored, and pieces of text and output as they come; for ever."""
        return follow_session(self.shelf, self.feed, session_id(session), after=after)

    async def grants(self) -> tuple[GrantReport, ...]:
        state = await self.home.refresh()
        return tuple(grant_report(grant, state.granted_at.get(name, 0)) for name, grant in sorted(state.grants.items()))

    async def revoke(self, grant: GrantId, *, by: str, may_all: bool = False) -> None:
        await self.home.revoke(grant, by=by, may_all=may_all)

    # --- serving

    async def drive_all(self, session: SessionId, *, until: Until | None = None) -> None:
        """For a process that stays: close what is past its time, then drive until nothing is owed that this process can do, or `until` holds."""
        async with self.shelf.use(session) as ledger:
            if ledger.journal.sealed is not None or ledger.driving:
                return
            await ledger.refresh()
            if ledger.state.jobs:
                await self.jobs.settle(ledger)
                self.jobs.watch(session)
            if _has_expired(ledger.state, self.world.clock.now_ms()):
                await ledger.commit(Expire(), check=Check.FENCE)
                listing.note(self.world, ledger)
            if await reminding.fire_due(self.world, ledger):
                listing.note(self.world, ledger)
                self.world.notifier.notify(session)
            await self.delegation.settle_lost(ledger)
            if _nothing_owed(ledger.state) or why_not(self.world, ledger.state) is not None:
                return
            driver = self._driver(ledger)
            if not await driver.claim():
                return  # somebody drives, and sees what is owed. A notice from here would only wake ourselves again, without end
            try:
                await self._drive(ledger, driver, until or _never)
            finally:
                await self._leave(ledger, driver)


def _has_expired(state: SessionState, now: int) -> bool:
    waiting = (call.approval for turn in state.turns.values() for call in turn.waiting)
    return any(approval is not None and now >= approval.asked.expires_at for approval in waiting)


def _who(source: MessageSource | None) -> str:
    return (source.person if source is not None else None) or "nobody"


def _over_or_parked(turn: TurnId) -> Until:
    def over_or_parked(state: SessionState) -> bool:
        if any(each.turn == turn for each in state.queued):
            return False
        open_turn = find_turn(state, turn)
        if open_turn is None:
            return not owes_report(state)
        return open_turn.phase is Phase.PARKED and (bool(open_turn.waiting) or open_turn.only_waits)

    return over_or_parked


def _nothing_owed(state: SessionState) -> bool:
    return not react(state) and not unsettled(state)


def _never(_: SessionState) -> bool:
    return False


def _subject(state: SessionState) -> TurnId | None:
    """The turn that `resume` speaks of: the running one, else one that can go on, else the next, else one that waits, else the last if it is well."""
    if state.running is not None:
        return state.running
    for turn in state.turns.values():
        if not turn.waiting:
            return turn.turn
    if state.queued:
        return state.queued[0].turn
    last = TurnId(f"t{state.inputs}")
    result = state.results.get(last)
    return next(reversed(state.turns), None) or (last if result is not None and result.outcome == "completed" else None)


def _is_started(ledger: Ledger, answered: Answered) -> bool:
    return answered.call in ledger.started


def _waits_for_a_driver(state: SessionState, answered: Answered) -> bool:
    """Recorded, and nobody has gone on with it yet."""
    turn, call = state.turns.get(answered.turn), state.open_call(answered.turn, answered.call)
    if turn is None or call is None:
        return False
    return turn.phase is Phase.PARKED or call.status in (CallStatus.APPROVED, CallStatus.PROPOSED)
