"""
A tool that is only a name and a JSON schema: a tool of another framework or of an MCP server.

Holdfast validates, shows and decides its calls. An external loop runs them, or a subclass that
overrides `prepare`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.adapters.tools.display import bound_by_arguments
from holdfast.adapters.tools.python.arguments import strict_object
from holdfast.adapters.tools.schema.identity import canonical
from holdfast.adapters.tools.schema.values import Misfit, Values
from holdfast.errors import Refused, Unusable
from holdfast.journal.strict import strict_json
from holdfast.ports.tools import CannotBind, InvalidArguments, Prepared, Scene
from holdfast.session.authority.plan import (
    AudienceName,
    Binding,
    Contract,
    Mode,
    SchemaDefinition,
    require_tool_options,
)

_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_./-]{0,127}\Z")
"""Includes every name that model providers and MCP allow."""

SCHEMA_BYTES_MAX = 256 * 1024
"""A schema travels to the model with every request; a larger one is not a tool's."""


class SchemaTool:
    """
    A tool known by its JSON schema. Give it to an `Agent`, or to an open home with `home.know`.

    The defaults are safe: ask first, never run twice. `code` names the implementation, such
    as a version; a change of it voids prompts that wait, as a change of the schema does. Titles,
    descriptions and the order of keys are not part of the tool's identity.

    >>> schema = {
    ...     "type": "object",
    ...     "properties": {
    ...         "service": {"type": "string"},
    ...         "region": {"type": "string", "default": "eu-1"},
    ...     },
    ...     "required": ["service"],
    ... }
    >>> SchemaTool("restart", schema).validate(b'{"service": "api"}')
    b'{"service":"api","region":"eu-1"}'
    """

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any],
        *,
        description: str = "",
        contract: Contract = "once",
        mode: Mode = "ask",
        audience: AudienceName = "personal",
        free: Sequence[str] = (),
        code: str = "",
        kind: Literal["plain", "server", "handed_over"] = "plain",
    ) -> None:
        if not isinstance(name, str) or not _NAME.match(name):
            raise Unusable(
                f"{name!r} is not a tool name",
                hint="use letters, digits, '_', '-', '.' and '/', at most 128 of them",
            )
        require_tool_options(contract, mode, audience)
        if not isinstance(description, str) or not isinstance(code, str):
            raise Unusable(
                f"the description and the code of {name} must be texts", hint="use str values"
            )
        read = _read_schema(name, schema)
        fields = read.get("properties", {})
        if isinstance(free, str) or (unknown := sorted(set(free) - set(fields))):
            wrong = free if isinstance(free, str) else ", ".join(unknown)
            raise Unusable(
                f"{name} has no field {wrong}",
                hint="free=[...] names schema fields that a remembered approval need not bind",
            )
        self._values = Values(read)
        self._definition = SchemaDefinition(
            name=name,
            description=description,
            parameters=msgspec.json.encode(read).decode(),
            identity=canonical(read),
            contract=contract,
            default_mode=mode,
            kind=kind,
            audience=audience,
            free_fields=tuple(sorted(free)),
            code=code,
        )

    def __repr__(self) -> str:
        return f"<schema tool {self._definition.name}>"

    @property
    def definition(self) -> SchemaDefinition:
        return self._definition

    def validate(self, arguments: bytes) -> bytes:
        """
        Return the arguments with the schema's defaults filled in, so that the prompt shows the
        values that run. Raise InvalidArguments.
        """
        filled = self._filled(strict_object(arguments))
        if self._filled(filled) != filled:
            raise InvalidArguments(
                "the schema's own defaults change the arguments each time they are read"
            )
        return msgspec.json.encode(filled)

    def _filled(self, value: dict[str, Any]) -> dict[str, Any]:
        try:
            filled: dict[str, Any] = self._values.filled(value)
        except Misfit as exc:
            raise InvalidArguments(str(exc)) from exc
        except (TypeError, ValueError, AttributeError, ArithmeticError) as exc:
            raise InvalidArguments(
                f"the schema of {self._definition.name} can't be applied: {exc}"
            ) from exc
        return filled

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        return bound_by_arguments(self._definition.name, arguments, scene)

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        """Refuse: Holdfast does not have the code of this tool."""
        del arguments, binding, scene, idempotency_key
        raise CannotBind(
            f"{self._definition.name} is known by its schema alone; only an external loop runs it"
        )


def _read_schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    hint = 'hand in the JSON schema of an object: {"type": "object", "properties": {...}}'
    try:
        written = msgspec.json.encode(schema)
        read = strict_json(written, what=f"the schema of {name}")
    except (TypeError, ValueError, RecursionError, Refused) as exc:
        raise Unusable(f"the schema of {name} can't be written as JSON: {exc}", hint=hint) from exc
    if not isinstance(read, dict) or read.get("type", "object") != "object":
        raise Unusable(f"the schema of {name} does not describe an object", hint=hint)
    if not isinstance(read.get("properties", {}), dict):
        raise Unusable(f"the properties in the schema of {name} are not an object", hint=hint)
    if len(written) > SCHEMA_BYTES_MAX:
        raise Unusable(
            f"the schema of {name} has {len(written)} bytes; {SCHEMA_BYTES_MAX} are the most",
            hint="split the tool",
        )
    found: dict[str, Any] = read
    return found
