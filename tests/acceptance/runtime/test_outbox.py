"""
Deliveries: queued with what they tell of, sent once, confirmed, in doubt when nobody knows. Over
every store.
"""

import asyncio
import contextlib
import gc
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.adapters.channels.command import CommandChannel
from holdfast.adapters.channels.webhook import WebhookChannel
from holdfast.adapters.inmemory import Crashed
from holdfast.ids import SessionId, TurnId
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered, Parcel
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.policy import Policy
from holdfast.session.events import (
    ApprovalRequested,
    DeliveryConfirmed,
    DeliveryFailed,
    DeliveryQueued,
    DeliverySent,
    TurnEnded,
)
from holdfast.testing import ScriptModel
from holdfast.testing.loop import in_loop
from holdfast.testing.memory_home import Disk, crash_after, open_in_memory
from holdfast.webhook_signature import is_signed
from tests.acceptance.runtime.conftest import Stage, alice
from tests.acceptance.runtime.test_pause_and_answer import act

PARCEL = Parcel(
    delivery="d-1",
    session=SessionId("ops/a"),
    turn=TurnId("t1"),
    kind="prompt",
    text='{"id":"a-1"}',
)


class Post:
    """A channel that remembers what arrived, and does as it is told."""

    def __init__(
        self, *, kinds: tuple[str, ...] = ("reply", "prompt", "notice"), name: str = "post"
    ) -> None:
        self.name = name
        self.kinds = kinds
        self.arrived: list[Parcel] = []
        self.troubles: list[BaseException] = []
        self.tried = 0

    def takes(self, kind: str, *, of: str) -> bool:
        return kind in self.kinds and of == "local"

    async def send(self, parcel: Parcel) -> str | None:
        self.tried += 1
        if self.troubles:
            raise self.troubles.pop(0)
        self.arrived.append(parcel)
        return f"receipt {len(self.arrived)}"


def posting(home: Any, post: Post) -> None:
    home.service.runtime.world.channels = lambda: {post.name: post}


@in_loop
async def test_a_reply_is_queued_with_its_turns_end_sent_once_and_confirmed(stage: Stage) -> None:
    post = Post()
    async with stage.open(stage.agent([{"say": "hello"}])) as home:
        posting(home, post)
        await home.send("ops/a", "hi", source=alice)
    events = [
        event
        for event in await stage.events("ops/a")
        if isinstance(event, TurnEnded | DeliveryQueued | DeliverySent | DeliveryConfirmed)
    ]
    assert [type(event).__name__ for event in events] == [
        "TurnEnded",
        "DeliveryQueued",
        "DeliverySent",
        "DeliveryConfirmed",
    ]
    assert [(each.kind, each.text) for each in post.arrived] == [("reply", "hello")]
    assert events[3].receipt == "receipt 1"


@in_loop
async def test_a_prompt_is_announced_without_its_arguments(stage: Stage) -> None:
    post = Post(kinds=("prompt",))
    async with stage.open(stage.agent(act("rm -rf secret-folder"))) as home:
        posting(home, post)
        turn = await home.send("ops/a", "do it", source=alice)
        [parcel] = post.arrived
        assert json.loads(parcel.text) == {
            "id": turn.approvals[0].id,
            "session": "ops/a",
            "tool": "act",
            "kind": "approval",
        }
        await home.answer(turn.approvals[0], "approve_once", by=alice)
    assert len(post.arrived) == 1
    names = [type(event) for event in await stage.events("ops/a")]
    assert names.index(DeliveryQueued) > names.index(ApprovalRequested)


@in_loop
async def test_the_outbox_retries_a_certain_failure_and_then_gives_up(stage: Stage) -> None:
    post = Post()
    post.troubles = [NotDelivered("down", may_pass=True)] * 2
    async with stage.open(stage.agent([{"say": "one"}, {"say": "two"}, {"say": "three"}])) as home:
        posting(home, post)
        await home.send("ops/a", "1", source=alice)
        assert (post.tried, len(post.arrived)) == (3, 1)
        post.troubles = [NotDelivered("down", may_pass=True)] * 3
        await home.send("ops/a", "2", source=alice)
        assert (post.tried, len(post.arrived)) == (6, 1)
        post.troubles = [NotDelivered("no such room", may_pass=False)]
        await home.send("ops/a", "3", source=alice)
        assert (post.tried, len(post.arrived)) == (7, 1)
        assert (await home.service.show("ops/a")).owes == ()
    failed = [event for event in await stage.events("ops/a") if isinstance(event, DeliveryFailed)]
    assert [(event.code, event.message) for event in failed] == [
        ("failed", "down (3 tries)"),
        ("failed", "no such room (1 try)"),
    ]


@in_loop
async def test_the_outbox_reports_a_delivery_in_doubt_and_does_not_resend_it(stage: Stage) -> None:
    post = Post()
    post.troubles = [DeliveryInDoubt("no answer")]
    async with stage.open(stage.agent([{"say": "one"}])) as home:
        posting(home, post)
        await home.send("ops/a", "1", source=alice)
        report = await home.service.show("ops/a")
    assert post.tried == 1
    [failed] = [event for event in await stage.events("ops/a") if isinstance(event, DeliveryFailed)]
    assert (failed.code, failed.message) == ("in_doubt", "no answer")
    assert [(each.state, each.delivery) for each in report.deliveries] == [
        ("in_doubt", failed.delivery)
    ]


@in_loop
@pytest.mark.parametrize(
    ("event", "arrived", "confirmed"),
    [
        (DeliveryQueued, 1, True),  # nothing had left: it is sent now
        (DeliverySent, 0, False),  # nobody knows: in doubt
        (DeliveryConfirmed, 1, True),  # never twice what was confirmed
    ],
)
async def test_a_crash_at_each_step_never_sends_twice_what_was_confirmed(
    event: Any, arrived: int, confirmed: bool
) -> None:
    from holdfast.home import Agent

    disk, post = Disk(), Post()
    ops = Agent("ops", model=ScriptModel([{"say": "hello"}]), tools=[])
    with contextlib.suppress(Crashed):
        async with open_in_memory(agents=[ops], disk=disk, crash=crash_after(event)) as home:
            posting(home, post)
            await home.send("ops/a", "hi", source=alice)
    async with open_in_memory(agents=[ops], disk=disk) as home:
        posting(home, post)
        assert await home.service.owing() == ([] if event is DeliveryConfirmed else ["ops/a"])
        await home.service.resume("ops/a", by="alice")
        await home.service.resume("ops/a", by="alice")
        report = await home.service.show("ops/a")
    assert len(post.arrived) == arrived
    assert [each.state for each in report.deliveries] == ([] if confirmed else ["in_doubt"])


@in_loop
async def test_without_its_channel_a_delivery_is_given_up_and_nothing_hangs(stage: Stage) -> None:
    post = Post()
    post.troubles = [Crashed("while sending")]
    async with stage.open(stage.agent([{"say": "one"}, {"say": "two"}])) as home:
        posting(home, post)
        turn = await home.service.send("ops/a", Incoming(text="1", source=alice), wait=False)
        assert turn.outcome == "queued"
        home.service.runtime.world.channels = lambda: {"post": post}
        ledger = home.service.runtime.sessions.get("ops/a")
        assert ledger is not None
        from holdfast.session.commands import QueueDelivery

        await ledger.commit(
            QueueDelivery(turn=TurnId("t1"), channel="gone", part="x", kind="notice", text="x")
        )
        home.service.runtime.world.channels = dict
        await home.service.resume("ops/a", by="alice")
        assert (await home.service.show("ops/a")).owes == ()
    [failed] = [event for event in await stage.events("ops/a") if isinstance(event, DeliveryFailed)]
    assert failed.code == "no_channel"


@in_loop
async def test_a_mirror_during_a_running_turn_is_an_owned_write(stage: Stage) -> None:
    """Case 7 of the fence: both in the journal, no deadlock, no duplicate, no takeover."""
    gate = asyncio.Event()

    class Streaming:
        name = "streaming"
        context_tokens = None

        async def call(self, _: Any, *, on_text: Any) -> Any:
            from holdfast.session.view.messages import ModelAnswer

            on_text("par")
            await gate.wait()
            return ModelAnswer(text="partial and whole")

    from holdfast.home import Agent

    async with stage.open(Agent("ops", model=Streaming(), tools=[])) as home:
        sending = asyncio.ensure_future(home.send("ops/a", "hi", source=alice))
        sessions = home.service.runtime.sessions
        # There is nothing to wait on before it is open.
        while (ledger := sessions.get("ops/a")) is None or ledger.state.running is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        for _ in range(2):
            await home.service.mirror(
                "ops/a", TurnId("t1"), channel="slack", part="1", text="par", receipt="m1"
            )
        gate.set()
        turn = await sending
        assert (turn.outcome, turn.reply) == ("completed", "partial and whole")
    names = [type(event).__name__ for event in await stage.events("ops/a")]
    assert names.count("DeliveryConfirmed") == 1
    assert names.index("DeliveryConfirmed") < names.index("ModelAnswered")


@in_loop
async def test_a_foreign_loops_prompts_and_replies_go_out_too(stage: Stage) -> None:
    post = Post()
    async with stage.open(stage.agent([])) as home:
        posting(home, post)
        async with home.turn("ops/a", "do it", source=alice) as turn:
            gate = await turn.gate("act", {"what": "it"})
            assert gate.waiting
            assert [each.kind for each in post.arrived] == ["prompt"]
            assert gate.approval is not None
            await home.service.answer(gate.approval.id, "deny", by="alice", wait=False)
            await turn.wait(gate)
            await turn.finish("not done")
    assert [(each.kind, each.text) for each in post.arrived[1:]] == [("reply", "not done")]


# --- the channels themselves


class Hook(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, bytes]]
    heads: list[dict[str, str]]
    answers: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.path, self.headers["Idempotency-Key"], body))
        self.heads.append(dict(self.headers.items()))
        status = self.answers.pop(0) if self.answers else 204
        if status == 0:
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hook() -> Iterator[Any]:
    class Own(Hook):
        pass

    Own.seen, Own.heads, Own.answers = [], [], []
    server = HTTPServer(("127.0.0.1", 0), Own)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Own.address = f"http://127.0.0.1:{server.server_port}/hook?x=1"  # type: ignore[attr-defined]
    yield Own
    server.shutdown()
    thread.join()
    server.server_close()


@in_loop
async def test_a_webhook_is_confirmed_by_2xx_and_names_the_delivery(hook: Any) -> None:
    assert await WebhookChannel(hook.address).send(PARCEL) == "204"
    assert hook.seen == [("/hook?x=1", "d-1", b'{"id":"a-1"}')]


@in_loop
async def test_a_signed_webhook_holds_for_its_receiver_and_an_unsigned_one_claims_nothing(
    hook: Any,
) -> None:
    key = bytes(range(32))
    await WebhookChannel(hook.address, key=key).send(PARCEL)
    await WebhookChannel(hook.address).send(PARCEL)
    signed, unsigned = hook.heads
    assert is_signed(
        (key,),
        ident=signed["webhook-id"],
        timestamp=signed["webhook-timestamp"],
        signatures=signed["webhook-signature"],
        body=hook.seen[0][2],
        now_seconds=int(time.time()),
    )
    assert signed["webhook-id"] == "d-1"
    assert not [name for name in unsigned if name.startswith("webhook-")]


@in_loop
@pytest.mark.parametrize(
    ("status", "may_pass"), [(500, True), (503, True), (429, True), (404, False), (302, False)]
)
async def test_a_webhooks_refusal_is_known(hook: Any, status: int, may_pass: bool) -> None:
    hook.answers.append(status)
    with pytest.raises(NotDelivered) as caught:
        await WebhookChannel(hook.address).send(PARCEL)
    assert caught.value.may_pass is may_pass


@in_loop
async def test_a_webhook_that_says_nothing_is_in_doubt_and_one_that_is_not_there_is_not(
    hook: Any,
) -> None:
    hook.answers.append(0)
    with pytest.raises(DeliveryInDoubt):
        await WebhookChannel(hook.address).send(PARCEL)
    with pytest.raises(NotDelivered):
        await WebhookChannel("http://127.0.0.1:9/").send(PARCEL)


@in_loop
async def test_a_command_gets_the_payload_on_its_standard_input(tmp_path: Path) -> None:
    place = tmp_path / "told"
    await CommandChannel(
        [sys.executable, "-c", f"import sys; open({str(place)!r}, 'w').write(sys.stdin.read())"]
    ).send(PARCEL)
    assert json.loads(place.read_text()) == {"id": "a-1"}
    with pytest.raises(NotDelivered, match="ended with 3"):
        await CommandChannel([sys.executable, "-c", "raise SystemExit(3)"]).send(PARCEL)
    with pytest.raises(NotDelivered, match="can't be run"):
        await CommandChannel(["/no/such/program"]).send(PARCEL)
    with pytest.raises(DeliveryInDoubt):
        await CommandChannel(
            [sys.executable, "-c", "import time; time.sleep(60)"], timeout_seconds=0.3
        ).send(PARCEL)


@in_loop
async def test_a_command_that_reads_nothing_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Its closed input is an error that somebody has to take. Nobody took it, and Python printed it
    on some versions.
    """
    taken: list[str] = []

    async def broken(_: asyncio.StreamWriter) -> None:
        taken.append("broken pipe")
        raise BrokenPipeError

    monkeypatch.setattr(asyncio.StreamWriter, "wait_closed", broken)
    await CommandChannel(["true"]).send(PARCEL)
    assert taken == ["broken pipe"]


@pytest.mark.parametrize("words", [["true"], ["sh", "-c", "exec 0<&-"]])
@pytest.mark.parametrize("length", [10, 1_000_000])
@in_loop
async def test_a_real_command_that_reads_nothing_leaves_no_error_behind(
    words: list[str], length: int
) -> None:
    """Its input is closed before, while or after a short or a long message is written."""
    said: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: said.append(str(about)))
    parcel = msgspec.structs.replace(PARCEL, text="x" * length)
    for _ in range(10):
        await CommandChannel(words).send(parcel)
    gc.collect()
    await asyncio.sleep(0)
    assert said == []


@in_loop
async def test_settings_notify_reaches_a_webhook(hook: Any, tmp_path: Path) -> None:
    """From holdfast.toml to the other side, through the real assembly."""
    from holdfast.assembly.service import open_service

    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(f'[approvals]\nnotify = {{ webhook = "{hook.address}" }}\n')
    async with open_service(home) as service:
        workspace = service.runtime.world.workspace(str(tmp_path))
        turn = await service.send(
            "ops/a",
            Incoming(
                text="write_file path=x.txt content=secret-words",
                source=alice,
                workspace=workspace,
            ),
        )
        assert turn.outcome == "waiting"
    [(_, _, body)] = hook.seen
    assert json.loads(body) == {
        "id": turn.approvals[0].id,
        "session": "ops/a",
        "tool": "write_file",
        "kind": "approval",
    }
    assert b"secret-words" not in body


@in_loop
async def test_a_turn_that_starts_and_fails_in_one_commit_sends_its_notice(stage: Stage) -> None:
    """Its channel is known from the very record that took it in."""
    post = Post()
    stage.policy = Policy(turn_model_calls_max=0)
    async with stage.open(stage.agent([{"say": "never"}])) as home:
        posting(home, post)
        turn = await home.send("ops/a", "hi", source=alice)
        assert turn.outcome == "failed"
    assert [(each.kind, each.text) for each in post.arrived] == [
        ("notice", "This request failed: the turn made 0 model calls, which is its bound")
    ]


@in_loop
async def test_a_webhook_that_is_given_up_is_hung_up_on() -> None:
    """
    Its thread would go on waiting for an answer, and a server that is told to stop would wait for
    the thread.
    """
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(60)
        heard, over = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def silent() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(60)
                connection.recv(65536)
                loop.call_soon_threadsafe(heard.set)
                while connection.recv(65536):
                    pass
            loop.call_soon_threadsafe(over.set)

        server = threading.Thread(target=silent, daemon=True)
        server.start()
        sending = asyncio.ensure_future(
            WebhookChannel(
                f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout_seconds=600
            ).send(PARCEL)
        )
        async with asyncio.timeout(60):
            await heard.wait()
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            await over.wait()
