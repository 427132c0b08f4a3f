"""
One-time codes: how the page gets its token. In this process's memory only, used once, dead after ten minutes.

The code stands in the URL's fragment, which no browser sends to any server, and is exchanged in the body of a request.
"""

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from holdfast.errors import HoldfastError
from holdfast.gateway.tokens import digest_of, new_token

CODE_SECONDS = 600
PAGE_TOKEN_SECONDS = 12 * 3600  # a day's work; after it the page asks for a new code
_CODES_MAX = 64


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a code is exchanged for."""

    person: str
    scopes: tuple[str, ...]
    audience: str
    by: str


class Codes:
    def __init__(self) -> None:
        # By hash, so that the time a comparison takes tells nothing about a code.
        self._open: OrderedDict[str, tuple[int, Offer]] = OrderedDict()

    def new(self, offer: Offer, *, now: int) -> str:
        code = new_token()  # of the same form, so that a code is recognised where it does not belong
        self._open[digest_of(code)] = (now + CODE_SECONDS * 1000, offer)
        while len(self._open) > _CODES_MAX:
            self._open.popitem(last=False)
        return code

    def take(self, code: str, *, now: int) -> Offer | None:
        """Used up by the first who brings it, in time or not."""
        found = self._open.pop(digest_of(code), None)
        return found[1] if found is not None and now < found[0] else None

    @contextmanager
    def taken(self, code: str, *, now: int) -> Generator[Offer | None, None, None]:
        """The same; but where no token could be made of it inside, because the home can't be written now, it is as good as before."""
        known = self._open.get(digest_of(code))
        offer = self.take(code, now=now)
        try:
            yield offer
        except HoldfastError:
            if offer is not None and known is not None:
                self._open[digest_of(code)] = known
            raise
