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
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Self

from holdfast.errors import CannotDrive
from holdfast.ids import CallId, TurnId
from holdfast.ports.tools import ProcessFacts
from holdfast.runtime.cancellation import most_useful_error
from holdfast.runtime.delegates.delegation import (
    report_to_parent,
    stop_delegate,
    stop_if_unwanted,
)
from holdfast.runtime.delegates.start import create_delegate, start_delegate
from holdfast.runtime.drive.bound_call import is_delegate, tool_for
from holdfast.runtime.drive.drivability import why_cannot_drive
from holdfast.runtime.drive.drive import Drive, TaskName, Tasks
from holdfast.runtime.drive.model_steps import ModelSteps
from holdfast.runtime.drive.outbox import Outbox
from holdfast.runtime.drive.tool_call import run_tool
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.memory.recall import recall_for, remembers
from holdfast.runtime.runtime import Runtime
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.policy import Policy
from holdfast.session.commands import (
    EndTurn,
    Expire,
    LeaveLoop,
    ParkTurn,
    Recover,
    ReportEndedJob,
    StartTurn,
)
from holdfast.session.decide.inputs import next_inputs
from holdfast.session.effects import (
    AwaitModel,
    AwaitTool,
    BeginTurn,
    CallModel,
    CreateDelegate,
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
from holdfast.session.features.memory.items import recall_is_owed
from holdfast.session.next_steps import DriverFacts
from holdfast.session.react import react
from holdfast.session.recovery import turns_to_recover
from holdfast.session.state import Call, CallStatus, SessionState

Until = Callable[[SessionState], bool]


class Driver:
    """One per drive. The service creates it for a ledger that it holds open."""

    def __init__(self, runtime: Runtime, ledger: Ledger) -> None:
        self.runtime = runtime
        self.ledger = ledger
        self._world = runtime.world
        # The drive and its steps; None without a claim.
        self._held: tuple[Drive, ModelSteps] | None = None
        self._tasks = Tasks(ledger)
        # Effects on other sessions that this drive has tried. Each is tried once per drive.
        self._tried: set[SessionEffect] = set()
        # One timer for the whole drive, armed again after each tick.
        self._timer: asyncio.TimerHandle
        # Turns for which this drive has queried memory.
        self._recalled: frozenset[TurnId] = frozenset()

    @property
    def owns_claim(self) -> bool:
        return self._held is not None

    async def claim(self) -> bool:
        """
        Become the driver. Return False if another process drives, or another task of this process:
        the claim belongs to the process, so two tasks would share it.
        """
        if (missing := why_cannot_drive(self._world, self.ledger.state)) is not None:
            session = self.ledger.session
            raise CannotDrive(
                f"this process can't run {session}: {missing.name}",
                hint=f"{missing.remedy.replace('SESSION', session)}, or "
                f"`holdfast sessions cancel {session}` gives the turn up",
            )
        return await self.claim_at_once()

    async def claim_at_once(self) -> bool:
        """
        Like `claim`, but skip the drivability check. Call it only right after `why_cannot_drive`
        returned None, with no await in between.
        """
        if self.ledger.driving:
            return self._held is not None
        # Set before the await; otherwise a second task could claim in between.
        self.ledger.driving = True
        try:
            attempt = self.ledger.attempt
            if await attempt.try_claim():
                epoch = attempt.epoch or 0
                drive = Drive(self.runtime, self._world, self.ledger, epoch, self._tasks)
                self._held = drive, ModelSteps(drive)
                self.ledger.driver_facts = partial(self._facts, epoch)
        finally:
            self.ledger.driving = self._held is not None
        return self._held is not None

    def _facts(self, epoch: int, decided_by: Policy | None) -> DriverFacts:
        """
        `decided_by` is the policy of the commit's own commands. Memory is queried only while the
        running turn owes its recall.
        """
        state = self.ledger.state
        running = state.turns.get(state.running) if state.running is not None else None
        recalls = running is not None and recall_is_owed(running) and remembers(self._world)
        policy = self._world.policy() if decided_by is None else decided_by
        return DriverFacts(epoch, policy, recalls=recalls, recalled=self._recalled)

    async def settle(self) -> None:
        """
        End and record every call that was in flight under an older epoch, by the lettered recovery
        cases. Costs nothing when there is nothing to settle.
        """
        epoch = self._drive.epoch
        orphaned = turns_to_recover(self.ledger.state, epoch)
        if not orphaned:
            return
        for turn in orphaned:
            for call in turn.calls:
                if call.status is CallStatus.STARTED and call.epoch < epoch and call.job is None:
                    self._end_survivors(call)
        await self.ledger.drive(Expire(), Recover(epoch=epoch))

    def _end_survivors(self, call: Call) -> None:
        facts = ProcessFacts(**call.process) if call.process is not None else None
        if facts is not None and facts.node not in {"", self._world.node}:
            return  # its own node ends it when it hears that it does not drive any more
        self._world.tools.end_survivors(call.call, facts)

    @property
    def _drive(self) -> Drive:
        return self._claimed[0]

    @property
    def _claimed(self) -> tuple[Drive, ModelSteps]:
        if self._held is None:
            raise CannotDrive(f"{self.ledger.session} is not ours to drive")
        return self._held

    async def run(self, until: Until, watch: asyncio.Event | None = None) -> None:
        """
        Perform the owed work. The driver must hold the claim. `watch` is a watch of the caller on
        the same ledger, if it has one.
        """
        await self.settle()
        if self.ledger.state.parent is not None:
            await stop_if_unwanted(self.runtime, self.ledger)
        if self.ledger.state.deliveries:
            await self._outbox.settle()
        watching = watch or self.ledger.watch()
        self._look_again_in_a_while(watching)
        try:
            async with asyncio.TaskGroup() as self._tasks.group:
                await self._loop(until, watching)
        except BaseExceptionGroup as errors:
            raise most_useful_error(errors) from None
        finally:
            self._timer.cancel()
            if watch is None:
                self.ledger.unwatch(watching)

    def _look_again_in_a_while(self, watch: asyncio.Event) -> None:
        self._timer = asyncio.get_running_loop().call_later(
            self._world.tuning.look_again_seconds, self._look_again, watch
        )

    def _look_again(self, watch: asyncio.Event) -> None:
        """Act as if a notice had arrived."""
        self.ledger.noticed = True
        watch.set()
        self._look_again_in_a_while(watch)

    async def _loop(self, until: Until, watch: asyncio.Event) -> None:
        running = self._tasks.running
        while True:
            watch.clear()
            state = self.ledger.state
            if running:
                self._tasks.stop_cancelled(state)
            if state.deliveries:
                self._start_deliveries(state)
            if not running and until(state):
                return
            step = self._next(state)
            if step is not None:
                await step
            elif not running:
                return
            elif not watch.is_set():
                await watch.wait()
                if running and self.ledger.noticed:
                    await self.ledger.catch_up_if_behind()

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
        commit, world = self.ledger.drive, self._world
        match effect:
            case BeginTurn():
                return self._begin_turn(state)
            case Resume(turn=turn):  # starts the call that was approved
                return self._claimed[1].resume(state.turns[turn])
            case CallModel(turn=turn) | AwaitModel(turn=turn):
                self._claimed[1].start_model(state, turn)
            case LookAtCalls(turn=turn, calls=calls):
                return self._claimed[1].decide_calls(state, turn, calls)
            case RunTools(turn=turn, calls=calls):
                for call in calls:
                    self._start_tool(turn, call)
            case AwaitTool(turn=turn, call=call, epoch=epoch):
                if epoch < self._drive.epoch and state.turns[turn].loop == "ours":
                    # Only pure or idempotent calls get here: recovery has put all others in doubt.
                    self._start_tool(turn, call)
            case Park(turn=turn):
                existing = tuple(
                    each.call for each in self._tried if isinstance(each, CreateDelegate)
                )
                return commit(ParkTurn(turn=turn, existing=existing))
            case Finish(turn=turn):
                return commit(EndTurn(turn=turn, policy=world.policy()))
            case CreateDelegate() | StopDelegate() | ReportToParent():
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
        # A turn of an external loop waits for its loop, so that it does not block the queue.
        left = (LeaveLoop(turn=turn),) if taken[0].loop == "foreign" else ()
        await self.ledger.drive(StartTurn(epoch=self._drive.epoch), *recalled, *left)

    # --- other sessions

    def _reach_out(
        self, effect: CreateDelegate | StopDelegate | ReportToParent
    ) -> Coroutine[Any, Any, None] | None:
        if effect in self._tried:
            return None
        self._tried.add(effect)
        match effect:
            case CreateDelegate(turn=turn, call=call):
                return create_delegate(self.runtime, self.ledger, turn, call)
            case StopDelegate(call=call):
                return stop_delegate(self.runtime, self.ledger, call)
            case ReportToParent():
                return report_to_parent(self.runtime, self.ledger)

    # --- deliveries

    @property
    def _outbox(self) -> Outbox:
        world = self._world
        return Outbox(
            world.channels,
            self.ledger,
            world.clock,
            secrecy_of(world.secrets),
            retry_seconds=world.model_times.retry_seconds,
            chats=world.chats,
        )

    async def deliver_owed(self) -> None:
        """
        Send the queued deliveries now, for a turn that an external loop drives. The driver must
        hold the claim.
        """
        for delivery in self._outbox.may_start(self.ledger.state):
            await self._outbox.deliver(delivery)

    def _start_deliveries(self, state: SessionState) -> None:
        outbox = self._outbox
        for delivery in outbox.may_start(state):
            self._tasks.start(
                TaskName("deliver", state.deliveries[delivery].turn, delivery),
                partial(outbox.deliver, delivery),
            )

    # --- tools

    def _start_tool(self, turn: TurnId, call: CallId) -> None:
        self._tasks.start(TaskName("tool", turn, call), partial(self._run_call, turn, call))

    async def _run_call(self, turn_id: TurnId, call_id: CallId) -> None:
        if self.ledger.state.parent is not None and await stop_if_unwanted(
            self.runtime, self.ledger
        ):
            return
        world, ledger = self._world, self.ledger
        turn, call = ledger.state.turns.get(turn_id), ledger.state.open_call(turn_id, call_id)
        tool = tool_for(world, turn, call.tool) if turn is not None and call is not None else None
        if tool is not None and is_delegate(tool):
            await start_delegate(self._drive, turn_id, call_id)
        else:
            await run_tool(self._drive, turn_id, call_id)

    # --- giving up

    def let_go(self) -> None:
        """
        The attempt is over, and its claim with it. Tasks that wait for this driver then catch up
        themselves and get the reason.
        """
        if self.owns_claim:
            self._held, self.ledger.driving = None, False
            self.ledger.wake_watchers()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """On every way out: release the claim, and let the ledger announce what is new."""
        if self.ledger.is_spent:
            self.let_go()
            return
        await self.give_up()
        await self.ledger.settle()

    async def give_up(self) -> None:
        """
        Release the claim. Catch up again afterwards: a record may have come between the last check
        and the release.
        """
        if self._held is None:
            return
        self._held = self.ledger.driver_facts = None
        try:
            await self.ledger.attempt.give_up()
        finally:
            self.ledger.driving = False
