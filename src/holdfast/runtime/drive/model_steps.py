"""
One model call, from its durable start to its durable outcome; the wait before its next try; the
decision about the calls that the model made; and the resume of a turn whose prompt was answered,
which starts the approved call.

No lock is held over the model. Its answer is taken only under a verified fence, in one commit with
the decision which calls may run, which must ask and, where that is quick, with their start.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.ids import CallId, TurnId
from holdfast.ports.journal_store import Check
from holdfast.ports.model import ModelFailed
from holdfast.ports.tools import Tool
from holdfast.runtime.drive.bound_call import BoundBatch, bind_to_tool, names_servers, tool_for
from holdfast.runtime.drive.compactor import Compactor
from holdfast.runtime.drive.drive import Drive, TaskName
from holdfast.runtime.drive.model_call import (
    Offer,
    WrittenAnswer,
    ask_model,
    offer_of,
    request_for,
)
from holdfast.runtime.drive.tool_call import (
    Ready,
    StartedCall,
    get_ready,
    run_started_call,
    starts_alone,
    starts_at_once,
)
from holdfast.runtime.ledger.attempt import Produced
from holdfast.runtime.memory.recall import recall_for_open
from holdfast.runtime.redaction import hidden_answer
from holdfast.runtime.streams.feed import Reply
from holdfast.secrecy import StreamedText, secrecy_of
from holdfast.session.authority.policy import BoundCall, Policy
from holdfast.session.commands import (
    KeepPartialAnswer,
    ResumeTurn,
    StartModelCall,
    TakeAnswer,
    TakeFailure,
)
from holdfast.session.decide.model_failures import retry_wait_seconds
from holdfast.session.decide.turns import calls_of_reply
from holdfast.session.state import Call, CallStatus, SessionState, Turn


class ModelSteps:
    """The steps of one drive that ask the model and decide its calls."""

    def __init__(self, drive: Drive) -> None:
        self._drive = drive
        self._ledger = drive.ledger
        self._world = drive.world
        self._secrecy = secrecy_of(drive.world.secrets)
        self._compactor = Compactor(
            drive.world, drive.ledger, drive.runtime.feed, drive.ledger.drive
        )

    def start_model(self, state: SessionState, turn: TurnId) -> None:
        open_turn = state.turns[turn]
        mine = open_turn.model_call is None or open_turn.model_call.epoch == self._drive.epoch
        if mine:
            self._drive.tasks.start(TaskName("model", turn), partial(self._model_step, turn))

    async def _model_step(self, turn_id: TurnId) -> None:
        """Run one model call, from its durable start to its durable outcome."""
        ledger, world = self._ledger, self._world
        offer = await self._start_model_call(turn_id)
        turn = ledger.state.turns.get(turn_id)
        if offer is None or turn is None:
            return
        if turn.model_call is None or turn.model_call.epoch != self._drive.epoch:
            return
        number = turn.model_call.number
        request = request_for(ledger.state, turn, offer)

        feed, after = self._drive.runtime.feed, ledger.state.seq
        ledger.attempt.release_nowait()
        with Reply(feed, ledger.session, turn_id, after) as reply:
            streamed = StreamedText(self._secrecy, reply.hear)
            # Somebody may have given the turn another model meanwhile.
            same = turn.model == offer.name
            model = offer.model if same else world.models.resolve(turn.model)
            try:
                written = await ask_model(
                    model, request, on_text=streamed.hear, times=world.model_times
                )
            except asyncio.CancelledError:
                await self._keep_partial(turn_id, number, reply.text)
                raise
            except ModelFailed as failure:
                await self._take_failure(turn, number, failure)
                return
            streamed.end()
        await self._take_answer(turn, number, written)

    async def _keep_partial(self, turn_id: TurnId, number: int, text: str) -> None:
        """
        Keep the text that people saw of a stopped answer. If the turn goes on, nothing is kept: the
        process ends, and the next driver asks the model again.
        """
        turn = self._ledger.state.turns.get(turn_id)
        if not text or (turn is not None and turn.cancelled_by is None):
            return
        kept = KeepPartialAnswer(turn=turn_id, number=number, text=text)
        await self._ledger.drive(kept, check=Check.FENCE)

    async def _start_model_call(self, turn_id: TurnId) -> Offer | None:
        """
        Start a model call unless one of this driver is running. First wait out the retry delay and
        compact the view if needed. Return None if the turn is gone.
        """
        ledger, world = self._ledger, self._world
        turn = ledger.state.turns.get(turn_id)
        if turn is None:
            return None
        agent = world.agent(turn.agent)
        if world.servers is not None and names_servers(agent):
            await self._drive.runtime.pins.refresh()  # another process may have pinned or withdrawn
        if turn.model_call is None:
            await self._wait_for_next_try(turn)
        offer = offer_of(world, turn, agent, world.policy())
        if turn.model_call is None or turn.model_call.epoch == self._drive.epoch:
            if await self._compactor.before_call(turn_id, offer.model, extra_chars=offer.chars):
                # It took its time.
                offer = offer_of(world, turn, world.agent(turn.agent), world.policy())
            turn = ledger.state.turns.get(turn_id)
        if turn is not None and turn.model_call is None:
            recalled = await recall_for_open(world, ledger.state, turn)
            policy = world.policy()
            offer = offer_of(world, turn, world.agent(turn.agent), policy)
            await ledger.drive(
                *recalled, StartModelCall(turn=turn_id, epoch=self._drive.epoch, policy=policy)
            )
        return offer

    async def _wait_for_next_try(self, turn: Turn) -> None:
        """
        Wait until the journalled time of the next try. A crash in the wait loses nothing: the next
        driver waits for the same time. A cancel ends the task that waits.
        """
        delay_seconds = retry_wait_seconds(
            turn,
            now=self._world.now_ms(),
            retry_for_seconds=self._world.policy().model_retry_for_seconds,
        )
        if delay_seconds > 0:
            await self._world.clock.sleep(delay_seconds)

    async def _take_failure(self, turn: Turn, number: int, failure: ModelFailed) -> None:
        command = TakeFailure(
            turn=turn.id,
            number=number,
            kind=failure.kind,
            message=self._secrecy.hidden(failure.message),
            final=not failure.may_pass and failure.kind != "overflow",
            line=failure.line,
            hint=failure.hint,
            retry_after_seconds=failure.retry_after_seconds,
            first_wait_seconds=self._world.model_times.retry_seconds,
            retry_for_seconds=self._world.policy().model_retry_for_seconds,
        )
        await self._ledger.drive(command, check=Check.FENCE)

    async def _take_answer(self, turn: Turn, number: int, written: WrittenAnswer) -> None:
        """
        Take the answer only under a verified fence. The same commit decides which calls may run and
        which must ask.
        """
        ledger, (answer, data), secret = self._ledger, written, frozenset[int]()
        if self._secrecy.holds(data):
            answer, secret = hidden_answer(self._secrecy, answer)
            data = msgspec.json.encode(answer)
        produced = ledger.attempt.produced("reply", data)
        if not answer.calls:
            taken = TakeAnswer(
                turn=turn.id, number=number, answer=answer, policy=self._world.policy()
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
                turn=turn.id, number=number, answer=answer, policy=policy
            ), found.decision(turn.id, policy)

        await self._drive_and_start(turn.id, commands, ready, keeping=[produced])

    async def resume(self, turn: Turn) -> None:
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
        resume = ResumeTurn(turn=turn.id, epoch=self._drive.epoch)
        await self._drive_and_start(turn.id, lambda _: (resume,), ready, keeping=())

    async def _ready_at_once(
        self, turn: Turn, calls: list[Call], found: BoundBatch, may: Callable[[Tool | None], bool]
    ) -> list[Ready]:
        """
        Prepare the calls that may start in the commit that decides them. That commit decides
        whether they start; calls that must ask first do not.

        Return nothing for a delegate: the parent's journal is checked before each of its starts.
        """
        if self._ledger.state.parent is not None:
            return []
        ready: list[Ready] = []
        for call, bound, tool in zip(calls, found.bound, found.tools, strict=True):
            if not bound.background and may(tool):
                ready.append(await get_ready(self._drive, turn, call, bound, tool, found.grants))
        return ready

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
                    self._start_running(StartedCall(turn, each.bound.call, run, each.prepared))
        finally:
            for each in waiting:
                await each.abandon()

    def _start_running(self, started: StartedCall) -> None:
        work = partial(run_started_call, self._drive, started)
        self._drive.tasks.start(TaskName("tool", started.turn, started.call), work)

    async def _look_at(
        self, turn: Turn, calls: list[Call], secret: frozenset[int] = frozenset()
    ) -> BoundBatch:
        """
        Bind each call. Calls at the indexes in `secret` held a secret and are refused without
        binding.
        """
        world, state = self._world, self._ledger.state
        tools = tuple([tool_for(world, turn, call.tool) for call in calls])
        bound: list[BoundCall] = []
        for index, (call, tool) in enumerate(zip(calls, tools, strict=True)):
            bound.append(
                BoundCall(call=call.call, problem=("secret", "its arguments hold a secret"))
                if index in secret
                else await bind_to_tool(world, state, turn, call, tool)
            )
        return BoundBatch(tuple(bound), await self._drive.grants_of(turn), tools)

    async def decide_calls(
        self, state: SessionState, turn_id: TurnId, calls: tuple[CallId, ...]
    ) -> None:
        turn = state.turns[turn_id]
        undecided = [call for call in turn.calls if call.call in calls]
        found = await self._look_at(turn, undecided)
        await self._ledger.drive(found.decision(turn_id, self._world.policy()))
