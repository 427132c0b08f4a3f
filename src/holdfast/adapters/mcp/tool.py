"""
A pinned tool of a server, and a tool that is not pinned.

A pinned tool is known by its JSON schema, like every tool of another framework. `prepare` lists the
server's tools again, without a cache, and stops if the definition is not the pinned one. `go` sends
exactly one `tools/call`. No reply means in doubt, unless no byte of the request was sent.
"""

from typing import Any, Final, Protocol

import msgspec

from holdfast.adapters.mcp.connection import NeverSent, OnQuestion, ReplyLost
from holdfast.adapters.mcp.definitions import schema_of
from holdfast.adapters.mcp.messages import ServerReply
from holdfast.adapters.mcp.program import UNPINNED_CODE
from holdfast.adapters.mcp.protocol import EXTENSION, QUESTIONS, CallExtra, ServerSession
from holdfast.adapters.mcp.replies.forms import members_of
from holdfast.adapters.mcp.replies.outcomes import returned_from
from holdfast.adapters.mcp.replies.questions import Questions
from holdfast.adapters.mcp.replies.tasks import task_from, unfollowed
from holdfast.adapters.tools.display import bound_by_arguments
from holdfast.adapters.tools.schema.tool import SchemaTool
from holdfast.adapters.tools.shell.confinement.level_text import server_level_lines
from holdfast.adapters.tools.shell.confinement.levels import Confinement
from holdfast.errors import InvariantBroken
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import (
    AskPerson,
    CannotBind,
    OnOutput,
    Prepared,
    ProcessFacts,
    Scene,
    ToolReturned,
)
from holdfast.session.authority.plan import Binding, Contract, Risk, ToolDefinition
from holdfast.session.home.events import ToolPinned

WITHDRAWN: Final = "withdrawn"


class CallsTools(Protocol):
    """The parts of `servers.py` that a tool needs."""

    def confinement(self, server: str) -> Confinement | None:
        """Return the level that the server runs at; None if it is not a process of ours."""
        ...

    async def check(self, pin: ToolPinned) -> ServerSession:
        """
        List the server's tools again, and compare. Return the connection that was asked. Raise
        CannotBind if the pin does not stand, and NeverSent if the server cannot be asked.
        """
        ...

    async def call(
        self,
        pin: ToolPinned,
        arguments: bytes,
        *,
        checked: ServerSession,
        timeout_seconds: float,
        extra: CallExtra,
        on_question: OnQuestion,
    ) -> ServerReply:
        """Send one call over the connection that was checked. Raise NeverSent or ReplyLost."""
        ...


class PinnedTool(SchemaTool):
    def __init__(self, pin: ToolPinned, settings: ToolServer, servers: CallsTools) -> None:
        raw = msgspec.json.decode(pin.definition)
        hints = raw.get("annotations")
        self._hints: dict[str, Any] = hints if isinstance(hints, dict) else {}
        self._pin, self._settings, self._servers = pin, settings, servers
        # The first look at the confinement may have to try it, and an obstacle is looked at again.
        self.binds_quickly = False
        schema = raw.get("outputSchema")
        self._output_schema = schema if isinstance(schema, dict) else None
        super().__init__(
            pin.name,
            schema_of(raw),
            description=raw.get("description") or "",
            contract=_contract(self._hints) if settings.trust_hints else "once",
            code=pin.digest,
            kind="server",
        )

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        confinement = self._servers.confinement(self._pin.server)
        where = (
            [f"on the server at {self._settings.url}"]
            if confinement is None
            else server_level_lines(confinement, network=self._settings.network)
        )
        fetched = [UNPINNED_CODE] if UNPINNED_CODE in self._pin.identity.split("\n") else []
        bound = bound_by_arguments(
            self.definition.name,
            arguments,
            scene,
            note="\n".join((*fetched, *where, *_said(self._hints))),
        )
        level = None if confinement is None else confinement.level
        self.binds_quickly = level in (None, "isolated")
        return msgspec.structs.replace(bound, level=level, risks=_risks(self._hints, bound.display))

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        del binding, idempotency_key  # the protocol has no place for a key
        try:
            checked = await self._servers.check(self._pin)
        except NeverSent as exc:
            return _NotReached(self.definition.name, str(exc))
        return _PreparedServerCall(self, checked, arguments, scene)

    async def send(
        self,
        checked: ServerSession,
        arguments: bytes,
        scene: Scene,
        timeout_seconds: float,
        ask: AskPerson | None,
    ) -> ToolReturned:
        name = self.definition.name
        questions = Questions(name, scene.secrets, ask)
        try:
            reply = await self._servers.call(
                self._pin,
                arguments,
                checked=checked,
                timeout_seconds=timeout_seconds,
                extra=_extra(scene),
                on_question=questions.answer,
            )
        except NeverSent as exc:
            return ToolReturned(outcome="error", text=f"nothing was run: {exc}")
        except ReplyLost as exc:
            return ToolReturned(
                outcome="in_doubt",
                text=f"In doubt: {name} was sent to its server, and {exc}. It may have happened; "
                "check before trying again.",
            )
        if checked.is_stateless and (task := task_from(reply, self._pin, scene.secrets)):
            return task if scene.may_go_on else unfollowed(name)
        returned = returned_from(
            reply,
            output_schema=self._output_schema,
            secrets=scene.secrets,
            asks=name if scene.may_ask and checked.is_stateless else None,
        )
        return questions.noted(returned)


def _extra(scene: Scene) -> CallExtra:
    return CallExtra(
        members={} if scene.filled is None else members_of(scene.filled),
        capabilities={
            **(QUESTIONS if scene.may_ask else {}),
            **(EXTENSION if scene.may_go_on else {}),
        },
    )


class _PreparedServerCall:
    """One call, sent at most once."""

    process: ProcessFacts | None = None  # the server is not the call's own process

    def __init__(
        self, tool: PinnedTool, checked: ServerSession, arguments: bytes, scene: Scene
    ) -> None:
        self._tool, self._checked = tool, checked
        self._arguments, self._scene = arguments, scene
        self._ask: AskPerson | None = None
        self._is_spent = False

    def ask_with(self, ask: AskPerson) -> None:
        self._ask = ask

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        del on_output  # a server's progress is not part of its result
        if self._is_spent:
            raise InvariantBroken("a call to a server was sent twice, or after it was abandoned")
        self._is_spent = True
        return await self._tool.send(
            self._checked, self._arguments, self._scene, timeout_seconds, self._ask
        )

    async def abandon(self) -> None:
        self._is_spent = True


class _NotReached:
    """A call whose server could not be asked: certainly not run."""

    process: ProcessFacts | None = None

    def __init__(self, name: str, why: str) -> None:
        self._text = f"nothing was run: the server of {name} can't be reached: {why}"

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        del timeout_seconds, on_output
        return ToolReturned(outcome="error", text=self._text)

    async def abandon(self) -> None:
        pass


class WithdrawnTool:
    """A tool of a known server that nobody has pinned. No model is shown it; nothing calls it."""

    def __init__(self, name: str) -> None:
        self.definition = ToolDefinition(name=name, description="", parameters="{}", kind=WITHDRAWN)

    def validate(self, arguments: bytes) -> bytes:
        return arguments

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        del arguments, scene
        name = self.definition.name
        raise CannotBind(
            f"{name} is not pinned, or no longer what was pinned; a person can look at it: "
            f"`holdfast mcp show {name}`",
            code=WITHDRAWN,
        )

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        del binding, idempotency_key
        self.bind(arguments, scene)
        raise InvariantBroken("a withdrawn tool was bound")


def _contract(hints: dict[str, Any]) -> Contract:
    """The contract that a trusted server's own hints give."""
    if hints.get("readOnlyHint") is True and hints.get("openWorldHint") is False:
        return "pure"
    return "idempotent" if hints.get("idempotentHint") is True else "once"


def _is_destructive(hints: dict[str, Any]) -> bool:
    return hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True


def _said(hints: dict[str, Any]) -> list[str]:
    return ["the server says that it may destroy or overwrite"] if _is_destructive(hints) else []


def _risks(hints: dict[str, Any], display: str) -> tuple[Risk, ...]:
    """A hint may tighten: a call that its server calls destructive is marked as such."""
    said = _said(hints)
    if not said or (start := display.find(said[0])) < 0:
        return ()
    return (
        Risk(
            kind="destructive",
            text="The server itself calls this tool destructive.",
            start=start,
            end=start + len(said[0]),
        ),
    )
