"""
`/v1/decisions`: who approved or denied which call, when, why, and its result; as a list with
filters, as CSV and as JSON Lines. A token sees the decisions that it could have seen as prompts.
"""

import csv
import io
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.pagination import LIMIT, after_name, page_asked_for
from holdfast.gateway.http.router import AnyRoute, ApiCall, Parameter, Route
from holdfast.gateway.http.schemas import DecisionsList
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import session_id
from holdfast.runtime.reports.decisions import DecisionReport, DecisionsPage

EXPORT_MAX = 10_000  # rows of one export; a longer history is exported by its dates
_NAME = {"type": "string", "minLength": 1, "maxLength": 128}
_TIME = {
    "type": "string",
    "pattern": r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?)?$",
}
_SESSION = {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}$"}
_FILTERS = (
    Parameter("person", "decided by, or asked for by, this person", _NAME),
    Parameter("tool", "of this tool", _NAME),
    Parameter("session", "in this session, CHANNEL/THREAD", _SESSION),
    Parameter("since", "not before this time, ISO 8601", _TIME),
    Parameter("until", "not after this time, ISO 8601", _TIME),
)
_COLUMNS = (
    "id", "session", "turn", "tool", "requester", "requested_at", "option", "answered_by",
    "answered_at", "way", "reason", "closed_as", "outcome", "ended_at", "display", "text",
)  # fmt: skip
_FORMULA = frozenset("=+-@|")


class DecisionRoutes:
    def __init__(self, gateway: Gateway) -> None:
        self._service = gateway.service

    def routes(self) -> list[AnyRoute]:
        return [
            Route(
                method="GET", path="/v1/decisions", scope="read", handle=self.list_decisions,
                response=DecisionsList, query=(LIMIT, after_name("^.+$"), *_FILTERS),
                id="listDecisions", summary="Decisions about calls", answer="a page, newest first",
            ),
            Route(
                method="GET", path="/v1/decisions.csv", scope="read", handle=self.export_csv,
                response=str, media_type="text/csv; charset=utf-8", query=_FILTERS,
                id="exportDecisionsCsv", summary="Decisions as CSV",
                answer=f"a head and at most {EXPORT_MAX} rows, newest first",
            ),
            Route(
                method="GET", path="/v1/decisions.jsonl", scope="read", handle=self.export_jsonl,
                response=str, media_type="application/jsonl", query=_FILTERS,
                id="exportDecisionsJsonl", summary="Decisions as JSON Lines",
                answer=f"at most {EXPORT_MAX} lines, newest first",
            ),
        ]  # fmt: skip

    async def list_decisions(self, call: ApiCall[None]) -> DecisionsList:
        limit, after = page_asked_for(call.query)
        page = await self._page(call, limit, after)
        return DecisionsList(decisions=page.decisions, next=page.next, unreadable=page.unreadable)

    async def export_csv(self, call: ApiCall[None]) -> str:
        page = await self._page(call, EXPORT_MAX)
        out = io.StringIO()
        rows = csv.writer(out)
        rows.writerow(_COLUMNS)
        for each in page.decisions:
            rows.writerow([cell(getattr(each, name)) for name in _COLUMNS])
        return out.getvalue()

    async def export_jsonl(self, call: ApiCall[None]) -> str:
        page = await self._page(call, EXPORT_MAX)
        return "".join(msgspec.json.encode(each).decode() + "\n" for each in page.decisions)

    async def _page(
        self, call: ApiCall[None], limit: int, after: str | None = None
    ) -> DecisionsPage:
        bearer, query = call.bearer, call.query
        only = session_id(query["session"]) if "session" in query else None
        since, until = _time(query.get("since")), _time(query.get("until"))
        lines = await self._service.sessions(sees=bearer.sees)
        return await self._service.decisions.list(
            [each for each in lines if only is None or each.session == only],
            wanted=_wanted(bearer, query.get("person"), query.get("tool"), since, until),
            limit=limit,
            after=after,
            since=since,
        )


def _wanted(
    bearer: Bearer, person: str | None, tool: str | None, since: str | None, until: str | None
) -> Callable[[DecisionReport], bool]:
    def fits(each: DecisionReport) -> bool:
        at = each.answered_at or each.requested_at
        people = (each.requester, each.answered_by)
        return (
            bearer.is_concerned(each.audience, each.boundary, (*people, *each.may_answer))
            and (person is None or person in people)
            and (tool is None or tool == each.tool)
            and (since is None or at >= since)
            and (until is None or at <= until)
        )

    return fits


def _time(given: str | None) -> str | None:
    """Return the time in the form of the reports, so that texts compare as times do."""
    if given is None:
        return None
    try:
        parsed = datetime.fromisoformat(given)
    except ValueError as exc:
        raise Refused(
            f"{given!r:.60} is not a time", code="malformed", hint="for example 2026-01-31T09:00Z"
        ) from exc
    utc = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
    text = utc.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def cell(value: object) -> str:
    """
    Return a cell that no spreadsheet runs as a formula: the text comes from models and tools. Some
    drop characters that nobody sees, and some read wide signs as plain ones.

    >>> cell("=HYPERLINK(1)"), cell("plain"), cell(None)
    ("'=HYPERLINK(1)", 'plain', '')
    """
    text = "" if value is None else str(value)
    seen = next((each for each in text if each.isprintable() and each != " "), "")
    is_formula = not _FORMULA.isdisjoint(unicodedata.normalize("NFKC", seen)[:1])
    return f"'{text}" if is_formula or not text[:1].isprintable() else text
