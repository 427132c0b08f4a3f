"""
One-time codes: how the page gets its token. A code is kept in the home's journal, by its hash,
until it is used or ten minutes are over.

The code stands in the URL's fragment, which no browser sends to any server, and is exchanged in the
body of a request. `holdfast serve` gives one at its start where only its owner can read what it
prints, and `holdfast serve code` gives one at any time.
"""

import secrets
from collections.abc import Sequence

from holdfast.gateway.server.tokens import CODE, TokenBook

CODE_SECONDS = 600
PAGE_TOKEN_SECONDS = 12 * 3600  # a day's work; after it the page asks for a new code


async def new_code(
    book: TokenBook, *, person: str, scopes: Sequence[str], by: str, now: int
) -> str:
    """A code for the page of this person, with these scopes."""
    code, _ = await book.add(
        f"code-{secrets.token_hex(4)}",
        person=person,
        scopes=scopes,
        expires_at=now + CODE_SECONDS * 1000,
        by=by,
        now=now,
        way=CODE,
    )
    return code


def page_at(address: str, code: str) -> str:
    """
    >>> page_at("http://127.0.0.1:8321", "x")
    'http://127.0.0.1:8321/#code=x'
    """
    return f"{address}/#code={code}"
