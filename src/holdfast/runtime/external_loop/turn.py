"""
One turn in the hands of an external loop. Holdfast keeps its authority, its gates and its history;
the loop runs the model calls and the tools.

    async with home.turn("ops/api", "restart the api", source=alice, dedup="msg-17") as turn:
        (gate,) = await turn.said("I restart it.", calls=[LoopCall("c1", "restart", {...})])
        if gate.waiting:
            gate = await turn.wait(gate)  # or leave: the prompt stands, and the same line resumes
        gate = await turn.call(gate, lambda arguments: restart(**arguments))
        await turn.finish("done")

The loop holds the session's claim while it drives, and gives it up while it only waits. If it dies,
calls that it had started are in doubt and everything else stands: any process takes the turn up.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

import msgspec

from holdfast import limits
from holdfast.errors import Busy, Refused, Unusable
from holdfast.ids import CallId
from holdfast.ports.journal_store import Check
from holdfast.runtime.cancellation import finish, wait_for
from holdfast.runtime.drive.bound_call import bind_call
from holdfast.runtime.drive.compactor import Compactor
from holdfast.runtime.external_loop.blobs import refuse_others, same_adapter, unpack
from holdfast.runtime.external_loop.gate import (
    NO_USAGE,
    Gate,
    LoopAnswer,
    LoopCall,
)
from holdfast.runtime.external_loop.home_tools import HomeToolSteps
from holdfast.runtime.external_loop.proposals import loop_text, proposals_from
from holdfast.runtime.reports.builder import turn_report
from holdfast.runtime.reports.types import ApprovalReport, TurnReport, approval_report
from holdfast.session.authority.policy import BoundCall
from holdfast.session.commands import (
    DecideCalls,
    EndTurn,
    FailTurn,
    KeepState,
    ProposeCalls,
)
from holdfast.session.decide.external_loop import calls_to_make, known_call
from holdfast.session.events import Blob
from holdfast.session.state import Call, CallStatus, Turn
from holdfast.session.view.messages import ProposedCall, Usage

S = CallStatus


class ExternalTurn(HomeToolSteps):
    """
    The value of `home.turn`. If it is left without an end, it waits for a loop to take it up, and
    fails as `loop_lost` after a day.
    """

    # --- the state of the turn

    @property
    def session(self) -> str:
        return self._ledger.session

    async def report(self) -> TurnReport:
        """Where the turn stands, or how it ended."""
        return await turn_report(self._ledger, self.turn)

    @property
    def approvals(self) -> tuple[ApprovalReport, ...]:
        """The prompts of this turn that wait for an answer."""
        turn = self._ledger.state.turns.get(self.turn)
        if turn is None:
            return ()
        return tuple(
            approval_report(self._ledger.session, self._ledger.instance, turn, each)
            for each in turn.open_approvals
        )

    async def gates(self) -> tuple[Gate, ...]:
        """One gate for each call of this turn that has not ended."""
        turn = self._open()
        mine = [call for call in turn.calls if call.status is not S.FINISHED]
        return tuple([await self._gate(call.call) for call in mine if call.path == self._path])

    async def answers(self, *, adapter: str | None = None) -> tuple[LoopAnswer, ...]:
        """
        The answers that `said` has recorded in this turn, in their order: a loop that replays its
        steps need not ask the model again. With `adapter`, an answer that another adapter recorded,
        or another version of it, is refused.
        """
        turn = self._open()
        if adapter is not None:
            refuse_others([each.blob for each in turn.said if each.blob is not None], adapter)
        ids = {call.call: self._own_id(call) for call in (*turn.past, *turn.calls)}
        return tuple(
            [
                LoopAnswer(
                    each.text,
                    tuple(ids.get(call) for call in each.calls),
                    await unpack(self._ledger, each.blob) if each.blob is not None else None,
                )
                for each in turn.said
                if each.parent == self._parent
            ]
        )

    # --- what the model says

    async def said(
        self,
        text: str = "",
        calls: Sequence[LoopCall] = (),
        *,
        usage: Usage | None = None,
        model: str | None = None,
        blob: bytes | str | None = None,
        adapter: str | None = None,
    ) -> tuple[Gate, ...]:
        """
        Record an answer of the loop's model, with all its calls, and return one gate per call. All
        prompts that are needed stand when this returns.

        A call whose id this turn knows is not proposed again: its gate is returned as it stands.
        """
        packed = await self._packed(blob, adapter) if blob is not None else None
        return await self._propose(
            calls, text, usage=usage or NO_USAGE, model=model, blob=packed, answers=True
        )

    async def gate(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        id: str | None = None,  # noqa: A002  # the field's name
        text: str = "",
        may_repeat: bool = False,
    ) -> Gate:
        """
        Ask for one call, for a loop that does not see its model's answers. The same `id` again is
        the same call.
        """
        call = LoopCall(id, tool, arguments, may_repeat)
        (gate,) = await self._propose([call], text, usage=NO_USAGE, answers=False)
        return gate

    async def _propose(
        self,
        calls: Sequence[LoopCall],
        text: str,
        *,
        usage: Usage,
        answers: bool,
        model: str | None = None,
        blob: Blob | None = None,
    ) -> tuple[Gate, ...]:
        text = loop_text(text, "text of an answer")
        model = loop_text(model, "name of the model") if model is not None else None
        if not isinstance(usage, Usage):
            raise Unusable(
                f"{usage!r:.200} is not a usage", code="malformed", hint="use a holdfast.Usage"
            )
        given = proposals_from(calls, self._prefix, self._parent, self._path)
        hidden = tuple(self._hidden(each) for each in given)
        async with self._driving():
            turn = self._open()
            secret = {
                each.call
                for each in calls_to_make(self._ledger.state, turn, hidden)
                if any(
                    proposal != one and proposal.provider_id == each.provider_id
                    for proposal, one in zip(hidden, given, strict=True)
                )
            }
            propose = ProposeCalls(
                turn=self.turn,
                calls=hidden,
                text=self._secrecy.hidden(text),
                policy=self._world.policy(),
                usage=usage,
                model=self._secrecy.hidden(model) if model is not None else None,
                blob=blob,
                answers=answers,
                parent=self._parent,
            )
            made = [
                Call(
                    call=each.call,
                    tool=each.tool,
                    made=each.arguments,
                    provider_id=each.provider_id,
                    parent=each.parent,
                    path=each.path,
                    may_repeat=each.may_repeat,
                )
                for each in calls_to_make(self._ledger.state, turn, hidden)
            ]
            decide = await self._decision(turn, made, secret)
            ids = (await self._drive(propose, decide, check=Check.FENCE)).of(propose)
            await self._driver.deliver_owed()
            if ids is None:
                self._open()
                raise Refused(
                    f"turn {self.turn} was cancelled", code="cancelled", hint="begin another"
                )
            return tuple([await self._gate(each) for each in ids])

    def _hidden(self, call: ProposedCall) -> ProposedCall:
        hide = self._secrecy.hidden
        return msgspec.structs.replace(
            call,
            tool=hide(call.tool),
            arguments=hide(call.arguments),
            provider_id=hide(call.provider_id) if call.provider_id is not None else None,
        )

    async def _decision(
        self, turn: Turn, calls: Sequence[Call], secret: set[CallId]
    ) -> DecideCalls:
        bound = [
            BoundCall(call=call.call, problem=("secret", "its arguments hold a secret"))
            if call.call in secret
            else await bind_call(self._world, self._ledger.state, turn, call)
            for call in calls
        ]
        return DecideCalls(
            turn=self.turn,
            bound=tuple(bound),
            policy=self._world.policy(),
            grants=await self._grants(turn),
        )

    # --- gates

    async def look(self, gate: Gate | str) -> Gate:
        """Return a gate as it stands now, by the gate or by the caller's id. Nothing waits."""
        self._open()
        await self._ledger.catch_up_if_behind()
        turn = self._open()
        if isinstance(gate, Gate):
            return await self._gate(gate.call)
        known = known_call(turn, self._prefix + gate) if isinstance(gate, str) else None
        if known is None:
            raise Refused(
                f"{gate!r} is not a call of this turn",
                code="unknown",
                hint="name a call that `said` or `gate` was given",
            )
        return await self._gate(known.call)

    async def wait(self, gate: Gate | None = None) -> Gate:
        """
        Wait until the gate no longer waits; without a gate, until any open one does not. Holds no
        claim meanwhile; the prompt outlives this process. An edited call is asked again, and this
        waits on.

        A gate that does not wait is returned as it is.
        """
        if gate is not None and not gate.waiting:
            return gate
        watch = self._ledger.watch()
        try:
            while True:
                watch.clear()
                await self._ledger.catch_up()
                found = await self._answered(gate)
                if found is not None:
                    return found
                await self._give_up_if_idle()
                await wait_for(watch)
        finally:
            self._ledger.unwatch(watch)

    async def _answered(self, gate: Gate | None) -> Gate | None:
        if gate is not None:
            found = await self._gate(gate.call)
            return None if found.waiting else found
        gates = await self.gates()
        if not gates:
            raise Unusable(
                f"turn {self.turn} waits for no answer",
                code="malformed",
                hint="wait for a gate that says gate.waiting",
            )
        return next((each for each in gates if not each.waiting), None)

    async def _give_up_if_idle(self) -> None:
        """Other turns of the session may run while this one only waits."""
        async with self._step:
            turn = self._ledger.state.turns.get(self.turn)
            if turn is None or turn.parked:
                await self._driver.give_up()

    # --- the framework's own state

    async def keep(self, blob: bytes | str, *, adapter: str) -> None:
        """
        Keep the framework's state in this turn; the latest of an adapter counts. It is refused as a
        whole, with its name, if it holds a known secret.
        """
        self._open()
        packed = await self._packed(blob, adapter)
        async with self._driving():
            command = KeepState(turn=self.turn, blob=packed)
            if not (await self._ledger.drive(command, check=Check.FENCE)).of(command):
                self._open()
                raise Refused(
                    f"turn {self.turn} was cancelled", code="cancelled", hint="begin another"
                )

    async def kept(self, adapter: str) -> bytes | None:
        """The state that this adapter kept last in this turn, or None."""
        found = same_adapter(self._open().kept, adapter)
        return await unpack(self._ledger, found) if found is not None else None

    # --- nested agents

    def child(self, gate: Gate, *, agent: str) -> Self:
        """
        The same turn, for an agent that a started call of it runs. Its calls have the turn's
        authority and no other tools than the turn has; prompts show the path of agents.
        """
        turn, call = self._find(gate)
        if call.status is not S.STARTED:
            raise Unusable(
                f"{gate.call} does not run, so no agent runs in it",
                code="malformed",
                hint="start the call first: turn.call(gate, run)",
            )
        if not isinstance(agent, str) or not agent.strip() or len(self._path) >= _DEPTH_MAX:
            raise Unusable(
                f"{agent!r} can't be a nested agent here",
                code="malformed",
                hint=f"name it; at most {_DEPTH_MAX} are nested",
            )
        nested = copy.copy(self)
        nested._parent = call.call  # noqa: SLF001  # a copy of this very object
        nested._path = (*self._path, self._secrecy.hidden(agent))  # noqa: SLF001  # as above
        nested._prefix = f"{self._prefix}{self._own_id(call) or call.call}/"  # noqa: SLF001  # as above
        del turn
        return nested

    # --- the end

    async def finish(self, reply: str) -> TurnReport:
        reply = loop_text(reply, "reply")
        self._loop.check()
        turn = self._ledger.state.turns.get(self.turn)
        if turn is None:
            return await turn_report(self._ledger, self.turn)
        if turn.cancelled_by is None and any(each.status is not S.FINISHED for each in turn.calls):
            raise _unfinished()
        async with self._driving():
            end = EndTurn(
                turn=self.turn, policy=self._world.policy(), reply=self._secrecy.hidden(reply)
            )
            await self._drive(end, check=Check.FENCE)
            await self._make_room()
        if not self.is_over:
            raise _unfinished()
        return await turn_report(self._ledger, self.turn)

    async def fail(self, code: str, message: str) -> TurnReport:
        hide = self._secrecy.hidden
        fail = FailTurn(
            turn=self.turn,
            code=hide(loop_text(code, "code")),
            message=hide(loop_text(message, "message")),
        )
        self._loop.check()
        async with self._driving():
            await self._ledger.drive(fail)
            await self._make_room()
        return await turn_report(self._ledger, self.turn)

    async def _make_room(self) -> None:
        """Ended turns join the session's view, which must not grow for ever."""
        compactor = Compactor(
            self._world, self._ledger, self._driver.runtime.feed, self._ledger.drive
        )
        with suppress(Busy):  # the turn has ended; the next one's end makes room
            await compactor.without_model()

    async def leave(self) -> None:
        """
        Leave the turn. If it has not ended, it waits for a loop to take it up, and started calls
        are in doubt. Leaving twice changes nothing.
        """
        self._loop.check()
        if self._left:
            return
        self._left = True
        try:
            await finish(self._leave())
        finally:
            await finish(self._close())


_DEPTH_MAX = limits.DELEGATE_DEPTH_MAX


def _unfinished() -> Refused:
    return Refused(
        "a call of this turn has no outcome yet",
        code="busy",
        hint="record it or wait for its answer first, or fail the turn",
    )
