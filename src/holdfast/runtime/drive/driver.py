"""
One drive of one session.

The driver claims the session and settles the work that a crash left. Then it performs the work that
`react` names, until nothing is owed or the caller's turn has ended or paused.

The loop is: fold, react, perform, append. Its only state is the set of running tasks. If it dies at
any line, the next driver computes the same work from the journal. Model calls and tools run in
tasks beside the loop. The loop meanwhile sees cancels from any process and stops the cancelled
tasks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from holdfast.errors import CannotDrive
from holdfast.ids import ApprovalId, CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.ports.model import ModelFailed
from holdfast.ports.tools import Prepared, ProcessFacts, Tool
from holdfast.runtime.cancellation import LOOK_AGAIN_SECONDS, most_useful_error
from holdfast.runtime.context import World
from holdfast.runtime.delegates.call import start_delegate
from holdfast.runtime.delegates.delegation import Delegation
from holdfast.runtime.drive.binding import Found, is_delegate, look, tool_for
from holdfast.runtime.drive.compactor import Compactor
from holdfast.runtime.drive.drivability import why_cannot_drive
from holdfast.runtime.drive.model_call import (
    ask_model,
    is_final,
    overhead_chars,
    request_for,
    retry_delay,
    shown_tools,
)
from holdfast.runtime.drive.outbox import Outbox
from holdfast.runtime.drive.tool_call import (
    Ready,
    get_ready,
    run_tool,
    see_through,
    starts_alone,
    starts_at_once,
)
from holdfast.runtime.ledger.attempt import Produced
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger, payload
from holdfast.runtime.memory.recall import recall_for, recall_for_open, remembers
from holdfast.runtime.redaction import hidden_answer
from holdfast.runtime.reports.open_prompts import prompts_open
from holdfast.runtime.streams.feed import Delta, Feed
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.plan import ToolDefinition
from holdfast.session.authority.policy import Looked, Policy
from holdfast.session.commands import (
    EndTurn,
    Expire,
    ParkTurn,
    Recover,
    ReportEndedJob,
    ResumeTurn,
    StartModelCall,
    StartTurn,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decide.inputs import next_inputs
from holdfast.session.decide.turns import calls_of_reply
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BearDelegate,
    BeginTurn,
    CallModel,
    Deliver,
    Finish,
    LookAtCalls,
    Park,
    ReportJob,
    ReportToParent,
    Resume,
    RunTools,
    SessionEffect,
    StopDelegate,
)
from holdfast.session.next_steps import DriverFacts
from holdfast.session.react import react
from holdfast.session.recovery import turns_to_recover
from holdfast.session.state import Call, CallStatus, SessionState, Turn
from holdfast.session.view.messages import ModelAnswer

Until = Callable[[SessionState], bool]


class _Beside(NamedTuple):
    """One task that runs beside the loop. The same task never runs twice at once."""

    kind: Literal["model", "tool", "deliver"]
    turn: TurnId
    # The id of the call or delivery.
    what: str = "-"


class Driver:
    """One per drive. The service creates it for a ledger that it holds open."""

    def __init__(
        self, world: World, ledger: Ledger, home: HomeLedger, feed: Feed, delegation: Delegation
    ) -> None:
        self._world = world
        self._ledger = ledger
        self._home = home
        self._feed = feed
        self._delegation = delegation
        # Effects on other sessions that this drive has tried. Each is tried once per drive.
        self._tried: set[SessionEffect] = set()
        # The tasks that run beside the loop; the group exists while the loop runs.
        self._group: asyncio.TaskGroup
        self._tasks: dict[_Beside, asyncio.Task[None]] = {}
        # One timer for the whole drive, armed again after each tick.
        self._timer: asyncio.TimerHandle
        # The prompts that were open at the last notification.
        self._asked: frozenset[ApprovalId] = frozenset()
        self._last_failure: ModelFailed | None = None
        self._secrecy = secrecy_of(world.secrets)
        self._outbox = Outbox(
            world.channels,
            ledger,
            world.clock,
            self._secrecy,
            retry_seconds=world.model_times.retry_seconds,
        )
        self._compactor = Compactor(world, ledger, feed, ledger.drive)
        # The epoch of the claim that this driver holds; None without a claim.
        self._claimed: int | None = None
        # Turns for which this drive has queried memory.
        self._recalled: frozenset[TurnId] = frozenset()

    @property
    def owns_claim(self) -> bool:
        return self._claimed is not None

    async def claim(self) -> bool:
        """
        Become the driver. Return False if another process drives, or another task of this process:
        the claim belongs to the process, so two tasks would share it.
        """
        if (lacking := why_cannot_drive(self._world, self._ledger.state)) is not None:
            raise CannotDrive(
                f"this process can't drive {self._ledger.session}: {lacking}",
                hint=f"`holdfast resume {self._ledger.session} --model M` goes on with another "
                "model, `--app MODULE:AGENT` brings a program's agents and tools; "
                "else put back what is missing, or give the turn up with `holdfast sessions "
                f"cancel {self._ledger.session}`",
            )
        return await self.claim_at_once()

    async def claim_at_once(self) -> bool:
        """
        Like `claim`, but skip the drivability check. Call it only right after `why_cannot_drive`
        returned None, with no await in between.
        """
        if self._ledger.driving:
            return self.owns_claim
        # Set before the await; otherwise a second task could claim in between.
        self._ledger.driving = True
        try:
            if await self._ledger.attempt.try_claim():
                self._claimed = self._ledger.epoch
                self._ledger.driver_facts = self._facts
        finally:
            self._ledger.driving = self.owns_claim
        return self.owns_claim

    def _facts(self) -> DriverFacts:
        return DriverFacts(
            self._epoch,
            self._world.policy(),
            recalls=remembers(self._world),
            recalled=self._recalled,
        )

    async def settle(self) -> None:
        """
        End and record every call that was in flight under an older epoch, by the lettered recovery
        cases. Costs nothing when there is nothing to settle.
        """
        epoch = self._epoch
        orphaned = turns_to_recover(self._ledger.state, epoch)
        if not orphaned:
            return
        for turn in orphaned:
            for call in turn.calls:
                if call.status is CallStatus.STARTED and call.epoch < epoch and call.job is None:
                    self._end_survivors(call)
        await self._ledger.drive(Expire(), Recover(epoch=epoch))

    def _end_survivors(self, call: Call) -> None:
        facts = ProcessFacts(**call.process) if call.process is not None else None
        self._world.tools.end_survivors(call.call, facts)

    @property
    def _epoch(self) -> int:
        if self._claimed is None:
            raise CannotDrive(f"{self._ledger.session} is not ours to drive")
        return self._claimed

    async def run(self, until: Until) -> None:
        """Perform the owed work. The driver must hold the claim."""
        await self.settle()
        await self._delegation.stop_if_unwanted(self._ledger)
        await self._outbox.settle()
        self._asked = prompts_open(self._ledger.state)
        watch = self._ledger.watch()
        self._look_again_in_a_while(watch)
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._loop(until, watch)
        except BaseExceptionGroup as errors:
            raise most_useful_error(errors) from None
        finally:
            self._timer.cancel()
            self._ledger.unwatch(watch)

    def _look_again_in_a_while(self, watch: asyncio.Event) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            LOOK_AGAIN_SECONDS, self._look_again, watch
        )

    def _look_again(self, watch: asyncio.Event) -> None:
        """Act as if a notice had arrived."""
        self._ledger.noticed = True
        watch.set()
        self._look_again_in_a_while(watch)

    async def _loop(self, until: Until, watch: asyncio.Event) -> None:
        while True:
            watch.clear()
            state = self._ledger.state
            self._stop_what_was_cancelled(state)
            self._start_deliveries(state)
            if not self._tasks and until(state):
                return
            step = self._next(state)
            if step is not None:
                await step
            elif not self._tasks:
                return
            elif not watch.is_set():
                self._tell_of_prompts()
                await self._wait(watch)

    def _tell_of_prompts(self) -> None:
        """
        Notify now if the set of open prompts changed while other calls are still running; otherwise
        approvers would hear of a prompt only when the drive ends.
        """
        if (asked := prompts_open(self._ledger.state)) != self._asked:
            self._asked = asked
            self._world.notifier.notify(self._ledger.session)

    async def _wait(self, watch: asyncio.Event) -> None:
        await watch.wait()
        if self._tasks and self._ledger.noticed:
            await self._ledger.look()

    def _stop_what_was_cancelled(self, state: SessionState) -> None:
        for beside, task in self._tasks.items():
            if beside.kind == "deliver":
                continue  # a delivery outlives its turn
            turn = state.turns.get(beside.turn)
            gone = turn is None or turn.cancelled_by is not None
            if (
                gone
                and not task.cancelling()
                and (beside.kind == "tool" or turn is None or turn.model_call is None)
            ):
                task.cancel()

    def _start(self, beside: _Beside, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def guarded() -> None:
            try:
                await work()
            finally:
                self._tasks.pop(beside, None)
                self._ledger.poke()

        # The task name has four words: the simulation of a home reads from it the turn that a
        # request is made for.
        self._tasks[beside] = self._group.create_task(
            guarded(), name=f"{self._ledger.session} {' '.join(beside)}"
        )

    def _next(self, state: SessionState) -> Coroutine[Any, Any, Any] | None:
        """
        Start the work that can run beside the loop. Return the next step that must be awaited, if
        any.
        """
        for effect in react(state):
            if (step := self._perform(state, effect)) is not None:
                return step
        return None

    def _perform(
        self, state: SessionState, effect: SessionEffect
    ) -> Coroutine[Any, Any, Any] | None:
        commit, world = self._ledger.drive, self._world
        match effect:
            case BeginTurn():
                return self._begin_turn(state)
            case Resume(turn=turn):
                return self._resume(state.turns[turn])
            case CallModel(turn=turn) | AwaitModel(turn=turn):
                self._start_model(state, turn)
            case LookAtCalls(turn=turn, calls=calls):
                return self._decide_calls(state, turn, calls)
            case RunTools(turn=turn, calls=calls):
                for call in calls:
                    self._start_tool(turn, call)
            case AwaitTool(turn=turn, call=call, epoch=epoch):
                if epoch < self._epoch:
                    # Only pure or idempotent calls get here: recovery has put all others in doubt.
                    self._start_tool(turn, call)
            case Park(turn=turn):
                born = tuple(each.call for each in self._tried if isinstance(each, BearDelegate))
                return commit(ParkTurn(turn=turn, born=born))
            case Finish(turn=turn):
                return commit(EndTurn(turn=turn, policy=world.policy()))
            case BearDelegate() | StopDelegate() | ReportToParent():
                return self._reach_out(effect)
            case ReportJob(job=job):
                return commit(ReportEndedJob(job=job))
            case Deliver():
                pass  # `_start_deliveries` has started it already
        return None

    async def _begin_turn(self, state: SessionState) -> None:
        taken = next_inputs(state)
        turn, context = taken[0].turn, taken[0].context
        texts = [each.text for each in taken]
        recalled = (
            await recall_for(self._world, state, turn, context, taken[0].kind, texts)
            if taken[0].loop == "ours"
            else ()
        )
        self._recalled |= {turn}
        # Crash before this commit: the message still waits, and the next driver recalls for it.
        # Crash after it: the turn continues with the recalled items.
        await self._ledger.drive(StartTurn(epoch=self._epoch), *recalled)

    # --- other sessions

    def _reach_out(
        self, effect: BearDelegate | StopDelegate | ReportToParent
    ) -> Coroutine[Any, Any, None] | None:
        if effect in self._tried:
            return None
        self._tried.add(effect)
        match effect:
            case BearDelegate(turn=turn, call=call):
                return self._delegation.bear(self._ledger, turn, call)
            case StopDelegate(call=call):
                return self._delegation.stop(self._ledger, call)
            case ReportToParent():
                return self._delegation.report(self._ledger)

    # --- deliveries

    async def deliver_owed(self) -> None:
        """
        Send the queued deliveries now, for a turn that an external loop drives. The driver must
        hold the claim.
        """
        for owed in tuple(self._ledger.state.deliveries.values()):
            if not owed.sent:
                await self._outbox.deliver(owed.delivery)

    def _start_deliveries(self, state: SessionState) -> None:
        for owed in state.deliveries.values():
            beside = _Beside("deliver", owed.turn, owed.delivery)
            if not owed.sent and beside not in self._tasks:
                self._start(beside, partial(self._outbox.deliver, owed.delivery))

    # --- model calls

    def _start_model(self, state: SessionState, turn: TurnId) -> None:
        beside = _Beside("model", turn)
        open_turn = state.turns[turn]
        mine = open_turn.model_call is None or open_turn.model_call.epoch == self._epoch
        if beside not in self._tasks and mine:
            self._start(beside, partial(self._model_step, turn))

    async def _model_step(self, turn_id: TurnId) -> None:
        """Run one model call, from its durable start to its durable outcome."""
        ledger, world = self._ledger, self._world
        shown = await self._start_model_call(turn_id)
        turn = ledger.state.turns.get(turn_id)
        if turn is None or turn.model_call is None or turn.model_call.epoch != self._epoch:
            return
        number = turn.model_call.number
        request = request_for(world, ledger.state, turn, shown)

        def heard(text: str) -> None:
            self._feed.say(Delta(ledger.session, turn_id, "text", text))

        streamed = self._secrecy.streamed(heard)
        ledger.attempt.release_nowait()
        try:
            answer = await ask_model(
                world.model(turn.model), request, on_text=streamed.hear, times=world.model_times
            )
            streamed.end()
        except ModelFailed as failure:
            self._last_failure = failure
            await self._take_failure(turn, number, failure)
        else:
            self._last_failure = None
            await self._take_answer(turn, number, answer)

    async def _start_model_call(self, turn_id: TurnId) -> Sequence[ToolDefinition]:
        """
        Start a model call unless one of this driver is running. First wait out the retry delay and
        compact the view if needed. Return the tools that the model is shown.
        """
        ledger, world = self._ledger, self._world
        turn = ledger.state.turns.get(turn_id)
        if turn is None:
            return ()
        if (
            delay := retry_delay(turn, self._last_failure, world.model_times)
        ) > 0 and turn.model_call is None:
            await world.clock.sleep(delay)
        shown = shown_tools(world, turn, world.policy())
        if turn.model_call is None or turn.model_call.epoch == self._epoch:
            if await self._compactor.before_call(
                turn_id, extra_chars=overhead_chars(world, turn, shown)
            ):
                shown = shown_tools(world, turn, world.policy())  # it took its time
            turn = ledger.state.turns.get(turn_id)
        if turn is not None and turn.model_call is None:
            recalled = await recall_for_open(world, ledger.state, turn)
            policy = world.policy()
            shown = shown_tools(world, turn, policy)
            await ledger.drive(
                *recalled, StartModelCall(turn=turn_id, epoch=self._epoch, policy=policy)
            )
        return shown

    async def _take_failure(self, turn: Turn, number: int, failure: ModelFailed) -> None:
        command = TakeFailure(
            turn=turn.turn,
            number=number,
            kind=failure.kind,
            message=self._secrecy.hidden(failure.message),
            final=is_final(failure, turn),
            line=failure.line,
        )
        await self._ledger.drive(command, check=Check.FENCE)

    async def _take_answer(self, turn: Turn, number: int, answer: ModelAnswer) -> None:
        """
        Take the answer only under a verified fence. The same commit decides which calls may run and
        which must ask.
        """
        ledger = self._ledger
        answer, secret = hidden_answer(self._secrecy, answer)
        produced = ledger.attempt.produced("reply", payload(answer))
        if not answer.calls:
            taken = TakeAnswer(
                turn=turn.turn, number=number, answer=answer, policy=self._world.policy()
            )
            await ledger.drive(taken, check=Check.FENCE, keeping=[produced])
            return
        made = calls_of_reply(ledger.state, turn, number, answer.calls)
        calls = [
            Call(call=each.call, tool=each.tool, made=each.arguments, provider_id=each.provider_id)
            for each in made
        ]
        found = await self._look_at(turn, calls, secret)
        ready = await self._ready_at_once(turn, calls, found, starts_at_once)

        def commands(policy: Policy) -> Sequence[Any]:
            return TakeAnswer(
                turn=turn.turn, number=number, answer=answer, policy=policy
            ), found.decision(turn.turn, policy)

        await self._drive_and_start(turn.turn, commands, ready, keeping=[produced])

    async def _resume(self, turn: Turn) -> None:
        """
        Resume the turn after every prompt is answered. The same commit starts the approved calls
        where it can.

        There are two cases:

        1. One approved call: it starts in this commit, however long its preparation takes. No other
           call waits for it.
        2. Several approved calls: only calls that prepare at once start here. The others prepare
           side by side.
        """
        approved = [call for call in turn.calls if call.status is CallStatus.APPROVED]
        may = starts_alone if len(approved) == 1 else starts_at_once
        approved = [call for call in approved if may(tool_for(self._world, turn, call.tool))]
        ready = await self._ready_at_once(turn, approved, await self._look_at(turn, approved), may)
        resume = ResumeTurn(turn=turn.turn, epoch=self._epoch)
        await self._drive_and_start(turn.turn, lambda _: (resume,), ready, keeping=())

    async def _ready_at_once(
        self, turn: Turn, calls: list[Call], found: Found, may: Callable[[Tool | None], bool]
    ) -> list[Ready]:
        """
        Prepare the calls that may start in the commit that decides them. That commit decides
        whether they start; calls that must ask first do not.

        Return nothing for a delegate: the parent's journal is checked before each of its starts.
        """
        if self._ledger.state.parent is not None:
            return []
        world, ledger = self._world, self._ledger
        pairs = zip(calls, found.looked, strict=True)
        quick = [
            (call, looked)
            for call, looked in pairs
            if not looked.background and may(tool_for(world, turn, call.tool))
        ]
        return [
            await get_ready(world, ledger, turn, call, looked, found.grants, self._epoch)
            for call, looked in quick
        ]

    async def _drive_and_start(
        self,
        turn: TurnId,
        commands: Callable[[Policy], Sequence[Any]],
        ready: list[Ready],
        *,
        keeping: Sequence[Produced],
    ) -> None:
        """
        Make one commit, decided by the policy read right before it. Run the calls that it started
        and abandon the others.
        """
        ledger, waiting = self._ledger, list(ready)
        try:
            policy = self._world.policy()
            first, starts = commands(policy), [each.start(policy) for each in ready]
            outcome = await ledger.drive(*first, *starts, check=Check.FENCE, keeping=keeping)
            for each, start in zip(ready, starts, strict=True):
                run = outcome.of(start)
                if run is not None and each.prepared is not None:
                    waiting.remove(each)
                    self._see_through(turn, each.looked.call, run, each.prepared)
        finally:
            for each in waiting:
                await each.abandon()

    def _see_through(self, turn: TurnId, call: CallId, run: int, prepared: Prepared) -> None:
        work = partial(
            see_through, self._world, self._ledger, self._feed, turn, call, run, prepared
        )
        self._start(_Beside("tool", turn, call), work)

    async def _look_at(
        self, turn: Turn, calls: list[Call], secret: frozenset[int] = frozenset()
    ) -> Found:
        """
        Bind each call. Calls at the indexes in `secret` held a secret and are refused without
        binding.
        """
        state = self._ledger.state
        looked: list[Looked] = []
        for index, call in enumerate(calls):
            refused = Looked(call=call.call, problem=("secret", "its arguments hold a secret"))
            looked.append(
                refused if index in secret else await look(self._world, state, turn, call)
            )
        return Found(tuple(looked), await self._home.grants_of(turn.context.requester, state))

    async def _decide_calls(
        self, state: SessionState, turn_id: TurnId, calls: tuple[CallId, ...]
    ) -> None:
        turn = state.turns[turn_id]
        undecided = [call for call in turn.calls if call.call in calls]
        found = await self._look_at(turn, undecided)
        await self._ledger.drive(found.decision(turn_id, self._world.policy()))

    # --- tools

    def _start_tool(self, turn: TurnId, call: CallId) -> None:
        if (beside := _Beside("tool", turn, call)) not in self._tasks:
            self._start(beside, partial(self._run_call, turn, call))

    async def _run_call(self, turn_id: TurnId, call_id: CallId) -> None:
        if await self._delegation.stop_if_unwanted(self._ledger):
            return
        world, ledger, home, epoch = self._world, self._ledger, self._home, self._epoch
        turn, call = ledger.state.turns.get(turn_id), ledger.state.open_call(turn_id, call_id)
        tool = tool_for(world, turn, call.tool) if turn is not None and call is not None else None
        if tool is not None and is_delegate(tool):
            await start_delegate(world, ledger, home, self._delegation, turn_id, call_id, epoch)
        else:
            await run_tool(world, ledger, home, self._feed, turn_id, call_id, epoch)

    # --- giving up

    def let_go(self) -> None:
        """
        The attempt is over, and its claim with it. Tasks that wait for this driver then catch up
        themselves and get the reason.
        """
        if self.owns_claim:
            self._claimed, self._ledger.driving = None, False
            self._ledger.poke()

    async def give_up(self) -> None:
        """
        Release the claim. Catch up again afterwards: a record may have come between the last check
        and the release.
        """
        if not self.owns_claim:
            return
        self._claimed = self._ledger.driver_facts = None
        try:
            await self._ledger.attempt.give_up()
        finally:
            self._ledger.driving = False
