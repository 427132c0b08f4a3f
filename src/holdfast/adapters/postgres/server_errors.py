"""
The errors of the server, by what the operator does next.

Every error of the driver is translated here, once. `Lost` is the only one after which nobody knows
whether a statement was kept.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.errors import Busy, HoldfastError, NotSaved, ReadOnly, Refused, Unusable

ANOTHER_TIMELINE = "another_timeline"
NOT_COMPARED = "nodes_not_compared"


class Lost(Exception):
    """The connection ended while a statement was under way; it may or may not have been kept."""


class RowInTheWay(NotSaved):
    """A row stands where the next record belongs, and no append of ours put it there."""


def first_line(exc: BaseException) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]


_ATTEMPT = ("connection failed: ", "connection is bad: ")  # the driver's words before the reason


def _reasons(exc: BaseException) -> list[str]:
    """Why each server of the address was not connected to, in the server's or libpq's words."""
    lines = str(exc).splitlines()
    attempts = [each for each in lines if each.startswith("- host: ")] or [first_line(exc)]
    for words in _ATTEMPT:
        attempts = [each.rpartition(words)[2] for each in attempts]
    return [" ".join(each.replace("FATAL:", "").split()) for each in attempts]


class _Refusal(NamedTuple):
    said: str  # a part of what the server or libpq says
    meaning: str
    hint: str


# The first that fits counts.
_REFUSALS = (
    _Refusal(
        r"database .* does not exist",
        "the database does not exist",
        "createdb NAME, then `holdfast storage init`",
    ),
    _Refusal(
        "authentication failed|no password supplied|role .* does not exist|"
        "no pg_hba.conf entry|not permitted to log in|permission denied for database",
        "the server refuses this login",
        "check the user in [storage] url, the password in ~/.pgpass or the service file, and "
        "pg_hba.conf on the server",
    ),
    _Refusal(
        "certificate",
        "the server's certificate is not accepted",
        "name the server as its certificate does, and the authority with sslrootcert= in "
        "[storage] url",
    ),
    _Refusal(
        "does not support SSL",
        "the server offers no TLS",
        "set ssl = on on the server; in a network that only you can read, set "
        "storage.allow_plaintext = true and name no sslmode",
    ),
    _Refusal(
        "definition of service .* not found",
        "[storage] url names a service that is not there",
        "add it to ~/.pg_service.conf, or name the file with PGSERVICEFILE",
    ),
)


def unreachable(exc: Exception) -> HoldfastError:
    """Sort a refused connection by what the operator does next."""
    reasons = _reasons(exc)
    text = "; ".join(reasons)
    state = getattr(exc, "sqlstate", None)
    if state == "53300" or re.search(r"too many|connection slots", text):
        return _STATES["53300"](text)
    for refusal in _REFUSALS:
        if re.search(refusal.said, text):
            return Unusable(f"{refusal.meaning}: {text}", code="storage", hint=refusal.hint)
    if all(each.endswith("session is read-only") for each in reasons):
        return Busy(
            f"no server of [storage] url takes writes: {text}",
            code="storage_unreachable",
            hint="name the primary there, or promote a standby; nothing was written",
        )
    return Busy(
        f"the database can't be reached: {text}",
        code="storage_unreachable",
        hint="check [storage] url, and that the server runs; nothing was written",
    )


_STATES: dict[str, Callable[[str], HoldfastError]] = {
    "53100": lambda text: NotSaved(
        f"the database's disk is full: {text}", hint="free space there, then try again"
    ),
    "25006": lambda text: ReadOnly(
        f"the database takes no writes: {text}",
        hint="a standby was asked: name the primary, or add target_session_attrs=read-write",
    ),
    "55P03": lambda text: Busy(f"another writer holds the row: {text}"),
    "57014": lambda text: Busy(f"the server gave the statement up: {text}"),
    "53300": lambda text: Busy(
        f"the server has no connection left: {text}", hint="raise max_connections, or use a pooler"
    ),
    "HF002": lambda text: Busy(
        f"{text}: it was promoted, restored or replaced",
        code=ANOTHER_TIMELINE,
        hint="nothing was written; this node compares its anchors now: try again in a moment",
    ),
    "HF004": lambda text: Unusable(
        f"{text} on this server, so nothing would be durable",
        code="storage",
        hint="set synchronous_commit = on",
    ),
    "23505": lambda text: RowInTheWay(f"the row exists: {text}"),
    "HF005": lambda text: Busy(text, hint="look again"),
    "HF007": lambda text: Refused(
        f"{text}; nothing is written over",
        code="exists",
        hint="name another schema under [storage] in holdfast.toml",
    ),
}
_NO_SCHEMA = frozenset({"3F000", "42P01", "42883"})


def translated(exc: Exception, connection: Any) -> Exception:
    """
    Return our error for one of the driver's. `Lost` if the connection is gone: a server that ends a
    session may have committed its statement.
    """
    state = getattr(exc, "sqlstate", None) or ""
    text = first_line(exc)
    if connection.broken or connection.closed or state.startswith(("08", "57P")) or not state:
        return Lost(text)
    if state in _NO_SCHEMA:
        return Unusable(
            f"the database has no home in this schema, or an older one: {text}",
            code="storage",
            hint="`holdfast storage status` says which; `holdfast storage init` makes one",
        )
    if state == "42501":
        return Unusable(
            f"this login may not do that: {text}",
            code="storage",
            hint="as the schema's owner, `holdfast storage init --create-roles` makes a role that "
            "may; grant it to this login",
        )
    known = _STATES.get(state)
    if known is not None:
        return known(text)
    if state.startswith(("40", "53")):
        return Busy(f"the server could not do it now: {text} ({state})")
    return NotSaved(f"the server refused it: {text} ({state})", hint="look at the server's log")
