"""
Turn errors into `application/problem+json` with a stable `code`; the one table of statuses.

A message can contain text from a client or a journal. Tokens and known secrets are removed from it,
so it carries no secret out.
"""

import re
from collections.abc import Mapping

import msgspec

from holdfast.errors import (
    Busy,
    Fenced,
    HoldfastError,
    InDoubt,
    Refused,
    Superseded,
    Untrusted,
    Unusable,
)
from holdfast.gateway.http.response import HttpResponse
from holdfast.secrecy import Secret, secrecy_of

PROBLEM_TYPE = "application/problem+json"

STATUS_OF_CODE: Mapping[str, int] = {
    "malformed": 400,
    "answer_word": 409,
    "unauthorized": 401,
    "wrong_host": 403,
    "wrong_origin": 403,
    "wrong_approver": 403,
    "no_authority": 403,
    "started_by_tool": 403,
    "unknown": 404,
    "method": 405,
    "already_answered": 409,
    "plan_changed": 409,
    "dedup_conflict": 409,
    "cursor_ahead": 409,
    "prompt_waits": 409,
    "exists": 409,
    "expired": 410,
    "superseded": 410,
    "voided": 410,
    "cancelled": 410,
    "too_large": 413,
    "media_type": 415,
    "option_unavailable": 422,
    "secret": 422,
    "sealed": 423,
    "too_many": 429,
    "bug": 500,
    "settings": 503,
    "unreachable": 503,
    "not_saved": 503,
    "busy": 503,
    "in_doubt": 503,
    "cannot_drive": 503,
    "newer_version": 503,
    "stopping": 503,
}

_STATUS_OF_CLASS: tuple[tuple[type[HoldfastError], int], ...] = (
    (Untrusted, 423),
    (Superseded, 410),
    (Busy, 503),
    (Fenced, 503),
    (InDoubt, 503),
    (Unusable, 400),
    (Refused, 409),
)

_TITLES: Mapping[int, str] = {
    400: "Malformed",
    401: "No valid token",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    410: "Over",
    413: "Too large",
    415: "Wrong media type",
    422: "Not possible here",
    423: "Sealed",
    429: "Too many",
    500: "A bug",
    503: "Not now",
}

_TOKEN_LIKE = re.compile(
    r"hf_[A-Za-z0-9_-]{8,}|(?i:bearer)\s+\S+"
)  # also match a token that lost a part in transit
_TEXT_CHARS_MAX = 2_000
_UNAUTHORIZED = 401


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457. `code` is stable; `hint` is the next step."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str = ""


def status_of(error: HoldfastError) -> int:
    """
    >>> status_of(Refused("no", code="wrong_approver")), status_of(Untrusted("edited"))
    (403, 423)
    """
    if (known := STATUS_OF_CODE.get(error.code)) is not None and not isinstance(error, Untrusted):
        return known
    return next((status for kind, status in _STATUS_OF_CLASS if isinstance(error, kind)), 500)


def redacted(text: str, secrets: tuple[Secret, ...] = ()) -> str:
    """
    >>> redacted("no field hf_0123456789abcdef here")
    'no field [redacted] here'
    """
    return secrecy_of(secrets).hidden(_TOKEN_LIKE.sub("[redacted]", text))[:_TEXT_CHARS_MAX]


def problem(
    status: int, code: str, detail: str, hint: str = "", *, secrets: tuple[Secret, ...] = ()
) -> ProblemDetails:
    return ProblemDetails(
        type=f"urn:holdfast:problem:{code}",
        title=_TITLES.get(status, "Problem"),
        status=status,
        code=code,
        detail=redacted(detail, secrets),
        hint=redacted(hint, secrets),
    )


def problem_of(error: HoldfastError, *, secrets: tuple[Secret, ...] = ()) -> ProblemDetails:
    """Report every Untrusted error with the code `sealed`; `detail` names the damage."""
    if (
        error.code == "settings"
        # The operator repairs settings. Their path and content are not shown to clients.
    ):
        return problem(
            status_of(error),
            "settings",
            "this server's settings can't be used, so nothing is decided",
            "for the operator: `holdfast config check`",
        )
    code = "sealed" if isinstance(error, Untrusted) else error.code
    return problem(status_of(error), code, error.message, error.hint, secrets=secrets)


def problem_response(
    details: ProblemDetails, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    more = dict(headers or {})
    if details.status == _UNAUTHORIZED:
        more.setdefault("www-authenticate", 'Bearer realm="holdfast"')
    if details.status in (429, 503):
        more.setdefault("retry-after", "1")
    return HttpResponse(
        msgspec.json.encode(details), status=details.status, media_type=PROBLEM_TYPE, headers=more
    )
