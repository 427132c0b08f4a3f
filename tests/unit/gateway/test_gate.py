"""
G1, G2, G3: no route but the open ones is looked for without a living token, and who a token is
comes from the home's journal.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.adapters.inmemory import InMemoryStore
from holdfast.errors import Busy
from holdfast.gateway.http.asgi import Message, Receive, Scope, Send
from holdfast.gateway.http.authentication import Authentication
from holdfast.gateway.http.router import Router
from holdfast.gateway.routes.table import all_routes
from holdfast.gateway.server.rate_limit import Rate
from holdfast.gateway.server.tokens import Bearer, TokenBook
from holdfast.gateway.workers.share import ALL
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.testing.clock import ManualClock
from holdfast.testing.loop import in_loop

ENDS = 1_000
GATEWAY: Any = SimpleNamespace(service=None, share=ALL)


async def _lives(_: Bearer) -> bool:
    return True


ROUTER = Router(all_routes(GATEWAY), _lives)


class Asking:
    """A gate before an application that only notes who came through."""

    def __init__(self, book: TokenBook, *, burst: float = 100) -> None:
        self.now = 0
        self.through: list[str | None] = []
        self.gate = Authentication(
            self._app,
            book,
            is_open=ROUTER.is_open,
            now=lambda: self.now,
            per_second=0,
            burst=burst,
        )

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        bearer: Bearer | None = scope.get("holdfast.bearer")
        self.through.append(bearer.person if bearer is not None else None)

    async def ask(self, *given: str, path: str = "/v1/sessions") -> tuple[int, str] | str | None:
        """Who came through, or what was told instead."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        before = len(self.through)
        headers = [(b"authorization", each.encode()) for each in given]
        await self.gate(
            {"type": "http", "method": "GET", "path": path, "headers": headers}, _never, send
        )
        if sent:
            assert len(self.through) == before
            return sent[0]["status"], msgspec.json.decode(sent[1]["body"])["code"]
        (came,) = self.through[before:]
        return came


async def _never() -> Message:
    raise AssertionError("nothing of a request is read here")


async def asking_with(
    *people: str, burst: float = 100, ends: int | None = ENDS
) -> tuple[Asking, Sequence[str]]:
    book = TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(now_ms=0))))
    tokens = [
        (await book.add(each, person=each, scopes=["read"], expires_at=ends, by="tests", now=0))[0]
        for each in people
    ]
    return Asking(book, burst=burst), tokens


STRANGER = (401, "unauthorized")


@in_loop
async def test_only_a_living_token_in_its_header_opens_a_route() -> None:
    asking, (token, other) = await asking_with("alice", "bob")
    assert await asking.ask(f"Bearer {token}") == "alice"
    assert await asking.ask(f"bearer {other}") == "bob"
    wrong = [
        (),
        ("",),
        (token,),
        (f"Bearer  {token}",),
        (f"Bearer {token}\n",),
        (f"Bearer {token}x",),
        (f"Bearer {token[:-1]}",),
        (f"Basic {token}",),
        (f"Bearer {token.swapcase()}",),
        (f"Bearer {token}", f"Bearer {token}"),
        (f"Bearer {token}", f"Bearer {other}"),
        (f"Bearer hf_{'x' * 49}",),
    ]
    for given in wrong:
        assert await asking.ask(*given) == STRANGER, given
    assert asking.through == ["alice", "bob"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/v1/codes", "/assets/app.js"])
@in_loop
async def test_the_open_routes_need_no_token_and_nobody_is_anybody_there(path: str) -> None:
    asking, (token,) = await asking_with("alice")
    assert await asking.ask(path=path) is None
    assert await asking.ask(f"Bearer {token}", path=path) is None
    assert asking.through == [None, None]


@pytest.mark.parametrize(
    "path",
    [
        "/assets",
        "/v1",
        "/v1/codes/",
        "/metrics",
        "/openapi.json",
        "/healthz/x",
        "/x/assets/app.js",
        "",
    ],
)
@in_loop
async def test_a_path_that_resembles_an_open_route_needs_a_token(path: str) -> None:
    asking, _ = await asking_with("alice")
    assert await asking.ask(path=path) == STRANGER


@in_loop
async def test_a_token_is_dead_at_its_end_and_when_it_is_revoked_from_the_next_request_on() -> None:
    asking, (token,) = await asking_with("alice")
    asking.now = ENDS - 1
    assert await asking.ask(f"Bearer {token}") == "alice"
    asking.now = ENDS
    assert await asking.ask(f"Bearer {token}") == STRANGER
    asking, (token,) = await asking_with("alice", ends=None)
    asking.now = 10**15
    assert await asking.ask(f"Bearer {token}") == "alice"
    await asking.gate._book.revoke("alice", by="tests")
    assert await asking.ask(f"Bearer {token}") == STRANGER


@in_loop
async def test_the_rate_limit_refuses_the_caller_that_exceeds_it_and_no_other() -> None:
    asking, (token, other) = await asking_with("alice", "bob", burst=1)
    asking.gate._strangers = Rate(per_second=0, burst=1)
    assert [await asking.ask(f"Bearer {token}") for _ in range(2)] == ["alice", (429, "too_many")]
    assert await asking.ask(f"Bearer {other}") == "bob"
    assert [await asking.ask() for _ in range(2)] == [STRANGER, (429, "too_many")]
    assert asking.through == ["alice", "bob"]


class Unreadable(TokenBook):
    async def find(self, token: str, *, now: int) -> Bearer | None:
        raise Busy(f"the home can't be read now ({len(token)}, {now})")


@in_loop
async def test_while_the_home_can_not_be_read_nobody_is_let_in() -> None:
    asking = Asking(Unreadable(HomeLedger(InMemoryStore())))
    assert await asking.ask(f"Bearer hf_{'x' * 49}") == (503, "busy")


# --- how often


def test_a_bucket_is_refilled_over_time_and_never_beyond_its_size() -> None:
    now = 0.0
    rate = Rate(per_second=2, burst=3, now=lambda: now)
    assert [rate.take("a") for _ in range(4)] == [True, True, True, False]
    assert rate.take("b")
    now = 0.25
    assert not rate.take("a")
    now = 0.5  # what a refused one found there is not lost
    assert [rate.take("a") for _ in range(2)] == [True, False]
    now = 100.0
    assert [rate.take("a") for _ in range(4)] == [True, True, True, False]
    rate.give_back("a")
    assert [rate.take("a") for _ in range(2)] == [True, False]


def test_a_returned_permit_does_not_enlarge_the_bucket() -> None:
    rate = Rate(per_second=0, burst=2, now=lambda: 0.0)
    assert rate.take("a")
    rate.give_back("a")
    rate.give_back("a")
    rate.give_back("b")
    assert [rate.take("a") for _ in range(3)] == [True, True, False]
    assert [rate.take("b") for _ in range(3)] == [True, True, False]


def test_buckets_are_bounded_in_number_and_the_one_asked_longest_ago_goes() -> None:
    rate = Rate(per_second=0, burst=1, keys_max=2, now=lambda: 0.0)
    assert [rate.take(key) for key in "aba"] == [True, True, False]
    assert rate.take("c")
    assert [rate.take(key) for key in "cab"] == [False, False, True]
