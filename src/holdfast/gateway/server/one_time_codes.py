"""
One-time codes: the page exchanges one for its token.

The home's journal stores a code's hash until the code is used or ten minutes have passed. The code
stands in the URL's fragment, which no browser sends to a server, and is exchanged in the body of a
request. `holdfast serve` prints one at its start if only its owner can read its output. `holdfast
serve code` prints one at any time.
"""

import secrets
from collections.abc import Sequence

from holdfast.gateway.server.tokens import CODE, TokenBook

CODE_SECONDS = 600
PAGE_TOKEN_SECONDS = 12 * 3600  # a day's work; then the page asks for a new code


async def new_code(
    book: TokenBook, *, person: str, scopes: Sequence[str], by: str, now: int
) -> str:
    """Create a code for this person's page, with these scopes."""
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
