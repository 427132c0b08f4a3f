"""
The live inbox: what waits for me and every change of it, once, in order, nobody else's, whatever
happens to the connection, the server or the token.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.adapters.inmemory.disk import InMemoryDisk
from holdfast.adapters.inmemory.notifier import InMemoryNotifier
from holdfast.errors import Busy
from holdfast.gateway.server.tokens import Bearer, TokenAdded, TokenBook
from holdfast.gateway.streams import prompt_board as board_module
from holdfast.gateway.streams.inbox_hub import InboxHub
from holdfast.gateway.streams.inbox_stream import InboxStream
from holdfast.gateway.streams.prompt_board import Change, PromptBoard
from holdfast.gateway.streams.registry import Streams
from holdfast.ids import ApprovalId, CallId, InstanceId, SessionId, TurnId
from holdfast.runtime.reports.open_prompts import PromptEnd
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import open_in_memory
from tests.acceptance.gateway.conftest import TAKEN, Events, Gateway, until

PATH = "/v1/approvals/events"
ALICE = MessageSource.local("alice")
Heard = tuple[str, str | None, Any]


# --- without a server: the board, and a place on it


def bearer(
    person: str = "alice", audience: str = "personal", scopes: Sequence[str] = ("read",)
) -> Bearer:
    return Bearer.of(
        TokenAdded(
            name=person,
            digest=f"{person}{audience}",
            person=person,
            scopes=tuple(scopes),
            audience=audience,
            expires_at=None,
            by="t",
        )
    )


def report(
    name: str,
    *,
    session: str = "ops/api",
    to: str = "alice",
    reader_set: str = "personal:alice",
    until_: str = "2100-01-01T00:00:00Z",
) -> ApprovalReport:
    return ApprovalReport(
        id=ApprovalId(name), session=SessionId(session), instance=InstanceId("i"), turn=TurnId("t1"), call=CallId("c1"), tool="shell",
        arguments={}, display="x" * 200, digest="d", options=("deny",), covers={}, may_answer=(to,), requester=to,
        audience=reader_set.partition(":")[0], boundary=reader_set, channel="http", requested_at="2026-01-01T00:00:00Z", expires_at=until_,
        state="requested", closed_as=None, answered_by=None, option=None,
    )  # fmt: skip


DENIED = PromptEnd("bob", "deny", None)


class Home:
    """A board, who looks at it, and what waits in each session by now."""

    def __init__(self) -> None:
        self.board = PromptBoard()
        self.inboxes: list[InboxStream] = []
        self.waiting: dict[str, dict[str, ApprovalReport]] = {}

    def open(self, who: Bearer, cursor: str | None = None) -> InboxStream:
        self.inboxes.append(InboxStream(self.board, who, cursor))
        return self.inboxes[-1]

    def ask(self, made: ApprovalReport) -> None:
        self.waiting.setdefault(made.session, {})[made.id] = made
        self._compare(made.session, {})

    def answer(self, session: str, name: str, end: PromptEnd | None = DENIED) -> None:
        del self.waiting[session][name]
        self._compare(session, {ApprovalId(name): end})

    def _compare(self, session: str, ends: dict[ApprovalId, PromptEnd | None]) -> None:
        self.tell(
            self.board.compare(
                SessionId(session), list(self.waiting[session].values()), ends, now=0
            )
        )

    def tell(self, changes: Sequence[Change]) -> None:
        place = self.board.next_place - len(changes)
        for at, change in enumerate(changes):
            for inbox in self.inboxes:
                inbox.tell(change, place + at)


def heard(data: bytes) -> list[Heard]:
    found = []
    for frame in data.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in frame.split("\n") if not line.startswith(":"))
        if "data" in lines:
            found.append(
                (lines.get("event", "message"), lines.get("id"), json.loads(lines["data"]))
            )
    return found


async def drain(inbox: InboxStream) -> list[Heard]:
    """Until there is nothing more; bounded, since what there is is."""
    found: list[Heard] = []
    for _ in range(10_000):
        data = await inbox.read()
        found += heard(data)
        if not data and not inbox.wake.is_set():
            return found
    raise AssertionError("it never ends")


def names(events: Sequence[Heard]) -> list[tuple[str, Any]]:
    """Each event with the prompts it is about."""
    return [
        (name, [each["id"] for each in data["approvals"]] if name == "standing" else data.get("id"))
        for name, _, data in events
    ]


def test_first_everything_that_stands_then_every_change_once() -> None:
    async def story() -> None:
        home = Home()
        home.ask(report("a-1"))
        home.ask(report("a-2", session="ops/db"))
        inbox = home.open(bearer())
        assert names(await drain(inbox)) == [("standing", ["a-1", "a-2"])]
        home.ask(report("a-3"))
        home.answer("ops/api", "a-1")
        home.answer("ops/db", "a-2", PromptEnd(None, None, "superseded"))
        home.answer("ops/api", "a-3", None)
        told = await drain(inbox)
        assert names(told) == [
            ("requested", "a-3"),
            ("answered", "a-1"),
            ("closed", "a-2"),
            ("gone", "a-3"),
        ]
        assert told[1][2] == {
            "id": "a-1",
            "session": "ops/api",
            "answered_by": "bob",
            "option": "deny",
        }
        assert told[2][2] == {"id": "a-2", "session": "ops/db", "closed_as": "superseded"}
        assert await drain(inbox) == []
        assert names(await drain(home.open(bearer()))) == [("standing", [])]

    asyncio.run(story())


STEPS = st.lists(
    st.tuples(st.sampled_from("pqr"), st.integers(0, 3), st.sampled_from(["alice", "bob"])),
    min_size=1,
    max_size=30,
)


@given(steps=STEPS, cuts=st.sets(st.integers(0, 30)))
def test_a_resumed_inbox_never_skips_and_never_repeats(
    steps: list[tuple[str, int, str]], cuts: set[int]
) -> None:
    """
    G4: whatever is asked and answered, and wherever the line breaks, what was heard is what one
    unbroken line heard, and what was asked and answered.
    """

    async def story() -> None:
        home, made = Home(), 0
        whole, broken = home.open(bearer()), home.open(bearer())
        all_, parts = await drain(whole), await drain(broken)
        cursor = broken.cursor
        for at, (session, which, to) in enumerate(steps):
            here = home.waiting.setdefault(f"ops/{session}", {})
            if which < len(here):
                home.answer(f"ops/{session}", sorted(here)[which])
            else:
                made += 1
                home.ask(
                    report(
                        f"a-{made}", session=f"ops/{session}", to=to, reader_set=f"personal:{to}"
                    )
                )
            all_ += await drain(whole)
            if at in cuts:
                broken = home.open(bearer(), cursor)
            if at % 2:
                parts += await drain(broken)
                cursor = broken.cursor
        parts += await drain(broken)
        assert parts == all_
        told = [(name, data["id"]) for name, _, data in parts[1:]]
        assert len(told) == len(set(told))  # no gap, and nothing twice
        asked, over = (
            {prompt for name, prompt in told if (name == "requested") is wanted}
            for wanted in (True, False)
        )
        mine = {
            name
            for here in home.waiting.values()
            for name, each in here.items()
            if each.requester == "alice"
        }
        assert (asked - over, over - asked) == (mine, set())

    asyncio.run(story())


def test_a_slow_follower_is_sent_the_gap_and_all_open_prompts() -> None:
    async def story() -> None:
        home = Home()
        slow = home.open(bearer())
        await drain(slow)
        for number in range(board_module.KEPT_CHANGES):
            home.ask(report(f"a-{number}", session=f"ops/{number}"))
            home.answer(f"ops/{number}", f"a-{number}")
        home.ask(report("a-last"))
        assert names(await drain(slow)) == [("gap", None), ("standing", ["a-last"])]
        home.answer("ops/api", "a-last")
        assert names(await drain(slow)) == [("answered", "a-last")]

    asyncio.run(story())


def test_changes_of_others_move_an_idle_inbox_cursor_without_a_gap() -> None:
    async def story() -> None:
        home = Home()
        idle = home.open(bearer())
        await drain(idle)
        first = idle.cursor
        for number in range(2 * board_module.KEPT_CHANGES):
            home.ask(
                report(f"a-{number}", session=f"ops/{number}", to="bob", reader_set="personal:bob")
            )
        assert not idle.wake.is_set()
        assert idle.cursor != first
        assert f"id: {idle.cursor}\n".encode() in idle.keep_alive
        home.ask(report("a-mine"))
        assert names(await drain(idle)) == [("requested", "a-mine")]
        assert names(await drain(home.open(bearer(), first))) == [
            ("gap", None),
            ("standing", ["a-mine"]),
        ]

    asyncio.run(story())


def test_a_board_bounds_its_kept_changes_and_its_first_page() -> None:
    async def story() -> None:
        home = Home()
        for number in range(2_000):
            home.ask(report(f"a-{number:04d}", session=f"ops/{number}"))
        assert len(list(home.board.changes_from(0))) <= board_module.KEPT_CHANGES
        assert (
            sum(len(change.data) for change in home.board.changes_from(0))
            <= board_module.KEPT_BYTES
        )
        inbox = home.open(bearer())
        page = await inbox.read()
        assert len(page) < 100_000
        assert (heard(page)[0][1], heard(page)[0][2]["more"]) == (
            None,
            True,
        )  # no cursor yet: whoever is cut off here begins again
        told = [
            each["id"]
            for _, _, data in [*heard(page), *await drain(inbox)]
            for each in data["approvals"]
        ]
        assert told == [f"a-{number:04d}" for number in range(2_000)]

    asyncio.run(story())


@pytest.mark.parametrize("cursor", ["0123456789abcdef-0", "{board_id}-99"])
def test_an_inbox_reports_a_gap_for_an_unknown_cursor(cursor: str) -> None:
    async def story() -> None:
        home = Home()
        home.ask(report("a-1"))
        inbox = home.open(bearer(), cursor.format(board_id=home.board.board_id))
        assert names(await drain(inbox)) == [("gap", None), ("standing", ["a-1"])]

    asyncio.run(story())


def test_no_prompt_crosses_its_audience_live_or_standing() -> None:
    """
    G4: a person's own prompts never reach a team's token of theirs, another team's never this
    one's; what is for others reaches nobody but admins.
    """

    async def story() -> None:
        home = Home()
        looking = {
            "mine": bearer(), "ops": bearer(audience="team:ops"), "sales": bearer(audience="team:sales"), "bob": bearer("bob"),
            "admin": bearer("carol", scopes=("read", "admin")),
        }  # fmt: skip
        live = {name: home.open(who) for name, who in looking.items()}
        for inbox in live.values():
            await drain(inbox)
        home.ask(report("a-own"))
        home.ask(report("a-ops", session="ops/team", reader_set="team:ops"))
        wanted = {
            "mine": ["a-own", "a-ops"],
            "ops": ["a-ops"],
            "sales": [],
            "bob": [],
            "admin": ["a-own", "a-ops"],
        }
        assert {
            name: [data["id"] for _, _, data in await drain(inbox)] for name, inbox in live.items()
        } == wanted
        standing = {
            name: (await drain(home.open(who)))[0][2]["approvals"] for name, who in looking.items()
        }
        assert {
            name: sorted(each["id"] for each in prompts) for name, prompts in standing.items()
        } == {name: sorted(prompts) for name, prompts in wanted.items()}
        home.answer("ops/api", "a-own")
        home.answer("ops/team", "a-ops")
        assert {
            name: [data["id"] for _, _, data in await drain(inbox)] for name, inbox in live.items()
        } == wanted

    asyncio.run(story())


def test_a_prompt_past_its_time_is_closed_before_anybody_journals_it_and_never_comes_back() -> None:
    async def story() -> None:
        home = Home()
        inbox = home.open(bearer())
        await drain(inbox)
        late = report("a-late", until_="1970-01-01T00:00:05Z")
        home.ask(late)
        assert home.board.expire(4_999) == []
        home.tell(home.board.expire(5_000))
        told = await drain(inbox)
        assert names(told) == [("requested", "a-late"), ("closed", "a-late")]
        assert told[1][2]["closed_as"] == "expired"
        assert home.board.compare(late.session, [late], {}, now=5_000) == []
        assert home.board.compare(late.session, [], {}, now=5_000) == []

    asyncio.run(story())


def test_streams_end_when_nobody_can_say_any_more_whether_their_tokens_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    G3 fails closed: a home that can't be read vouches for nobody; a look that fails once is only
    repeated.
    """

    class Book:
        async def still_lives(self, *_: Any, **__: Any) -> set[str]:
            raise Busy("the home is held")

    async def story() -> None:
        book: Any = Book()
        streams = Streams(
            book, lambda: 0, streams_max=9, streams_per_token_max=9, streams_per_person_max=9
        )
        inbox = InboxStream(PromptBoard(), bearer(), None)
        with streams.hold(inbox):
            await streams.look()
            assert inbox.ended is None
            monkeypatch.setattr("holdfast.gateway.streams.registry.UNSURE_SECONDS", -1.0)
            await streams.look()
            assert inbox.ended == "unsure"

    asyncio.run(story())


# --- what moves the board, without a server


@asynccontextmanager
async def moving(service: Service) -> AsyncGenerator[InboxHub, None]:
    """InboxHub that move by notices alone: nobody looks after them once a second."""
    none: Any = None
    inboxes = InboxHub(
        service,
        Streams(none, none, streams_max=9, streams_per_token_max=9, streams_per_person_max=9),
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(inboxes.run())
        try:
            yield inboxes
        finally:
            running.cancel()


async def hears(inbox: InboxStream) -> list[tuple[str, Any]]:
    """The next that is told."""
    async with asyncio.timeout(60):
        while not (found := names(await drain(inbox))):
            await inbox.wake.wait()
    return found


OPS = SessionId("ops/api")


def an_agent() -> holdfast.Agent:
    @holdfast.tool
    def act() -> str:
        """Asks first."""
        return "done"

    return holdfast.Agent("ops", model="demo", tools=[act])


@in_loop
async def test_a_notice_is_enough_and_what_could_not_be_looked_at_is_looked_at_again() -> None:
    async with (
        open_in_memory(agents=[an_agent()]) as home,
        moving(home.service) as inboxes,
        inboxes.open(bearer(), after=None) as inbox,
    ):
        assert await hears(inbox) == [("standing", [])]
        turn = await home.send(OPS, "act", source=ALICE)
        [asked] = turn.approvals
        assert not inbox.wake.is_set()  # nobody has said anything yet
        inboxes.notice(OPS)
        assert await hears(inbox) == [("requested", asked.id)]

        opened = home.service.runtime.sessions
        held, failed = opened.use, asyncio.Event()

        @asynccontextmanager
        async def busy(session: SessionId) -> AsyncGenerator[Any, None]:
            failed.set()
            raise Busy(f"{session} is held")
            yield

        await home.answer(asked, "deny", by=ALICE)
        opened.use = busy  # type: ignore[method-assign]
        await inboxes.look()
        await failed.wait()
        opened.use = held  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            while not inbox.wake.is_set():
                await inboxes.look()  # nothing moved: only what failed is looked at
                await asyncio.sleep(0)
        assert await hears(inbox) == [("answered", asked.id)]


@in_loop
async def test_a_prompt_that_arrives_while_the_board_is_built_appears_once() -> None:
    """
    The list is read after the heads and while notices are kept: whatever comes in between is told,
    and nothing twice.
    """
    async with open_in_memory(agents=[an_agent()]) as home, moving(home.service) as inboxes:
        service, found = home.service, []
        read = service.approvals

        async def slow_list(**more: Any) -> Any:
            before = await read(**more)
            found.append(
                (await home.send(OPS, "act", source=ALICE)).approvals[0].id
            )  # after the list was read
            inboxes.notice(OPS)
            return before

        service.approvals = slow_list  # type: ignore[method-assign]
        async with inboxes.open(bearer(), after=None) as inbox:
            assert await hears(inbox) == [("standing", [])]
            assert await hears(inbox) == [("requested", found[0])]
            inboxes.notice(OPS)
            await inboxes.look()
            await home.send("ops/other", "act", source=ALICE)
            inboxes.notice(SessionId("ops/other"))
            assert [name for name, _ in await hears(inbox)] == ["requested"]


@in_loop
async def test_a_board_that_nobody_looks_at_is_forgotten_after_a_while_and_its_cursors_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_in_memory(agents=[an_agent()]) as home, moving(home.service) as inboxes:
        async with inboxes.open(bearer(), after=None) as inbox:
            await hears(inbox)
        await inboxes.look()
        async with inboxes.open(bearer(), after=inbox.cursor) as again:
            assert await drain(again) == []
        monkeypatch.setattr("holdfast.gateway.streams.inbox_hub.LINGER_SECONDS", -1.0)
        await inboxes.look()
        async with inboxes.open(bearer(), after=inbox.cursor) as later:
            assert await hears(later) == [("gap", None), ("standing", [])]


# --- a real server, and other processes on its home


@contextmanager
def following(client: httpx.Client, cursor: str | None = None) -> Iterator[Events]:
    stream = Events(client, PATH, {"last-event-id": cursor} if cursor else {})
    try:
        yield stream
    finally:
        stream.close()


def prompts(client: httpx.Client) -> list[Any]:
    found: list[Any] = client.get("/v1/approvals").json()["approvals"]
    return found


def test_an_inbox_follows_what_every_process_asks_answers_and_cancels(gateway: Gateway) -> None:
    """
    Asked, answered and cancelled, over HTTP and by others on the home: told to whom it concerns and
    nobody else, as it stands in the list.
    """
    gateway.settings('[policy.personal]\nshell = { ask = ["bob"] }\n')
    gateway.start()
    alice, bob, carol = (
        gateway.client(gateway.token(name, name=name)) for name in ("alice", "bob", "carol")
    )
    with following(alice) as mine, following(bob) as bobs, following(carol) as carols:
        for stream in (mine, bobs, carols):
            assert stream.until(lambda name, _: name == "standing") == {
                "approvals": [],
                "more": False,
            }
        asked = gateway.ask("ops/one", "run: echo one >> ran.txt")
        for stream in (mine, bobs):
            told = stream.until(lambda name, _: name == "requested")
            assert told == prompts(alice)[0]
            assert told["id"] == asked.id
        gateway.elsewhere(
            lambda service: service.answer(
                asked.id, "deny", by="alice", digest=asked.digest, wait=False
            )
        )
        ended = {"id": asked.id, "session": "ops/one", "answered_by": "alice", "option": "deny"}
        assert [stream.until(lambda name, _: name == "answered") for stream in (mine, bobs)] == [
            ended,
            ended,
        ]

        gateway.send(alice, "ops/two", "run: echo two >> ran.txt")
        second = bobs.until(lambda name, _: name == "requested")
        alice.post("/v1/sessions/ops/two/cancel")
        assert mine.until(lambda name, _: name == "closed") == {
            "id": second["id"],
            "session": "ops/two",
            "closed_as": "cancelled",
        }
        gateway.send(alice, "ops/three", "run: echo three >> ran.txt")
        third = mine.until(lambda name, _: name == "requested")
        assert [name for name, _, _ in mine.heard] == [
            "standing",
            "requested",
            "answered",
            "requested",
            "closed",
            "requested",
        ]
    assert gateway.answer(bob, third, "approve_once").json()["result"] in TAKEN
    with following(
        alice, mine.heard[-1][1]
    ) as again:  # where it was: nothing of before, and how the third one ended
        assert again.until(lambda name, _: name == "answered")["answered_by"] == "bob"
    assert len(again.heard) == 1
    assert {name for name, _, _ in carols.heard} == {"standing"}
    ran = gateway.work / "ran.txt"
    assert until(lambda: ran.exists() and ran.read_text(), "the third to have run") == "three\n"


def test_after_a_killed_server_an_inbox_says_so_and_begins_with_what_stands(
    gateway: Gateway,
) -> None:
    """And a revoked token ends it (G3), as it ends every stream."""
    gateway.start()
    alice = gateway.client(gateway.token("alice", name="laptop"))
    with following(alice) as before:
        before.until(lambda name, _: name == "standing")
    gateway.ask("ops/one", "run: true")
    gateway.kill()
    gateway.start(gateway.port)
    with following(alice, before.heard[-1][1]) as after:
        first = after.next()
        assert first is not None
        assert first[0] == "gap"
        assert after.until(lambda name, _: name == "standing")["approvals"] == prompts(alice)
        assert [each["session"] for each in prompts(alice)] == ["ops/one"]

        async def revoke(service: Service) -> None:
            await TokenBook(service.home).revoke("laptop", by="tests")

        gateway.elsewhere(revoke)
        assert after.until(lambda name, _: name == "end")["reason"] == "revoked"
        assert after.next() is None


def test_a_prompt_of_a_process_that_said_nothing_is_found_by_its_journal(shared: Gateway) -> None:
    """
    Notices are hints: one that was never sent, as by a process that died before it could, is made
    up for by the look at the heads.
    """
    alice = shared.client(shared.token("alice"))

    async def ask_in_silence(service: Service) -> None:
        service.runtime.world.notifier = InMemoryNotifier(InMemoryDisk())
        source, workspace = (
            MessageSource.local("alice"),
            service.runtime.world.workspace(str(shared.work)),
        )
        await service.send(
            "ops/mute",
            Incoming(text="run: true", source=source, workspace=workspace),
        )

    with following(alice) as stream:
        stream.until(lambda name, _: name == "standing")
        shared.elsewhere(ask_in_silence)
        assert (
            stream.until(lambda name, data: name == "requested" and data["session"] == "ops/mute")[
                "tool"
            ]
            == "shell"
        )


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "7",
        "-1",
        "0123456789abcdeF-1",
        "0123456789abcdef-",
        "0123456789abcdef-1x",
        "0123456789abcdef-" + "9" * 30,
    ],
)
def test_a_cursor_that_no_event_had_is_malformed(shared: Gateway, cursor: str) -> None:
    answer = shared.client(shared.token("alice")).get(PATH, headers={"last-event-id": cursor})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_an_inbox_needs_a_living_token_that_may_read_and_takes_no_query(shared: Gateway) -> None:
    assert shared.client().get(PATH).status_code == 401
    assert shared.client(shared.token("alice", "send,approve")).get(PATH).status_code == 403
    assert shared.client(shared.token("alice")).get(f"{PATH}?person=bob").status_code == 400
