"""
A client of the proxy: its name, its session, and the source of its calls.

A client's name is its own claim. It chooses a session and a text, and nothing else: the person, the
audience and the scopes come from the token. A call never counts as a person's message, so it
supersedes nothing, and its text is tainted: a model that Holdfast does not see has written it.
"""

import base64
import binascii
import re
import secrets

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.server.tokens import Bearer
from holdfast.ids import SessionId, short_digest
from holdfast.session.authority.context import RELAYED, RELAYED_SAME_USER, MessageSource
from holdfast.session.view.safe_text import render_line

CHANNEL = "mcp"
_NAME_CHARS_MAX = 64  # of a client's name, as people see it
_SLUG_CHARS_MAX = 36  # with both digests, a thread has at most 64 characters
_OWNER_CHARS = 16  # 80 bits of a digest
_CLIENT_CHARS = 8
_NOT_SLUG = re.compile(r"[^a-z0-9_-]+")
_SESSION_ID = re.compile(r"([A-Za-z0-9_-]{0,400})\.[0-9a-f]{32}\Z")


def client_name(given: object, bearer: Bearer) -> str:
    """Return the name that the client gives itself as one safe line, else its token's name."""
    name = given.get("name") if isinstance(given, dict) else None
    text = render_line(name[:_NAME_CHARS_MAX]).text.strip() if isinstance(name, str) else ""
    return text or bearer.name


def session_of_client(bearer: Bearer, client: str) -> SessionId:
    """Return the one session of this client, person and reader set."""
    slug = _NOT_SLUG.sub("-", client.casefold())[:_SLUG_CHARS_MAX].strip("-_") or "client"
    exact = [] if slug == client else [short_digest("mcp client", client)[:_CLIENT_CHARS]]
    return SessionId(f"{CHANNEL}/{'.'.join([slug, *exact, _owner_part(bearer)])}")


def is_session_of(session: str, bearer: Bearer) -> bool:
    """Whether a client of this person has that session, within the token's reader set."""
    return session.startswith(f"{CHANNEL}/") and session.endswith(f".{_owner_part(bearer)}")


def _owner_part(bearer: Bearer) -> str:
    return short_digest("mcp owner", bearer.person, bearer.boundary)[:_OWNER_CHARS]


def source_of_call(bearer: Bearer, *, shares_user: bool) -> MessageSource:
    source = bearer.source()
    provenance = msgspec.structs.replace(
        source.provenance, taint="tainted", kind=RELAYED_SAME_USER if shares_user else RELAYED
    )
    return msgspec.structs.replace(source, channel=CHANNEL, provenance=provenance)


def refuse_approver(bearer: Bearer) -> None:
    """A client that could answer its own prompts is not gated by them."""
    if bearer.may("approve") or bearer.is_admin:
        raise Refused(
            "this token can also approve or administer, so its client could answer itself",
            code="no_authority",
            hint="use a token with the scope send alone",
        )


def new_session_header(client: str) -> str:
    """
    Return the id of an older client's connection. It only repeats the client's name, since later
    requests lack it; it proves nothing and opens nothing.
    """
    name = base64.urlsafe_b64encode(client.encode()).decode().rstrip("=")
    return f"{name}.{secrets.token_hex(16)}"


def client_in_header(header: str | None) -> dict[str, str] | None:
    found = _SESSION_ID.match(header or "")
    if found is None:
        return None
    try:
        padded = found[1] + "=" * (-len(found[1]) % 4)
        return {"name": base64.urlsafe_b64decode(padded).decode()}
    except (binascii.Error, ValueError):
        return None
