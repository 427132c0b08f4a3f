"""
The call that a turn begins with, for a loop that knows it beforehand and runs it with the home's
own tool: its message, its decision and its start are one commit.

Every decision is pure, so the state after the message is computed before anything is durable. The
call is bound and prepared for that state, which has no effect. The commit then decides it all again
at the head. If the call is not simply allowed, or the head is another one by then, this makes no
call, and the turn goes on step by step.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.ids import CallId, TurnId
from holdfast.ports.tools import CannotBind, Prepared
from holdfast.runtime.context import World
from holdfast.runtime.drive.bound_call import bind_to_tool, scene_of, tool_for
from holdfast.runtime.external_loop.gate import NO_USAGE, LoopCall
from holdfast.runtime.external_loop.proposals import proposals_from
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.context import LostContext
from holdfast.session.authority.policy import Allow, BoundCall, Policy
from holdfast.session.commands import DecideCalls, ProposeCalls, SessionCommand, StartTool
from holdfast.session.decide import commit as deciding
from holdfast.session.decide.calls import judge_call
from holdfast.session.state import SessionState

StillWanted = Callable[[SessionState], bool]


class FirstStart(NamedTuple):
    """A call whose start is durable. It runs once, now."""

    call: CallId
    run: int
    prepared: Prepared


class FirstCall:
    """`is_wanted` is asked with the state that the call would be made in."""

    def __init__(
        self, world: World, home: HomeLedger, call: LoopCall, is_wanted: StillWanted
    ) -> None:
        self._world, self._home = world, home
        self._call, self._is_wanted = call, is_wanted
        self._start: StartTool | None = None
        self._prepared: Prepared | None = None
        self._run: int | None = None

    async def steps(
        self, ledger: Ledger, before: Sequence[SessionCommand], epoch: int
    ) -> Sequence[SessionCommand]:
        """Return the commands that make, decide and start the call; none if it may have to wait."""
        (proposed,) = proposals_from([self._call], "", None, ())
        if secrecy_of(self._world.secrets).holds(f"{proposed.tool} {proposed.arguments}"):
            return ()
        policy = self._world.policy()
        now = self._home.decided_at(self._world.clock.now_ms())
        known = set(ledger.state.turns)
        begun = deciding.commit(ledger.state, before, now=now, floor=now)
        turn = begun.state.running
        if begun.refusal is not None or turn is None or turn in known:
            return ()
        propose = ProposeCalls(
            turn=turn,
            calls=(proposed,),
            text="",
            policy=policy,
            usage=NO_USAGE,
            answers=False,
            # Another message may be accepted while this call is prepared. The turn that begins then
            # is that message's.
            inputs=begun.state.inputs,
        )
        state = deciding.commit(begun.state, [propose], now=now, floor=now).state
        if turn not in state.turns or not self._is_wanted(state):
            return ()
        decide = await self._prepared_for(state, turn, policy, now)
        if decide is None:
            return ()
        if self._prepared is None:
            return propose, decide
        self._start = StartTool(
            turn=turn, bound=decide.bound[0], policy=policy, grants=decide.grants, epoch=epoch
        )
        return propose, decide, self._start

    async def _prepared_for(
        self, state: SessionState, turn_id: TurnId, policy: Policy, now: int
    ) -> DecideCalls | None:
        """Prepare the call if policy or a grant allows it as it is."""
        world, turn = self._world, state.turns[turn_id]
        (call,) = turn.calls
        tool = tool_for(world, turn, call.tool)
        bound = await bind_to_tool(world, state, turn, call, tool)
        if tool is None or bound.arguments is None or bound.binding is None:
            return None
        if isinstance(turn.context, LostContext):
            return None
        grants = await self._home.grants_of(turn.context.requester, state)
        verdict = judge_call(state, turn.context, call, bound, policy, grants, now)
        if not isinstance(verdict, Allow):
            return None
        scene = scene_of(world, state, turn, call.call)
        try:
            self._prepared = await tool.prepare(
                bound.arguments.encode(), bound.binding, scene, idempotency_key=call.call
            )
        except CannotBind as exc:
            # The call is decided with this problem, as a denial. Nothing ran.
            bound = BoundCall(call=call.call, problem=(exc.code, str(exc)))
        return DecideCalls(turn=turn_id, bound=(bound,), policy=policy, grants=grants)

    def take(self, committed: deciding.Committed) -> None:
        """The commit of `steps` is durable."""
        if self._start is not None:
            self._run = committed.of(self._start)

    def started(self) -> FirstStart | None:
        """Return the call if its start is durable."""
        if self._start is None or self._run is None or self._prepared is None:
            return None
        return FirstStart(self._start.bound.call, self._run, self._prepared)

    async def abandon_unstarted(self) -> None:
        if self._prepared is not None and self._run is None:
            await self._prepared.abandon()
