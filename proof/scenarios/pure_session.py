"""
A session without adapters: the real decide, evolve, react and codec over a list of stored bytes,
with invented tools, time and people.

Scenarios, property tests and the simulator share it. Every commit goes to bytes and back (`do`), so
the folded state is the one that a journal would give. A crash keeps a prefix of the records and
nothing else.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import InvariantBroken
from holdfast.ids import (
    ApprovalId,
    CallId,
    GrantId,
    InstanceId,
    SessionId,
    TurnId,
    delegate_session,
)
from holdfast.session.authority.approvals import SCOPES, folder_of
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.grants import granted_arguments, identities_of
from holdfast.session.authority.plan import Binding, Level, ToolDefinition
from holdfast.session.authority.policy import BoundCall, Policy
from holdfast.session.codec import decode, encode
from holdfast.session.commands import (
    AnswerApproval,
    DecideCalls,
    FinishCall,
    JobPlan,
    NewDelegate,
    ReportDelegate,
    SessionCommand,
    StartTool,
)
from holdfast.session.decide.commit import Committed, commit
from holdfast.session.events import CallOutcome, DelegateOf, SessionBorn, SessionEvent, ToolStarted
from holdfast.session.evolve.fold import evolve, fold, initial
from holdfast.session.home.events import GrantProposed
from holdfast.session.state import Call, CallStatus, SessionState, Turn
from proof.checkers.grant_oracle import check_start

SESSION = SessionId("ops/api")
INSTANCE = InstanceId("life-1")
START_MS = 1_700_000_000_000
WORKSPACE = "/srv"

_ANY = '{"type":"object"}'
TOOLS = {
    each.name: each
    for each in (
        ToolDefinition(
            name="look",
            description="Look.",
            parameters=_ANY,
            contract="pure",
            default_mode="auto",
            audience="public",
        ),
        ToolDefinition(
            name="peek",
            description="Look, if allowed.",
            parameters=_ANY,
            contract="pure",
            audience="public",
        ),
        ToolDefinition(name="delete", description="Delete.", parameters=_ANY, audience="team"),
        ToolDefinition(
            name="tidy",
            description="Tidy up.",
            parameters=_ANY,
            default_mode="auto",
            audience="team",
        ),
        ToolDefinition(
            name="charge",
            description="Charge.",
            parameters=_ANY,
            contract="idempotent",
            audience="team",
        ),
        ToolDefinition(
            name="dig", description="Dig, in the background.", parameters=_ANY, audience="team"
        ),
        ToolDefinition(name="shell", description="Run.", parameters=_ANY, kind="shell"),
        ToolDefinition(name="write_file", description="Write.", parameters=_ANY, kind="write_file"),
        ToolDefinition(
            name="delegate_helper",
            description="Hand on.",
            parameters=_ANY,
            kind="delegate",
            default_mode="auto",
            audience="team",
        ),
        ToolDefinition(
            name="ask_person",
            description="Ask.",
            parameters=_ANY,
            kind="question",
            default_mode="auto",
            audience="public",
        ),
    )
}
"""
One tool of each sort. `dig` continues as a job. `delete` asks and must not run twice. `tidy` must
not run twice and does not ask. `charge` may be repeated with its key. `delegate_helper` delegates a
task.
"""
BACKGROUND = frozenset({"dig"})
JOB = JobPlan(
    host="process",
    process={"boot_id": "boot-1", "group": 4711, "start_time": 1},
    seconds_max=60.0,
    bytes_max=1000,
)


class Stored(NamedTuple):
    type: str
    version: int
    body: bytes
    at: int


def replay(records: Iterable[Stored], state: SessionState | None = None) -> SessionState:
    """Fold bytes into a state, as a fresh process does."""
    state = initial(SESSION, INSTANCE) if state is None else state
    first = state.seq + 1
    return fold(
        state,
        (
            (seq, each.at, decode(each.type, each.version, each.body, seq=seq))
            for seq, each in enumerate(records, first)
        ),
    )


class PureSession:
    """
    One instance of `ops/api`, its world and its settings. The test may change `now` and every
    public field.
    """

    def __init__(self, parent: DelegateOf | None = None) -> None:
        self.records: list[Stored] = []
        self.state = initial(SESSION, INSTANCE)
        self.now = START_MS
        self.epoch = 1
        self.policy = Policy()
        self.tools: dict[str, ToolDefinition] = dict(TOOLS)
        self.grants: dict[str, GrantProposed] = {}
        self.known_grants: set[str] = set()  # the revoked ones too
        # The facts that binding a call finds: the folder's identity, and the level of confinement.
        self.identity = "1:1"
        self.level: Level = "isolated"
        self.tools_say = "done"
        self.keeps_grants = True  # False: the home's journal can't be written
        self.append(
            [
                SessionBorn(
                    session=SESSION,
                    instance=INSTANCE,
                    origin="created" if parent is None else "delegate",
                    by="tests",
                    parent=parent,
                )
            ]
        )

    # --- bytes

    def append(self, events: Iterable[SessionEvent]) -> None:
        """Write records unchanged and fold them."""
        stored = [Stored(*encode(event), self.now) for event in events]
        self.state = replay(stored, self.state)
        self.records.extend(stored)

    def do(self, *commands: SessionCommand) -> Committed:
        """Decide and append. The state folded from the bytes must equal the decided state."""
        committed = commit(self.state, commands, now=self.now)
        self.now = max(self.now, self.state.at)
        self.append(committed.events)
        if self.state != committed.state:
            raise InvariantBroken("bytes folded back differ from what was decided")
        return committed

    def crash(self, keep: int | None = None) -> None:
        """
        Kill the driver. `keep` records survive (all by default). The next driver has a higher
        epoch.
        """
        if keep is not None:
            del self.records[keep:]
        self.state = replay(self.records)
        self.epoch += 1

    def events(self) -> list[SessionEvent]:
        return [decode(each.type, each.version, each.body) for each in self.records]

    def states_after(
        self, seq: int, state: SessionState | None = None
    ) -> Iterable[tuple[int, SessionEvent, SessionState]]:
        """
        Return events after `seq`, each with its resulting state. `state` is the one at `seq`, if
        known.
        """
        state = replay(self.records[:seq]) if state is None else state
        for number, each in enumerate(self.records[seq:], seq + 1):
            event = decode(each.type, each.version, each.body, seq=number)
            state = evolve(state, event, seq=number, at=each.at)
            yield number, event, state

    def states(self) -> Iterable[tuple[SessionEvent, SessionState]]:
        state = initial(SESSION, INSTANCE)
        for seq, (event, each) in enumerate(zip(self.events(), self.records, strict=True), 1):
            state = evolve(state, event, seq=seq, at=each.at)
            yield event, state

    # --- the world

    def look(self, turn: Turn, call: Call) -> BoundCall:
        """
        Return the facts that an adapter would find: `path=/outside/...` is outside the workspace,
        `$(` can't be parsed with certainty, `home` is hard-denied.
        """
        definition = self.tools.get(call.tool)
        if definition is None:
            return BoundCall(call=call.call, problem=("unknown_tool", f"no tool {call.tool}"))
        if definition.kind == "delegate" and turn.loop == "foreign":
            return BoundCall(
                call=call.call, problem=("cannot_bind", "a foreign loop calls its agents itself")
            )
        try:
            # An edit changes the executed text; otherwise the model's text is executed.
            text = (
                call.arguments
                if call.edited_by is not None and call.arguments is not None
                else call.made
            )
            fields = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            return BoundCall(
                call=call.call, problem=("invalid_arguments", "the arguments are not a JSON object")
            )
        if fields.get("path") == "home":
            return BoundCall(
                call=call.call, problem=("hard_deny", "the Holdfast home is out of bounds")
            )
        return BoundCall(
            call=call.call,
            definition=definition,
            arguments=msgspec.json.encode(fields, order="sorted").decode(),
            binding=self.bind(turn, definition, fields),
            background=definition.name in BACKGROUND,
        )

    def bind(self, turn: Turn, definition: ToolDefinition, fields: dict[str, Any]) -> Binding:
        place = turn.context.workspace if isinstance(turn.context, TurnContext) else None
        cwd = fields.get("cwd") or (place.path if place is not None else WORKSPACE)
        path = str(fields.get("path", ""))
        file_tool = definition.kind in ("read_file", "write_file")
        return Binding(
            display=f"{definition.name} {msgspec.json.encode(fields, order='sorted').decode()}",
            cwd=cwd if definition.kind == "shell" else None,
            cwd_identity=self.identity,
            level=self.level if definition.kind == "shell" else None,
            reach="outside" if path.startswith("/outside") else "workspace" if path else "none",
            readable="$(" not in str(fields.get("command", "")),
            path=path if file_tool else cwd if definition.kind == "shell" else None,
        )

    # --- steps that bind a call

    def bound(self, turn: TurnId, *calls: CallId) -> tuple[BoundCall, ...]:
        open_turn = self.state.turns.get(turn)
        if open_turn is None:
            return ()
        wanted = [
            call
            for call in open_turn.calls
            if call.call in calls or (not calls and call.status is CallStatus.PROPOSED)
        ]
        return tuple(self.look(open_turn, call) for call in wanted)

    def active_grants(self) -> tuple[GrantProposed, ...]:
        return tuple(self.grants.values())

    def decide_calls(self, turn: TurnId) -> Committed:
        return self.do(
            DecideCalls(
                turn=turn, bound=self.bound(turn), policy=self.policy, grants=self.active_grants()
            )
        )

    def start(self, turn: TurnId, call: CallId) -> int | None:
        """Return the run's number, or None if the call may not start."""
        if not (bound := self.bound(turn, call)):
            return None
        name = delegate_session(call)
        new = NewDelegate(
            agent="helper",
            session=name,
            instance=InstanceId(f"life of {name}"),
            tools=tuple(sorted(self.tools)),
        )
        job = JOB if bound[0].background and self.state.turns[turn].loop == "ours" else None
        command = StartTool(
            turn=turn,
            bound=bound[0],
            policy=self.policy,
            grants=self.active_grants(),
            epoch=self.epoch,
            delegate=new,
            job=job,
        )
        committed = self.do(command)
        for event in committed.events:
            context = self.state.turns[turn].context
            if (
                isinstance(event, ToolStarted)
                and event.allowed_by in self.known_grants
                and isinstance(context, TurnContext)
            ):
                check_start(context, event.tool, self.active_grants(), self.policy, now=self.now)
        return committed.of(command)

    def finish(
        self,
        turn: TurnId,
        call: CallId,
        run: int,
        outcome: CallOutcome = "ok",
        text: str | None = None,
    ) -> Committed:
        return self.do(
            FinishCall(
                turn=turn,
                call=call,
                run=run,
                outcome=outcome,
                text=self.tools_say if text is None else text,
            )
        )

    def report(
        self,
        call: CallId,
        ended: str = "completed",
        outcome: CallOutcome = "ok",
        text: str = "helped",
        **more: Any,
    ) -> Committed:
        """Return the report of that call's delegate."""
        name = delegate_session(call)
        command = ReportDelegate(
            call=call,
            session=name,
            instance=InstanceId(f"life of {name}"),
            ended=ended,
            outcome=outcome,
            text=text,
            **more,
        )
        return self.do(command)

    def answer(self, approval: ApprovalId, option: str, by: str, **more: Any) -> Committed:
        """
        Answer as the service does: propose a grant before the answer. The grant counts once the
        answer is recorded.
        """
        more.setdefault("answer_id", f"answer-{approval}-{option}-{by}")
        proposed = (
            self.proposed_grant(approval, option, by, more["answer_id"])
            if option in SCOPES and self.keeps_grants
            else None
        )
        command = AnswerApproval(
            approval=approval,
            option=option,
            by=by,
            grant=proposed.grant if proposed else None,
            **more,
        )
        committed = self.do(command)
        if proposed is not None and committed.refusal is None and not committed.of(command).again:
            self.grants[proposed.grant] = proposed
            self.known_grants.add(proposed.grant)
        return committed

    def proposed_grant(
        self, approval: ApprovalId, option: str, by: str, answer_id: str
    ) -> GrantProposed | None:
        where = self.state.approvals.get(approval)
        turn = self.state.turns.get(where[0]) if where else None
        call = self.state.open_call(where[0], where[1]) if where else None
        if (
            turn is None
            or call is None
            or call.approval is None
            or not isinstance(turn.context, TurnContext)
            or turn.context.requester is None
        ):
            return None
        definition, scope, asked = self.tools[call.tool], SCOPES[option], call.approval.asked
        binding = self.bind(turn, definition, msgspec.json.decode(asked.arguments))
        return GrantProposed(
            grant=GrantId(f"g{len(self.grants) + 1}"),
            tool=call.tool,
            definition=asked.definition,
            arguments=granted_arguments(asked.arguments, definition, scope),
            scope=scope,
            folder=binding.cwd if scope == "session" else folder_of(definition, binding),
            requester=turn.context.requester,
            boundary=turn.context.boundary,
            audience=turn.context.audience.value,
            session=SESSION,
            instance=INSTANCE,
            approval=approval,
            answer=answer_id,
            proposed_at=self.now,
            granted_by=by,
            expires_at=self.now + self.policy.remember_for_seconds * 1000,
            identities={
                name: identities_of(name, self.policy.people)
                for name in (by, turn.context.requester)
            },
            path=None if scope == "folder" else asked.path,
        )
