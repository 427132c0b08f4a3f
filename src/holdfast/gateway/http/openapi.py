"""
The contract as OpenAPI 3.1, derived from the structs that parse requests and build answers. So it
can't differ from them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from holdfast.gateway.http.problems import PROBLEM_TYPE, Problem
from holdfast.gateway.http.schemas import (
    KEY_CHARS_MAX,
    LIMIT_DEFAULT,
    LIMIT_MAX,
    Answered,
    AnswerIn,
    ApprovalsList,
    CancelIn,
    Cancelled,
    CodeIn,
    GrantsList,
    MessageIn,
    MessageTaken,
    SessionsList,
    TokenGiven,
    Whoami,
)
from holdfast.gateway.streams.inbox_stream import CURSOR_PATTERN
from holdfast.runtime.reports.types import ApprovalReport, SessionReport

_ID = "^[a-z0-9][a-z0-9._-]{0,63}$"
_STRUCTS = (
    AnswerIn, Answered, ApprovalReport, ApprovalsList, CancelIn, Cancelled, CodeIn, GrantsList, MessageIn, MessageTaken, Problem, SessionReport,
    SessionsList, TokenGiven, Whoami,
)  # fmt: skip

_WORDS = {
    400: "malformed: not as this document says",
    401: "no or bad token",
    403: "wrong Host or Origin; wrong_approver; no_authority",
    404: "unknown, or not this token's to see",
    405: "method: not done that way",
    409: "already_answered, plan_changed, dedup_conflict, answer_word, cursor_ahead",
    410: "expired, superseded, voided, cancelled",
    413: "too_large",
    415: "media_type: the body must be application/json",
    422: "option_unavailable, secret",
    423: "sealed: the session, or the home itself",
    429: "too_many",
    503: "not_saved, busy, in_doubt, cannot_drive, fenced, newer_version, settings, stopping, io",
}


@cache
def openapi_document() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        _STRUCTS, ref_template="#/components/schemas/{name}"
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": "1",
            "summary": "Sessions, prompts and answers of one home",
            "description": "Problems are application/problem+json with a stable `code`. Tokens "
            "come from `holdfast tokens add`.",
        },
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": dict(components),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "hf_ and 49 letters and digits, from `holdfast tokens add`",
                }
            },
            "responses": {f"Problem{status}": _problem(words) for status, words in _WORDS.items()},
        },
    }


def _problem(words: str) -> dict[str, Any]:
    return {"description": words, "content": {PROBLEM_TYPE: {"schema": _ref("Problem")}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(
    name: str,
    summary: str,
    ok: Mapping[str, Any],
    *problems: int,
    body: str | None = None,
    body_optional: str | None = None,
    parameters: tuple[dict[str, Any], ...] = (),
    is_open: bool = False,
) -> dict[str, Any]:
    always = (
        (400, 403, 405, 429) if is_open else (400, 401, 403, 405, 423, 429, 503)
    )  # a route with a token can also fail because the home can't be read: 423 and 503
    responses = {
        **ok,
        **{
            str(status): {"$ref": f"#/components/responses/Problem{status}"}
            for status in sorted({*always, *problems})
        },
    }
    found: dict[str, Any] = {"operationId": name, "summary": summary, "responses": responses}
    if parameters:
        found["parameters"] = list(parameters)
    if (kind := body or body_optional) is not None:
        found["requestBody"] = {
            "required": body is not None,
            "content": {"application/json": {"schema": _ref(kind)}},
        }
    if is_open:
        found["security"] = []
    return found


def _ok(kind: str, words: str, status: int = 200) -> dict[str, Any]:
    return {
        str(status): {"description": words, "content": {"application/json": {"schema": _ref(kind)}}}
    }


def _in_path(name: str, pattern: str, words: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": words,
        "schema": {"type": "string", "pattern": pattern},
    }


_SESSION = (
    _in_path("channel", _ID, "the session's first half"),
    _in_path("thread", _ID, "the session's second half"),
)
_APPROVAL = (_in_path("approval", "^a-[a-z2-7]{26}$", "a prompt's whole id"),)
_GRANT = (_in_path("grant", "^[a-z0-9-]{1,64}$", "a grant's id"),)
_LIMIT = {
    "name": "limit",
    "in": "query",
    "required": False,
    "description": "how many at most",
    "schema": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
}


def _after(pattern: str) -> dict[str, Any]:
    return {
        "name": "after",
        "in": "query",
        "required": False,
        "description": "`next` of the page before",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": pattern},
    }


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "the same key and text again is the same message",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": KEY_CHARS_MAX,
        "pattern": "^[\\x21-\\x7e]+$",
    },
}
_CURSOR = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "the seq of the last record that was received",
    "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
}


_PLACE = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "the id of the last event that was received",
    "schema": {"type": "string", "pattern": CURSOR_PATTERN},
}


def _paths() -> dict[str, Any]:
    nothing = {"204": {"description": "no content"}}
    stream = {
        "200": {
            "description": "records, deltas and notices, live",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    }
    inbox = {
        "200": {
            "description": "what waits, and every change of it, live",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    }
    text = {
        "200": {
            "description": "Prometheus text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    }
    anything = {
        "200": {
            "description": "this document",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    }
    messages = _operation(
        "sendMessage", "Send a message", _ok("MessageTaken", "durable", 202), 404, 409, 413, 415, 422, 423, 503,
        body="MessageIn", parameters=(*_SESSION, _KEY),
    )  # fmt: skip
    answer = _operation(
        "answerApproval", "Answer a prompt", _ok("Answered", "durable"), 404, 409, 410, 413, 415, 422, 423, 503,
        body="AnswerIn", parameters=_APPROVAL,
    )  # fmt: skip
    cancel = _operation(
        "cancel", "Cancel what runs or "
                  "waits", _ok("Cancelled", "durable"), 404, 409, 410, 413, 415, 423, 503,
        body_optional="CancelIn", parameters=_SESSION,
    )  # fmt: skip
    not_ready = _problem(
        "not yet, or stopping, without content; with a problem: its settings can't be used"
    )
    codes = _operation(
        "exchangeCode",
        "A one-time code for a token",
        _ok("TokenGiven", "shown this once", 201),
        401,
        413,
        415,
        503,
        body="CodeIn",
        is_open=True,
    )
    return {
        "/healthz": {"get": _operation("healthz", "Alive", nothing, is_open=True)},
        "/readyz": {
            "get": _operation(
                "readyz", "Ready for requests", {**nothing, "503": not_ready}, is_open=True
            )
        },
        "/metrics": {"get": _operation("metrics", "Numbers", text)},
        "/openapi.json": {"get": _operation("openapi", "This document", anything)},
        "/v1/me": {
            "get": _operation(
                "whoami", "Who this token speaks for", _ok("Whoami", "from the server's record")
            )
        },
        "/v1/codes": {"post": codes},
        "/v1/sessions": {
            "get": _operation(
                "listSessions",
                "Sessions",
                _ok("SessionsList", "a page"),
                503,
                parameters=(_LIMIT, _after(_ID_PAIR)),
            )
        },
        "/v1/sessions/{channel}/{thread}": {
            "get": _operation(
                "showSession",
                "One session",
                _ok("SessionReport", "where it stands"),
                404,
                423,
                503,
                parameters=_SESSION,
            )
        },
        "/v1/sessions/{channel}/{thread}/messages": {"post": messages},
        "/v1/sessions/{channel}/{thread}/events": {
            "get": _operation(
                "follow",
                "Follow a session",
                stream,
                404,
                409,
                423,
                503,
                parameters=(*_SESSION, _CURSOR),
            )
        },
        "/v1/sessions/{channel}/{thread}/cancel": {"post": cancel},
        "/v1/approvals": {
            "get": _operation(
                "listApprovals",
                "What waits",
                _ok("ApprovalsList", "a page"),
                503,
                parameters=(_LIMIT, _after("^.+$")),
            )
        },
        "/v1/approvals/events": {
            "get": _operation(
                "followApprovals", "Follow what waits", inbox, 503, parameters=(_PLACE,)
            )
        },
        "/v1/approvals/{approval}": {
            "get": _operation(
                "showApproval",
                "One prompt",
                _ok("ApprovalReport", "complete"),
                404,
                423,
                503,
                parameters=_APPROVAL,
            )
        },
        "/v1/approvals/{approval}/answer": {"post": answer},
        "/v1/grants": {
            "get": _operation(
                "listGrants",
                "Remembered approvals",
                _ok("GrantsList", "a page"),
                503,
                parameters=(_LIMIT, _after("^.+$")),
            )
        },
        "/v1/grants/{grant}": {
            "delete": _operation(
                "revokeGrant", "Forget an approval", nothing, 404, 503, parameters=_GRANT
            )
        },
    }


_ID_PAIR = "^[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}$"
