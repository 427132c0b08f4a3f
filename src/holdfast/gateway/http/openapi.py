"""
The contract as OpenAPI 3.1, derived from the routes: their paths, scopes, parameters and the
structs that parse bodies and build answers. So it can't differ from the server.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.gateway.http.problems import PROBLEM_TYPE, ProblemDetails
from holdfast.gateway.http.router import OPEN, AnyRoute, Parameter, StreamRoute

ID_PATTERN = "^[a-z0-9][a-z0-9._-]{0,63}$"
_PARTS: Mapping[str, tuple[str, str]] = {
    "channel": (ID_PATTERN, "the session's first half"),
    "thread": (ID_PATTERN, "the session's second half"),
    "approval": ("^a-[a-z2-7]{26}$", "a prompt's whole id"),
    "grant": ("^[a-z0-9-]{1,64}$", "a grant's id"),
    "hook": ("^[a-z0-9][a-z0-9_-]{0,63}$", "the webhook's name in settings"),
    "server": ("^[a-z0-9][a-z0-9_-]{0,31}$", "a server's name in the settings"),
    "job": ("^j-[a-z2-7]{26}$", "a job's whole id"),
}
_PART = re.compile(r"\{(\w+)\}")

_PROBLEMS = {
    400: "malformed: not as this document says",
    401: "no or bad token, or a signature that does not hold",
    403: "wrong Host or Origin; wrong_approver; no_authority",
    404: "unknown, or not this token's to see",
    405: "method: this path has other methods",
    409: "already_answered, plan_changed, dedup_conflict, answer_word, cursor_ahead, prompt_waits",
    410: "expired, superseded, voided, cancelled",
    413: "too_large",
    415: "media_type: the body must be application/json",
    422: "option_unavailable, secret",
    423: "sealed: the session, or the home itself",
    429: "too_many",
    503: "not_saved, busy, in_doubt, cannot_drive, fenced, newer_version, settings, stopping, io",
}
_ALWAYS_OPEN = frozenset({400, 403, 405, 429})
# A route with a token can also fail because the home can't be read: 423 and 503.
_ALWAYS = _ALWAYS_OPEN | {401, 423, 503}


def openapi_document(routes: Sequence[AnyRoute]) -> dict[str, Any]:
    described = [route for route in routes if route.id]
    structs = {kind for route in described for kind in _structs(route)} | {ProblemDetails}
    _, components = msgspec.json.schema_components(
        sorted(structs, key=lambda kind: kind.__name__), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for route in described:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": "1",
            "summary": "Sessions, prompts and answers of one home",
            "description": (
                "Problems are application/problem+json with a stable `code`. Tokens "
                "come from `holdfast tokens add`."
            ),
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(components),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "hf_ and 49 letters and digits, from `holdfast tokens add`",
                }
            },
            "responses": {f"Problem{status}": _problem(text) for status, text in _PROBLEMS.items()},
        },
    }


def _structs(route: AnyRoute) -> list[type]:
    answers = () if isinstance(route, StreamRoute) else (route.response,)
    kinds = (route.request, *answers)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]


def _operation(route: AnyRoute) -> dict[str, Any]:
    parts = _PART.findall(route.path)
    has_body = route.request is not None
    problems = {
        *(_ALWAYS_OPEN if route.scope is OPEN else _ALWAYS),
        *route.problems,
        *((404,) if parts else ()),
        *((413, 415) if has_body else ()),
    }
    found: dict[str, Any] = {
        "operationId": route.id,
        "summary": route.summary,
        "responses": {
            **_answer(route),
            **{
                str(status): {"$ref": f"#/components/responses/Problem{status}"}
                for status in sorted(problems)
            },
        },
        "x-scope": "none" if route.scope is OPEN else route.scope,
    }
    parameters = [
        *(_path_part(name) for name in parts),
        *(_parameter(each, "query") for each in route.query),
        *(_parameter(each, "header") for each in route.headers),
    ]
    if parameters:
        found["parameters"] = parameters
    if route.request is not None:
        found["requestBody"] = {
            "required": isinstance(route, StreamRoute) or route.nothing is None,
            "content": {"application/json": {"schema": _schema(route.request)}},
        }
    if route.scope is OPEN:
        found["security"] = []
    return found


def _answer(route: AnyRoute) -> dict[str, Any]:
    if isinstance(route, StreamRoute):
        media_type, schema, status = "text/event-stream", _schema(str), 200
    elif route.response is None:
        return {"204": {"description": route.answer}}
    else:
        media_type = route.media_type.partition(";")[0]
        schema, status = _schema(route.response), route.status
    content = {media_type: {"schema": schema}}
    return {str(status): {"description": route.answer, "content": content}}


def _schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {"$ref": f"#/components/schemas/{kind.__name__}"}
    return msgspec.json.schema(kind)


def _path_part(name: str) -> dict[str, Any]:
    pattern, text = _PARTS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": {"type": "string", "pattern": pattern},
    }


def _parameter(each: Parameter, where: str) -> dict[str, Any]:
    return {
        "name": each.name,
        "in": where,
        "required": False,
        "description": each.text,
        "schema": each.schema,
    }


def _problem(text: str) -> dict[str, Any]:
    return {"description": text, "content": {PROBLEM_TYPE: {"schema": _schema(ProblemDetails)}}}
