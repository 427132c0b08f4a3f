"""G2: what a token may do and see, from the home's record of it and from nothing else."""

from typing import Any

import pytest

from holdfast.adapters.inmemory import InMemoryStore
from holdfast.errors import HoldfastError
from holdfast.gateway.server import tokens
from holdfast.gateway.server.one_time_codes import CODE_SECONDS, new_code
from holdfast.gateway.server.tokens import Bearer, TokenBook, TokenReport, digest_of, reader_set_of
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.session.authority.context import Audience, MessageSource, Principal, Provenance
from holdfast.session.home.events import TokenAdded
from holdfast.session.state import Reader
from holdfast.testing.clock import ManualClock
from holdfast.testing.loop import in_loop


def bearer(*scopes: str, person: str = "alice", audience: str = "personal") -> Bearer:
    added = TokenAdded(
        name="n",
        digest="d",
        person=person,
        scopes=scopes or ("read",),
        audience=audience,
        expires_at=None,
        by="tests",
    )
    return Bearer.of(added)


PERSONAL, OPS, PUBLIC, ADMIN = (
    bearer(),
    bearer(audience="team:ops"),
    bearer(audience="public"),
    bearer("admin", audience="public"),
)
ALICE, ALICE_IN_OPS, BOB_IN_OPS = (
    Reader("alice", "personal", "personal:alice"),
    Reader("alice", "team", "team:ops"),
    Reader("bob", "team", "team:ops"),
)


@pytest.mark.parametrize(
    ("scopes", "may"),
    [
        (("read",), {"read"}),
        (("send",), {"send"}),
        (("approve",), {"approve"}),
        (("admin",), {"admin", "read"}),  # whatever is done as a person needs its own scope
        (("read", "send", "approve", "admin"), {"read", "send", "approve", "admin"}),
    ],
)
def test_a_scope_allows_itself_and_no_other(scopes: tuple[str, ...], may: set[str]) -> None:
    assert {
        scope for scope in ("read", "send", "approve", "admin", "") if bearer(*scopes).may(scope)
    } == may


@pytest.mark.parametrize(
    ("audience", "boundary", "personal", "ops", "public", "admin"),
    [
        ("personal", "personal:alice", True, False, False, True),
        (
            "personal",
            "personal:bob",
            True,
            False,
            False,
            True,
        ),  # whose it is, is asked of the readers
        ("team", "team:ops", True, True, False, True),
        ("team", "team:dev", True, False, False, True),
        ("public", "public", True, True, True, True),
        ("everyone", "public", False, False, False, True),
        (None, "public", False, False, False, True),
        ("public", None, False, False, False, True),
        (None, None, False, False, False, True),
    ],
)
def test_a_token_reads_what_was_said_within_its_audience_and_an_unknown_reader_set_is_not(
    audience: str | None, boundary: str | None, personal: bool, ops: bool, public: bool, admin: bool
) -> None:
    assert [each.reads(audience, boundary) for each in (PERSONAL, OPS, PUBLIC, ADMIN)] == [
        personal,
        ops,
        public,
        admin,
    ]


@pytest.mark.parametrize(
    ("readers", "sees"),
    [
        ([], [False, False, False, True]),
        ([ALICE], [True, False, False, True]),
        ([ALICE_IN_OPS], [True, True, False, True]),
        ([BOB_IN_OPS], [False, False, False, True]),
        ([BOB_IN_OPS, Reader("alice", "public", "public")], [True, True, True, True]),
        ([Reader("Alice", "public", "public")], [False, False, False, True]),
    ],
)
def test_a_session_is_seen_by_who_takes_part_in_it(readers: list[Reader], sees: list[bool]) -> None:
    assert [each.sees(readers) for each in (PERSONAL, OPS, PUBLIC, ADMIN)] == sees


@pytest.mark.parametrize(
    ("people", "concerned"),
    [
        (["alice"], [True, True, False, True]),
        (["bob", "alice"], [True, True, False, True]),
        (["bob", None], [False, False, False, True]),
        ([], [False, False, False, True]),
    ],
)
def test_a_prompt_is_shown_to_whom_it_concerns_within_their_audience(
    people: list[str | None], concerned: list[bool]
) -> None:
    assert [
        each.is_concerned("team", "team:ops", people) for each in (PERSONAL, OPS, PUBLIC, ADMIN)
    ] == concerned


@pytest.mark.parametrize(
    ("readers", "may_join"),
    [
        ([], [False, False, False, True]),
        ([BOB_IN_OPS], [False, True, False, True]),
        ([BOB_IN_OPS, ALICE], [False, False, False, True]),
        ([Reader("bob", "team", "team:dev")], [False, False, False, True]),
        ([Reader("bob", "personal", "personal:bob")], [False, False, False, True]),
        (
            [Reader("bob", "personal", "personal:alice")],
            [False, False, False, True],
        ),  # not even of one's own boundary
        ([Reader("bob", "public", "public")], [False, False, True, True]),
    ],
)
def test_only_a_session_that_is_all_of_ones_shared_reader_set_may_be_joined(
    readers: list[Reader], may_join: list[bool]
) -> None:
    assert [each.may_join(readers) for each in (PERSONAL, OPS, PUBLIC, ADMIN)] == may_join


@pytest.mark.parametrize(
    ("token", "principal", "boundary", "scope"),
    [
        (PERSONAL, Principal.TRUSTED_INTERNAL, "personal:alice", "direct"),
        (OPS, Principal.TRUSTED_INTERNAL, "team:ops", "group"),
        (PUBLIC, Principal.UNTRUSTED_EXTERNAL, "public", "group"),
    ],
)
def test_the_source_of_a_message_comes_from_the_token_record_alone(
    token: Bearer, principal: Principal, boundary: str, scope: Any
) -> None:
    assert token.source() == MessageSource(
        channel="http",
        person="alice",
        principal=principal,
        audience=token.audience,
        boundary=boundary,
        provenance=Provenance(authenticity="verified", taint="clean", scope=scope, kind="message"),
        can_prompt=True,
    )


@pytest.mark.parametrize(
    ("audience", "reader_set"),
    [
        ("personal", (Audience.PERSONAL, "personal:alice")),
        ("team", (Audience.TEAM, "team:home")),
        ("team:ops", (Audience.TEAM, "team:ops")),
        ("public", (Audience.PUBLIC, "public")),
    ],
)
def test_an_audience_is_one_of_ours(audience: str, reader_set: tuple[Audience, str]) -> None:
    assert reader_set_of(audience, "alice") == reader_set


# --- the home's record


def book_of() -> TokenBook:
    return TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(now_ms=0))))


async def add(book: TokenBook, name: str = "n", **changes: Any) -> str:
    made: dict[str, Any] = {"person": "alice", "scopes": ["read"], "by": "tests", "now": 0}
    return (await book.add(name, **{**made, **changes}))[0]


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("", {}, "malformed"),
        ("N", {}, "malformed"),
        ("n\n", {}, "malformed"),
        ("x" * 65, {}, "malformed"),
        ("n", {"person": ""}, "malformed"),
        ("n", {"person": " alice"}, "malformed"),
        ("n", {"person": "alice\u202e"}, "malformed"),
        ("n", {"person": "x" * 129}, "malformed"),
        ("n", {"scopes": []}, "malformed"),
        ("n", {"scopes": ["read", "root"]}, "malformed"),
        ("n", {"audience": "everyone"}, "malformed"),
        ("n", {"audience": "team:"}, "malformed"),
        ("n", {"audience": "team:OPS"}, "malformed"),
        ("known", {}, "exists"),
    ],
)
@in_loop
async def test_the_token_book_refuses_an_invalid_token_and_writes_nothing(
    name: str, changes: dict[str, Any], code: str
) -> None:
    book = book_of()
    await add(book, "known")
    before = await book.reports(now=0)
    with pytest.raises(HoldfastError) as told:
        await add(book, name, **changes)
    assert told.value.code == code
    assert await book.reports(now=0) == before


@in_loop
async def test_everything_but_the_token_is_stored() -> None:
    book = book_of()
    token, added = await book.add(
        "x" * 64,
        person="y" * 128,
        scopes=["admin", "read", "read"],
        audience="team",
        expires_at=86_400_000,
        by="tests",
        now=0,
    )
    assert added == TokenAdded(
        name="x" * 64,
        digest=digest_of(token),
        person="y" * 128,
        scopes=("read", "admin"),
        audience="team:home",
        expires_at=86_400_000,
        by="tests",
    )
    listed = TokenReport(
        name="x" * 64,
        person="y" * 128,
        scopes=("read", "admin"),
        audience="team:home",
        expires_at="1970-01-02T00:00:00.000Z",
        expired=False,
    )
    assert await book.reports(now=86_399_999) == (listed,)
    assert [each.expired for each in await book.reports(now=86_400_000)] == [True]


@in_loop
async def test_an_expired_name_makes_room_and_so_many_may_live_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_MAX", 2)
    book = book_of()
    await add(book, "a", expires_at=10)
    await add(book, "b")
    with pytest.raises(HoldfastError) as told:
        await add(book, "c", now=9)
    assert told.value.code == "too_many"
    again = await add(book, "a", now=10)
    assert await book.find(again, now=10) is not None
    with pytest.raises(HoldfastError) as told:
        await add(book, "a", now=10)
    assert told.value.code == "exists"


@in_loop
async def test_a_stream_continues_only_while_its_token_is_valid_and_unchanged() -> None:
    book = book_of()
    kept, ends, changed = (
        await add(book, "kept"),
        await add(book, "ends", expires_at=10),
        await add(book, "changed"),
    )
    bearers = [
        found
        for each in (kept, ends, changed)
        if (found := await book.find(each, now=0)) is not None
    ]
    assert await book.still_lives(bearers, now=9) == {
        digest_of(kept),
        digest_of(ends),
        digest_of(changed),
    }
    narrower = Bearer.of(
        TokenAdded(
            name="changed",
            digest=digest_of(changed),
            person="alice",
            scopes=(),
            audience="public",
            expires_at=None,
            by="",
        )
    )
    assert await book.still_lives([*bearers[:2], narrower], now=10) == {digest_of(kept)}
    await book.revoke("kept", by="tests")
    assert await book.still_lives(bearers, now=0) == {digest_of(changed)}, (
        "a clock that was set back revives nothing"
    )
    with pytest.raises(HoldfastError) as told:
        await book.revoke("kept", by="tests")
    assert told.value.code == "unknown"


# --- one-time codes of the page


async def exchanged(book: TokenBook, code: str, *, now: int) -> TokenAdded | None:
    found = await book.exchange(code, name=f"page-{now}", expires_at=now + 1000, now=now)
    return found[1] if found is not None else None


@pytest.mark.parametrize(
    ("now", "is_given"), [(CODE_SECONDS * 1000 - 1, True), (CODE_SECONDS * 1000, False)]
)
@in_loop
async def test_a_code_is_exchanged_once_and_in_time(now: int, is_given: bool) -> None:
    book = TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(0))))
    code = await new_code(book, person="alice", scopes=("read",), by="alice", now=0)
    assert await exchanged(book, f"{code}x", now=0) is None
    given = await exchanged(book, code, now=now)
    assert (given is not None) == is_given
    if given is not None:
        assert (given.person, given.scopes, given.way, Bearer.of(given).way) == (
            "alice",
            ("read",),
            "page",
            "page",
        )
        assert await exchanged(book, code, now=now) is None


@in_loop
async def test_a_code_opens_nothing_but_the_exchange() -> None:
    book = TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(0))))
    code = await new_code(book, person="alice", scopes=("admin",), by="alice", now=0)
    for token in (code, f"hf_{code}"):
        assert await book.find(token, now=0) is None


@in_loop
async def test_no_token_is_exchanged_as_a_code() -> None:
    book = TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(0))))
    token, _ = await book.add("ci", person="alice", scopes=("read",), by="alice", now=0)
    assert await exchanged(book, token, now=0) is None


@in_loop
async def test_two_servers_exchange_a_code_once() -> None:
    store = InMemoryStore(clock=ManualClock(0))
    one, other = TokenBook(HomeLedger(store)), TokenBook(HomeLedger(store))
    code = await new_code(one, person="alice", scopes=("read",), by="alice", now=0)
    given = [await exchanged(book, code, now=1) for book in (other, one)]
    assert [each is not None for each in given] == [True, False]


@in_loop
async def test_codes_that_nobody_used_do_not_pile_up() -> None:
    book = TokenBook(HomeLedger(InMemoryStore(clock=ManualClock(0))))
    for minute in range(30):
        await new_code(book, person="alice", scopes=("read",), by="alice", now=minute * 60_000)
    assert len(await book.reports(now=30 * 60_000)) <= 11
