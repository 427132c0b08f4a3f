"""
The base of the built-in tools that run inside this process: a definition, typed arguments, and work
in an owned thread.

Each tool is a `Builtin` with two functions. `bind` describes the effect or refuses the call. `work`
performs it and returns text. `work` receives the approved binding and checks it against everything
that may have changed since.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal

from holdfast.adapters.tools.output import refuse_secrets, returned_text
from holdfast.adapters.tools.python.arguments import ArgumentTypes
from holdfast.errors import InvariantBroken
from holdfast.ports.tools import CannotBind, OnOutput, Prepared, ProcessFacts, Scene, ToolReturned
from holdfast.secrecy import Secret
from holdfast.session.authority.plan import Binding, Contract, ToolDefinition, ToolKind
from holdfast.threads import BLOCKING

Values = Mapping[str, Any]
Check = Callable[[Values], None]
Bind = Callable[[Values, Scene], Binding]
Work = Callable[[Values, Binding, Scene], str]

# The version of the built-in tools' behaviour. It is part of their definitions, so a change voids
# earlier approvals.
VERSION = "1"


class ToolFailed(Exception):
    """A known failure of the tool itself. The message is for the model."""


def definition_of(
    name: str,
    description: str,
    types: ArgumentTypes,
    *,
    contract: Contract,
    mode: Literal["ask", "auto"],
    kind: ToolKind,
    audience: Literal["public", "team", "personal"],
) -> ToolDefinition:
    return ToolDefinition(
        name=name,
        description=description,
        parameters=types.schema,
        contract=contract,
        default_mode=mode,
        kind=kind,
        audience=audience,
        code=f"holdfast:{name}#{VERSION}",
    )


class Builtin:
    """A built-in tool that runs in an owned thread."""

    def __init__(
        self,
        definition: ToolDefinition,
        types: ArgumentTypes,
        *,
        check: Check,
        bind: Bind,
        work: Work,
    ) -> None:
        self.definition = definition
        self._types = types
        self._check, self._bind, self._work = check, bind, work

    def validate(self, arguments: bytes) -> bytes:
        self._check(self._types.read(arguments))
        return self._types.normal(arguments)

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        refuse_secrets(arguments, scene.secrets)
        try:
            return self._bind(self._types.read(arguments), scene)
        except OSError as exc:  # a file changed during the check, or cannot be checked
            raise CannotBind((exc.strerror or str(exc)).lower()) from exc

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        del idempotency_key  # `pure` tools need no key, and `once` tools never run again
        values = self._types.read(arguments)
        return _PreparedWork(lambda: self._work(values, binding, scene), secrets=scene.secrets)


class _PreparedWork:
    process: ProcessFacts | None = None

    def __init__(self, work: Callable[[], str], *, secrets: tuple[Secret, ...]) -> None:
        self._work = work
        self._secrets = secrets
        self._spent = False  # set by the first `go` or `abandon`

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        if self._spent:
            raise InvariantBroken("a prepared call was started twice, or after it was abandoned")
        self._spent = True
        try:
            async with asyncio.timeout(timeout_seconds):
                text = await BLOCKING.call(self._work)
        except TimeoutError:
            return ToolReturned(
                outcome="timed_out",
                text=f"no result within {timeout_seconds:g} s; it may still take effect",
            )
        except (ToolFailed, CannotBind, OSError) as exc:
            return returned_text(str(exc), outcome="error", secrets=self._secrets)
        returned = returned_text(text, outcome="ok", secrets=self._secrets)
        on_output(returned.text.encode())
        return returned

    async def abandon(self) -> None:
        self._spent = True
