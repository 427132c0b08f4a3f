"""
Live streams: everything once, in order, to those who may see it, whatever happens to the
connection, the server or the token.
"""

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.errors import Busy
from holdfast.gateway.server.tokens import Bearer, TokenAdded, TokenBook
from holdfast.gateway.streams.frames import frame_from_event, frame_from_piece
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tail import SessionStream, SessionTail
from holdfast.gateway.streams.session_tails import SessionTails
from holdfast.ids import InstanceId, SessionId, TurnId
from holdfast.runtime.lifecycle import delete
from holdfast.runtime.streams.feed import Delta
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource
from holdfast.testing.memory_home import open_in_memory
from tests.acceptance.gateway.conftest import TAKEN, WAIT_SECONDS, Events, Gateway, until


def journal(gateway: Gateway, session: str) -> list[int]:
    """The seqs of every stored record, the store's own left out."""
    return [
        record["seq"]
        for record in gateway.lines(session)
        if "type" in record and not record["type"].startswith("segment")
    ]


def seqs(events: Events) -> list[int]:
    return [data["seq"] for name, _, data in events.heard if name == "record"]


def test_a_resumed_stream_never_skips_and_never_repeats(gateway: Gateway) -> None:
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    for number in range(12):
        assert (
            gateway.send(alice, "ops/api", "what time is it", key=f"k{number}").status_code == 202
        )
    with gateway.events(alice, "ops/api") as whole:
        for _ in range(12):
            whole.until(
                lambda name, data: (
                    name == "record" and data["type"] in ("turn_ended", "input_accepted")
                )
            )
        until(
            lambda: alice.get("/v1/sessions/ops/api").json()["phase"] == "idle", "all turns to end"
        )
        last = alice.get("/v1/sessions/ops/api").json()["seq"]
        while not seqs(whole) or seqs(whole)[-1] < last:
            whole.next()
    everything = seqs(whole)
    assert everything == sorted(set(everything))
    assert everything == journal(gateway, "ops/api")
    for cut in range(0, len(everything), 7):
        with gateway.events(alice, "ops/api", after=everything[cut]) as rest:
            while not seqs(rest) or seqs(rest)[-1] < last:
                if cut == len(everything) - 1:
                    break
                rest.next()
        assert seqs(rest) == everything[cut + 1 :]
        assert all(
            ident == str(data["seq"]) for name, ident, data in rest.heard if name == "record"
        )


def test_a_stream_goes_on_where_it_was_after_the_server_was_killed(gateway: Gateway) -> None:
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "run: echo once >> ran.txt")
    with gateway.events(alice, "ops/api") as before:
        before.until_record("turn_parked")
        gateway.kill()
        while before.next() is not None:
            pass
    gateway.start(gateway.port)
    with gateway.events(alice, "ops/api", after=seqs(before)[-1]) as after:
        standing = after.until(lambda name, _: name == "standing")
        assert [each["tool"] for each in standing["approvals"]] == ["shell"]
        assert (
            gateway.answer(alice, standing["approvals"][0], "approve_once").json()["result"]
            in TAKEN
        )
        after.until_record("turn_ended")
    assert [*seqs(before), *seqs(after)] == journal(gateway, "ops/api")
    assert (gateway.work / "ran.txt").read_text() == "once\n"


def test_pieces_of_text_come_before_the_record_that_holds_them(gateway: Gateway) -> None:
    words = "one two three four five six seven " * 20
    gateway.settings(
        f'[agents.assistant]\nmodel = "{gateway.script({"say": "first"}, {"sleep": 0.2, "say": words})}"\ntools = []\n'
    )
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    gateway.send(alice, "ops/api", "hello")
    with gateway.events(alice, "ops/api") as stream:
        stream.until_record("turn_ended")
        gateway.send(alice, "ops/api", "again")
        stream.until_record("turn_ended", turn="t2")
    order = [(name, data.get("type")) for name, _, data in stream.heard]
    deltas = [data for name, _, data in stream.heard if name == "delta" and data["turn"] == "t2"]
    assert "".join(each["text"] for each in deltas) == words
    assert all(ident is None for name, ident, _ in stream.heard if name == "delta")
    assert max(place for place, each in enumerate(order) if each[0] == "delta") < len(
        order
    ) - 1 - order[::-1].index(("record", "model_answered"))


def test_who_comes_late_hears_what_a_running_command_has_said(gateway: Gateway) -> None:
    """Its record comes only when it ends, which may be hours later."""
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    slow = "echo step 1; touch said; until [ -e stop ]; do sleep 0.05; done"
    gateway.send(client, "ops/slow", f"run: {slow}")
    prompt = gateway.waiting(client)
    assert gateway.answer(client, prompt, "approve_once").json()["result"] in TAKEN
    until((gateway.work / "said").exists, "the command's first line")
    with gateway.events(client, "ops/slow") as late:
        heard = late.until(lambda name, _: name == "delta")
        assert (heard["kind"], heard["text"], heard["offset"]) == ("output", "step 1\n", 0)
        (gateway.work / "stop").touch()
        late.until_record("turn_ended")


@pytest.mark.parametrize("cursor", ["x", "-1", "1e3", "９", "0x1", "9" * 30])
def test_a_cursor_that_is_not_a_seq_is_malformed(shared: Gateway, cursor: str) -> None:
    alice = shared.client(shared.token("alice"))
    shared.send(alice, "ops/cursor", "help")
    with alice.stream(
        "GET", "/v1/sessions/ops/cursor/events", headers={"last-event-id": cursor.encode()}
    ) as answer:
        assert answer.status_code == 400


def test_a_stream_refuses_a_cursor_past_the_end(shared: Gateway) -> None:
    alice = shared.client(shared.token("alice"))
    shared.send(alice, "ops/ahead", "help")
    answer = alice.get("/v1/sessions/ops/ahead/events", headers={"last-event-id": "100000"})
    assert (answer.status_code, answer.json()["code"]) == (409, "cursor_ahead")


def test_a_stream_names_its_instance_in_a_header(shared: Gateway) -> None:
    """
    A name that was used before: whoever comes back with a seq of then can see that it is one of
    another session.
    """
    alice = shared.client(shared.token("alice"))
    lives_seen = []
    for _ in range(2):
        shared.send(alice, "ops/again", "help")
        with shared.events(alice, "ops/again", after=3) as events:
            events.until_record("turn_ended")
            lives_seen.append(events.response.headers["holdfast-instance"])
            assert lives_seen[-1] == alice.get("/v1/sessions/ops/again").json()["instance"]
        shared.run("sessions", "delete", "ops/again", "--yes")
    assert lives_seen[0] != lives_seen[1]


def test_a_stream_shows_only_what_was_said_within_the_tokens_audience(gateway: Gateway) -> None:
    """
    G4: personal turns of a mixed session never reach a team's token, live or resumed, nor do
    another team's.
    """
    gateway.start()
    personal = gateway.client(gateway.token("alice"))
    ops = gateway.client(gateway.token("alice", audience="team:ops"))
    sales = gateway.client(gateway.token("alice", audience="team:sales"))
    public = gateway.client(gateway.token("alice", audience="public"))
    gateway.send(personal, "ops/mixed", "read CANARY-PERSONAL")
    until(
        lambda: personal.get("/v1/sessions/ops/mixed").json()["phase"] == "idle", "the turn to end"
    )
    for other in (ops, sales, public):
        assert other.get("/v1/sessions/ops/mixed").status_code == 404
        assert other.get("/v1/sessions/ops/mixed/events").status_code == 404
        assert gateway.send(other, "ops/mixed", "let me in").status_code == 404
    # The same person may join with what is theirs; an admin brings the team's words in.
    admin_ops = gateway.client(gateway.token("alice", "read,send,admin", audience="team:ops"))
    assert gateway.send(admin_ops, "ops/mixed", "read TEAM-WORDS").status_code == 202
    until(lambda: personal.get("/v1/sessions/ops/mixed").json()["turns"] == 2, "the team's turn")
    with gateway.events(ops, "ops/mixed") as live:
        live.until_record("turn_ended", turn="t2")
        gateway.send(personal, "ops/mixed", "read CANARY-AGAIN")
        until(lambda: personal.get("/v1/sessions/ops/mixed").json()["turns"] == 3, "the third turn")
        gateway.send(admin_ops, "ops/mixed", "read TEAM-MORE")
        live.until_record("turn_ended", turn="t4")
    text = json.dumps(live.heard)
    assert "TEAM-WORDS" in text
    assert "TEAM-MORE" in text
    assert "CANARY" not in text
    assert {data["body"].get("turn") for name, _, data in live.heard if name == "record"} <= {
        None,
        "t2",
        "t4",
    }
    for after in seqs(live):
        with gateway.events(ops, "ops/mixed", after=after) as resumed:
            wanted = [each for each in seqs(live) if each > after]
            while seqs(resumed) != wanted:
                resumed.next()
        assert "CANARY" not in json.dumps(resumed.heard)
    for other in (sales, public):
        assert other.get("/v1/sessions/ops/mixed").status_code == 404


def test_the_list_of_sessions_hides_text_of_another_reader_set(
    gateway: Gateway,
) -> None:
    """
    G4: where a team and a person's own turns share a session, its last words and whose turns stand
    are told to nobody who may not read all of it.
    """
    gateway.start()
    personal = gateway.client(gateway.token("alice"))
    ops = gateway.client(gateway.token("bob", audience="team:ops"))
    gateway.send(ops, "ops/mixed", "read TEAM-WORDS")
    until(lambda: ops.get("/v1/sessions/ops/mixed").json()["phase"] == "idle", "the team's turn")
    assert "TEAM-WORDS" in ops.get("/v1/sessions").json()["sessions"][0]["preview"]
    assert ops.get("/v1/sessions").json()["sessions"][0]["title"] == "read TEAM-WORDS"
    assert ops.post("/v1/sessions/ops/mixed/title", json={"title": "Ours"}).status_code == 200
    gateway.send(
        gateway.client(gateway.token("alice", "send,admin")), "ops/mixed", "read CANARY-ALONE"
    )
    until(
        lambda: (
            (shown := personal.get("/v1/sessions/ops/mixed").json())["turns"] == 2
            and shown["phase"] == "idle"
        ),
        "the turn of one alone",
    )
    gateway.send(personal, "ops/mixed", "run: echo CANARY")
    parked = gateway.waiting(personal, "ops/mixed")["turn"]
    assert "CANARY-ALONE" in personal.get("/v1/sessions").json()["sessions"][0]["preview"]
    assert personal.get("/v1/sessions/ops/mixed").json()["parked"] == [parked]
    line, shown = (
        ops.get("/v1/sessions").json()["sessions"][0],
        ops.get("/v1/sessions/ops/mixed").json(),
    )
    refused = ops.post("/v1/sessions/ops/mixed/title", json={"title": "Mine again"})
    assert (refused.status_code, refused.json()["code"]) == (403, "no_authority")
    assert personal.get("/v1/sessions/ops/mixed").json()["title"] == "Ours"
    assert (line["title"], shown["title"]) == ("", "")
    assert (
        line["session"],
        line["preview"],
        shown["parked"],
        shown["memory"],
        shown["delegates"],
    ) == ("ops/mixed", "", [], [], [])
    assert "CANARY" not in json.dumps([line, shown])
    assert ops.get("/v1/approvals").json()["approvals"] == []


def test_a_revoked_token_is_dead_on_the_next_request_and_its_streams_end(gateway: Gateway) -> None:
    """
    G3 over real sockets. How soon a stream ends is measured in made-up time:
    `test_a_stream_ends_within_five_seconds_of_its_tokens_death`.
    """
    gateway.start()
    alice = gateway.client(gateway.token("alice", name="laptop"))
    kept = gateway.client(gateway.token("alice", name="phone"))
    gateway.send(alice, "ops/api", "help")
    with gateway.events(alice, "ops/api") as stream, gateway.events(kept, "ops/api") as other:
        stream.until_record("turn_ended")
        gateway.run("tokens", "revoke", "laptop")
        assert alice.get("/v1/sessions").status_code == 401
        assert stream.until(lambda name, _: name == "end")["reason"] == "revoked"
        assert stream.next() is None
        gateway.send(kept, "ops/api", "help")
        other.until_record("turn_ended", turn="t2")


REFUSED = {401, 423, 503}  # no such token; sealed; the home can't be read


@pytest.mark.about_files
@pytest.mark.parametrize("has_looked", [False, True])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_damage_to_the_homes_journal_keeps_no_token_alive(
    gateway: Gateway, damage: str, has_looked: bool
) -> None:
    """
    G3, D4: not one whose revocation stands in the damaged part, and not one whose revocation can't
    be written any more, in a server that runs on.
    """
    gateway.start()
    alice = gateway.client(gateway.token("alice", name="laptop"))
    kept = gateway.client(gateway.token("alice", name="phone"))
    gateway.send(alice, "ops/api", "help")
    gateway.run("tokens", "revoke", "laptop")
    if has_looked:
        assert alice.get("/v1/sessions").status_code == 401
    segment = max((gateway.home / "home").glob("*.jsonl"))
    data = segment.read_bytes()
    at = data.rindex(b"laptop")
    if damage == "changed":
        segment.write_bytes(data[:at] + b"LAPTOP" + data[at + 6 :])
    elif damage == "cut":
        segment.write_bytes(data[: data.rindex(b"\n", 0, at) + 1])
    else:
        segment.unlink()
    for _ in range(3):
        assert alice.get("/v1/sessions").status_code in REFUSED
    gateway.run("tokens", "revoke", "phone", check=False)
    for _ in range(3):
        assert kept.get("/v1/sessions").status_code in REFUSED
        assert gateway.send(kept, "ops/api", "run: date").status_code in REFUSED


def test_a_token_that_is_revoked_while_its_body_is_on_its_way_sends_and_answers_nothing(
    gateway: Gateway,
) -> None:
    """
    G3: what was let in with its head is asked again once its body is here, which may be 20 seconds
    later.
    """
    gateway.start()
    alice, leaked = gateway.client(gateway.token("alice")), gateway.token("alice", name="leaked")
    prompt = gateway.ask("ops/api", "run: echo ran > ran.txt")
    answer = {"option": "approve_once", "answer_id": "late", "digest": prompt.digest}
    late = {
        f"/v1/approvals/{prompt.id}/answer": answer,
        "/v1/sessions/ops/late/messages": {"text": "help"},
        "/v1/sessions/ops/api/cancel": {},
    }
    bodies = {path: json.dumps(body).encode() for path, body in late.items()}
    with ExitStack() as stack:
        lines = {
            path: stack.enter_context(
                socket.create_connection(("127.0.0.1", gateway.port), timeout=WAIT_SECONDS)
            )
            for path in bodies
        }
        for path, line in lines.items():
            head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{gateway.port}\r\nauthorization: Bearer {leaked}\r\nexpect: 100-continue\r\n"
            line.sendall(
                f"{head}content-type: application/json\r\ncontent-length: {len(bodies[path])}\r\n\r\n".encode()
            )
            assert line.recv(65536).startswith(
                b"HTTP/1.1 100 "
            )  # somebody has let it in, and waits for the rest
        gateway.elsewhere(lambda service: TokenBook(service.home).revoke("leaked", by="tests"))
        for path, line in lines.items():
            line.sendall(bodies[path])
            assert (path, line.recv(65536)[:12]) == (path, b"HTTP/1.1 401")
    assert alice.get("/v1/sessions/ops/late").status_code == 404
    assert gateway.waiting(alice, "ops/api")["id"] == prompt.id


def test_a_token_past_its_time_is_not_a_token(gateway: Gateway) -> None:
    gateway.start()
    gateway.send(gateway.client(gateway.token("alice")), "ops/api", "help")
    for seconds in (2, 8, 32):  # a slow machine may need longer to get its stream
        alice = gateway.client(gateway.token("alice", expires_seconds=seconds))
        with gateway.events(alice, "ops/api") as stream:
            if stream.response.status_code == 200:
                assert stream.until(lambda name, _: name == "end")["reason"] == "revoked"
                break
    assert stream.response.status_code == 200
    assert alice.get("/v1/sessions").status_code == 401


def test_others_commands_are_followed_and_driven_by_the_server(gateway: Gateway) -> None:
    """
    One home, several processes: owned writes and wake-ups from a command reach the stream, and the
    server drives what a command leaves.
    """
    gateway.start()
    person = gateway.said["person"]
    client = gateway.client(gateway.token(person))
    gateway.send(client, "ops/api", "run: echo from the command > x.txt")
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_parked")
        prompt = gateway.waiting(client)
        gateway.run("approvals", "answer", prompt["id"], "approve_once", "--no-wait")
        stream.until_record("turn_ended")
        gateway.run("send", "ops/api", "what time is it", "--no-wait")
        stream.until_record("turn_ended", turn="t2")
    assert (gateway.work / "x.txt").read_text() == "from the command\n"


@pytest.mark.about_files
def test_followers_hear_of_a_deletion_and_of_a_seal(gateway: Gateway) -> None:
    """Neither appends a record to the session, so only a look finds them."""
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    admin = gateway.client(gateway.token("carol", scopes="read,admin"))
    for name in ("gone", "sealed"):
        gateway.send(alice, f"ops/{name}", "help")
    with gateway.events(alice, "ops/gone") as gone, gateway.events(alice, "ops/sealed") as sealed:
        for stream in (gone, sealed):
            stream.until_record("turn_ended")
        gateway.run("sessions", "delete", "ops/gone", "--yes")
        assert gone.until(lambda name, _: name == "end")["reason"] == "gone"
        _flip(Path(admin.get("/v1/sessions/ops/sealed").json()["journal"][0]), b'"text":"help')
        assert gateway.run("send", "ops/sealed", "help", check=False)["error"]["code"] in {
            "sealed",
            "broken",
            "takeover",
        }
        assert sealed.until(lambda name, _: name == "sealed")["code"] in {"broken", "takeover"}


def _flip(path: Path, after: bytes) -> None:
    """As a stranger would: one bit, in place."""
    data = bytearray(path.read_bytes())
    data[data.index(after) + len(after) - 1] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def test_unusable_settings_are_not_blamed_on_the_request_and_their_path_stays_hidden(
    shared: Gateway,
) -> None:
    gateway = shared
    alice = gateway.client(gateway.token("alice"))
    gateway.settings("nonsense =")
    refused = gateway.send(alice, "ops/api", "help")
    assert (refused.status_code, refused.json()["code"]) == (503, "settings")
    assert str(gateway.home) not in refused.text
    gateway.settings("")
    assert gateway.send(alice, "ops/api", "help").status_code == 202


# --- a follower that is too slow, without a server

BEARER = Bearer.of(
    TokenAdded(
        name="n",
        digest="d",
        person="alice",
        scopes=("read",),
        audience="personal",
        expires_at=None,
        by="alice",
    )
)


def a_tail() -> SessionTail:
    none: Any = None
    tail = SessionTail(SessionId("ops/api"), asyncio.Semaphore(), none)
    tail.instance = "i"
    return tail


async def read_all(follower: SessionStream) -> bytes:
    found = b""
    while data := await follower.read():
        found += data
    return found


def test_a_follower_that_falls_behind_is_sent_the_gap_and_nothing_twice() -> None:
    async def story() -> None:
        tail = a_tail()
        follower = SessionStream(tail, BEARER, 0)
        assert await read_all(follower) == b""
        for number in range(2_000):
            tail.keep(
                frame_from_piece(Delta(SessionId("ops/api"), TurnId("t1"), "text", f"<{number}>"))
            )
        heard = (await read_all(follower)).decode()
        assert heard.count("event: gap") == 1
        assert heard.startswith("event: gap")
        assert "<1999>" in heard
        assert "<0>" not in heard
        tail.keep(frame_from_event("sealed", {}))
        assert (await read_all(follower)).decode().count("event:") == 1

    asyncio.run(story())


def test_a_tail_bounds_its_frames_in_number_and_bytes() -> None:
    tail = a_tail()
    for _ in range(3_000):
        tail.keep(frame_from_piece(Delta(SessionId("ops/api"), TurnId("t1"), "text", "x" * 50_000)))
    assert tail.next_place - tail.first_place <= 512
    assert sum(len(frame.data) for frame in tail.frames_from(0)) <= 5 * 1024 * 1024


# --- another instance of a session, without a server


def a_reader(person: str) -> Bearer:
    return Bearer.of(
        TokenAdded(
            name=person,
            digest=person,
            person=person,
            scopes=("read",),
            audience="personal",
            expires_at=None,
            by=person,
        )
    )


def test_a_follower_receives_nothing_of_another_instance_of_the_same_name() -> None:
    """
    G4: alice's stream hangs on to what was deleted; bob begins a session of that name. Neither
    hears a word of the other's, not even a piece.
    """

    async def story() -> None:
        name, none = SessionId("ops/api"), cast(Any, None)
        async with open_in_memory() as home:
            service = home.service
            tails = SessionTails(
                service,
                Streams(
                    none,
                    none,
                    streams_max=9,
                    streams_per_token_max=9,
                    streams_per_person_max=9,
                ),
            )

            async def begin(person: str) -> InstanceId | None:
                await service.send(
                    name,
                    Incoming(text=f"the word of {person}", source=MessageSource.local(person)),
                )
                return await service.runtime.world.store.current(name)

            async with tails.follow(
                name, a_reader("alice"), instance=await begin("alice"), after=None
            ) as alice:
                assert b"the word of alice" in await read_all(alice)
                await delete.delete(service.runtime, name, by="alice")
                instance = await begin("bob")
                service.runtime.feed.say(Delta(name, TurnId("t1"), "text", "a piece of bob's"))
                await tails._move(alice.tail)
                assert (await read_all(alice), alice.ended) == (b"", "new_instance")
                async with tails.follow(
                    name, a_reader("bob"), instance=instance, after=None
                ) as bob:
                    heard = await read_all(bob)
                    assert (b"the word of alice" in heard, b"the word of bob" in heard) == (
                        False,
                        True,
                    )
                with pytest.raises(Busy):
                    async with tails.follow(
                        name, a_reader("alice"), instance=alice.tail.instance, after=None
                    ):
                        pytest.fail("an instance that is over is followed")

    asyncio.run(story())
