"""
Checks a model's arguments against types: strict JSON, no unknown field, no silent conversion.

An `ArgumentTypes` is made once per tool from named types and defaults. It gives the JSON schema for
the model. It reads a call's bytes into values or names the wrong field. Pydantic is imported only
if one of its models is among the types.
"""

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.adapters.tools.python.pydantic_values import is_model, read_model, write_model
from holdfast.adapters.tools.python.schema import schema_of
from holdfast.errors import Refused, Unusable, describe_error, error_words
from holdfast.journal.strict import strict_json
from holdfast.limits import ARGUMENTS_BYTES_MAX
from holdfast.ports.tools import InvalidArguments

REQUIRED = inspect.Parameter.empty
_MSGSPEC_ADVICE = "(extra_json_schema=...)`\n\n"  # the end of msgspec's advice to its own callers


class ArgumentTypes:
    """
    The arguments of one tool. `fields` maps a name to (type, default). REQUIRED stands for no
    default.
    """

    def __init__(self, tool: str, fields: Mapping[str, tuple[Any, Any]]) -> None:
        self._names = tuple(fields)
        try:
            self._struct = msgspec.defstruct(
                "Arguments", [_field(name, *spec) for name, spec in fields.items()], kw_only=True
            )
            self._info = msgspec.inspect.type_info(self._struct)
            self.schema = schema_of(self._struct)
        except NameError as exc:
            raise Unusable(
                f"a type of {tool} is not known here: {exc}",
                hint="types inside of its types must be importable from their modules",
            ) from exc
        except (TypeError, msgspec.MsgspecError) as exc:
            raise Unusable(
                f"the arguments of {tool} have a type that JSON can't carry: "
                f"{error_words(exc).rpartition(_MSGSPEC_ADVICE)[2]}",
                hint="use builtins, dataclasses, msgspec or Pydantic models, Literal, Enum, list "
                "and dict; of several objects in one union, tagged structs",
            ) from exc
        for name, (kind, default) in fields.items():
            if default is not REQUIRED:
                _refuse_misfit(tool, name, kind, default)

    def read(self, arguments: bytes) -> dict[str, Any]:
        """Return the values by name. Raise InvalidArguments that names the field."""
        values = self._decoded(arguments)
        return {name: getattr(values, name) for name in self._names}

    def normal(self, arguments: bytes) -> bytes:
        """
        Return the arguments as they would run: defaults filled in at every depth, keys in the
        schema's order, sets sorted.
        """
        encoded = _written(self._decoded(arguments))
        # These bytes are shown, approved and read again for the call, so reading them must change
        # nothing. If they are the given ones, reading them has just changed nothing.
        if encoded != arguments and _written(self._decoded(encoded)) != encoded:
            raise InvalidArguments(
                "the tool's own check changes its arguments each time it reads them: what is shown "
                "would not be what runs"
            )
        return encoded

    def _decoded(self, arguments: bytes) -> Any:
        raw = strict_object(arguments)
        unknown = _unknown_field(self._info, raw, "")
        if unknown is not None:
            raise InvalidArguments(
                f"no field {unknown!r}; the fields are {', '.join(self._names) or 'none'}"
            )
        try:
            return _converted(raw, self._struct)
        except ValueError as exc:  # includes msgspec's own errors
            raise InvalidArguments(error_words(exc)) from exc
        except KeyboardInterrupt:
            raise
        except (
            BaseException
        ) as exc:  # a check of the tool's author may raise anything; these arguments do not pass it
            raise InvalidArguments(f"the tool's own check failed: {describe_error(exc)}") from exc


def strict_object(arguments: bytes) -> dict[str, Any]:
    """Return a JSON object that every reader reads alike. Raise InvalidArguments."""
    if len(arguments) > ARGUMENTS_BYTES_MAX:
        raise InvalidArguments(
            f"{len(arguments)} bytes of arguments are too many (at most {ARGUMENTS_BYTES_MAX})"
        )
    try:
        value = strict_json(arguments or b"{}", what="the arguments")
    except Refused as exc:
        raise InvalidArguments(exc.message) from exc
    if not isinstance(value, dict):
        raise InvalidArguments("the arguments are not a JSON object")
    return value


def _field(name: str, kind: Any, default: Any) -> Any:
    if default is REQUIRED:
        return (name, kind)
    if _may_change(default):
        return (name, kind, msgspec.field(default_factory=lambda: copy.deepcopy(default)))
    return (name, kind, default)


def _may_change(default: Any) -> bool:
    """
    Return whether the default is mutable. A Pydantic model counts too, because msgspec cannot write
    it into the schema.
    """
    if isinstance(default, msgspec.Struct):
        return not default.__struct_config__.frozen
    return isinstance(default, list | dict | set | bytearray) or is_model(type(default))


def _refuse_misfit(tool: str, name: str, kind: Any, default: Any) -> None:
    """
    Refuse a default that its own type refuses. Every call that omits it would fail, with a message
    about a value that the caller never gave.
    """
    try:
        _converted(strict_json(_written(default), what="it"), kind)
    except (Exception, SystemExit) as exc:  # includes errors of the author's own checks
        raise Unusable(
            f"the default of {name!r} of {tool} does not fit its type: {error_words(exc)}",
            hint="annotate it with its types, as in `str | None = None`",
        ) from exc


def _converted(raw: Any, kind: Any) -> Any:
    return msgspec.convert(raw, kind, strict=True, dec_hook=read_model, str_keys=True)


def _written(value: Any) -> bytes:
    try:
        encoded = msgspec.json.encode(_whole(value), enc_hook=write_model)
        strict_json(
            encoded, what="the arguments"
        )  # a default or a model's own dump may hold values that JSON cannot hold
    except (InvalidArguments, KeyboardInterrupt):
        raise
    except (
        BaseException
    ) as exc:  # a model's own dump is code of the tool's author and may raise anything
        raise InvalidArguments(
            f"the arguments can't be written down: {describe_error(exc)}"
        ) from exc
    return encoded


def _whole(value: Any) -> Any:
    """
    Return the same value with all defaults written out. msgspec omits the defaults of a dataclass
    and of a struct with `omit_defaults`: they would run without being shown.
    """
    match value:
        case msgspec.Struct():
            config = value.__struct_config__
            names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
            fields = [(said, _whole(getattr(value, name))) for said, name in names]
            tag = [] if config.tag is None else [(config.tag_field or "type", config.tag)]
            return (
                [each for _, each in [*tag, *fields]]
                if config.array_like
                else _said([*tag, *fields])
            )
        case list() | tuple():
            return [_whole(each) for each in value]
        case set() | frozenset():
            return sorted(
                map(_whole, value), key=lambda each: msgspec.json.encode(each, enc_hook=write_model)
            )
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return _said(
                [
                    (field.name, _whole(getattr(value, field.name, msgspec.UNSET)))
                    for field in dataclasses.fields(value)
                ]
            )
        case _:
            return value


def _said(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: each for name, each in pairs if each is not msgspec.UNSET}


def _unknown_field(info: msgspec.inspect.Type, raw: Any, at: str) -> str | None:
    """Return the first field that no type knows. Structs and dataclasses would drop it silently."""
    match info:
        case (
            msgspec.inspect.StructType()
            | msgspec.inspect.DataclassType()
            | msgspec.inspect.TypedDictType()
        ):
            if not isinstance(raw, dict):
                return None
            known = {field.encode_name: field.type for field in info.fields}
            if isinstance(info, msgspec.inspect.StructType) and info.tag_field is not None:
                known[info.tag_field] = msgspec.inspect.AnyType()
            for key, value in raw.items():
                if key not in known:
                    return f"{at}{key}"
                found = _unknown_field(known[key], value, f"{at}{key}.")
                if found is not None:
                    return found
        case msgspec.inspect.UnionType(types=types):
            # The fitting member decides. If each has an unknown field, the first one's is named.
            founds = [_unknown_field(one, raw, at) for one in types if _may_hold(one, raw)]
            return founds[0] if founds and None not in founds else None
        case msgspec.inspect.CollectionType(item_type=item):
            return _first_unknown(item, enumerate(raw) if isinstance(raw, list) else (), at)
        case msgspec.inspect.DictType(value_type=value_type):
            return _first_unknown(value_type, raw.items() if isinstance(raw, dict) else (), at)
        case _:
            pass
    return None


def _first_unknown(info: msgspec.inspect.Type, pairs: Any, at: str) -> str | None:
    return next(
        (
            found
            for key, value in pairs
            if (found := _unknown_field(info, value, f"{at}{key}.")) is not None
        ),
        None,
    )


def _may_hold(info: msgspec.inspect.Type, raw: Any) -> bool:
    """
    Return whether the value may be meant for this member of a union: an object for a struct (by its
    tag, if it has one), a list for a list.
    """
    match info:
        case msgspec.inspect.StructType(tag_field=tag_field, tag=tag):
            return isinstance(raw, dict) and (tag_field is None or raw.get(tag_field) == tag)
        case (
            msgspec.inspect.DataclassType()
            | msgspec.inspect.TypedDictType()
            | msgspec.inspect.DictType()
            | msgspec.inspect.CustomType()
            | msgspec.inspect.AnyType()
        ):
            return isinstance(raw, dict)
        case msgspec.inspect.CollectionType():
            return isinstance(raw, list)
        case _:
            return not isinstance(raw, dict | list)
