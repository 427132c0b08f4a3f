"""
The contract of every `ChatPlatform`, as one suite. Subclass it and provide the fixtures `fake` and
`cast`, and `platform`, which makes the platform that talks to the fake.

Each test is a rule of `docs/internals/channels.md`. The gateway's own rules (people, audiences, who
may answer) are tested with a server.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.ids import ApprovalId
from holdfast.ports.chat.messages import (
    Arrived,
    ChatParcel,
    ChatPlaces,
    ChatPrompt,
    ChatReceipt,
    KnownThread,
    Pressed,
    Taken,
    direct_address,
)
from holdfast.ports.chat.platform import ChatPlatform
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered
from holdfast.testing.fakes.chat import FakeChat, FakeMessage
from holdfast.testing.loop import in_loop

PROMPT = ChatPrompt(
    approval=ApprovalId("a-" + "b" * 26),
    session="chat/one",
    tool="shell",
    kind="approval",
    requester="alice",
    agent="ops",
    display="the command\n| echo *hi* <@U0BOB> & <https://example.org|x> `code`",
    digest="0123456789abcdef" * 4,
    options=("approve_once", "approve_session", "edit", "deny"),
    may_answer=("bob",),
    expires_at=1_900_000_000_000,
)


class ChatCast(msgspec.Struct, frozen=True):
    """Ids on the fake."""

    alice: str
    mallory: str
    team: str


class RecordingInbox:
    """Keeps what arrives. `hold` delays it, and `broken` makes it fail, as a full disk would."""

    def __init__(self) -> None:
        self.messages: list[Arrived] = []
        self.presses: list[Pressed] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self.broken = False
        self.words: str | None = None
        self.entered = asyncio.Event()
        self.up = asyncio.Event()
        self.known: tuple[KnownThread, ...] = ()
        self.named = ChatPlaces()

    async def message(self, arrived: Arrived) -> Taken:
        self.entered.set()
        await self.hold.wait()
        if self.broken:
            raise OSError("the disk is full")
        self.messages.append(arrived)
        return Taken("taken", self.words)

    async def press(self, pressed: Pressed) -> Taken:
        self.presses.append(pressed)
        return Taken("refused" if self.words else "taken", self.words)

    async def threads(self) -> Sequence[KnownThread]:
        return self.known

    def places(self) -> ChatPlaces:
        return self.named

    def came_up(self) -> None:
        self.up.set()

    def went_down(self, reason: str) -> None:  # noqa: ARG002  # a reason for people
        self.up.clear()


async def until(true: Callable[[], Any], what: str) -> None:
    """Wait until it holds; a minute is more than any machine needs."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110  # facts of another thread
            await asyncio.sleep(0.01)
    assert true(), what


@asynccontextmanager
async def listening(platform: ChatPlatform, inbox: RecordingInbox) -> AsyncGenerator[None, None]:
    """Run the platform, again after an error, as the gateway does."""

    async def run() -> None:
        while True:
            with contextlib.suppress(OSError):
                await platform.run(inbox)
            await asyncio.sleep(0.05)

    task = asyncio.ensure_future(run())
    try:
        async with asyncio.timeout(60):
            await inbox.up.wait()
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class ChatSuite:
    """The contract of `ports/chat`."""

    @pytest.fixture
    def fake(self) -> FakeChat:
        raise NotImplementedError("bring a fake that is started")

    @pytest.fixture
    def cast(self) -> ChatCast:
        raise NotImplementedError("bring ids")

    @pytest.fixture
    def platform(self, fake: FakeChat) -> Callable[[], ChatPlatform]:
        raise NotImplementedError("bring a platform")

    def parcel(self, cast: ChatCast, fake: FakeChat, **fields: Any) -> ChatParcel:
        to = direct_address(fake.identity(cast.alice))
        given = {"delivery": "d-1", "to": to, "kind": "reply", "text": "hello", "queued_at": 0}
        return msgspec.convert({**given, **fields}, ChatParcel)

    def prompt(self, cast: ChatCast, fake: FakeChat, **fields: Any) -> ChatParcel:
        shown = msgspec.structs.replace(PROMPT, **fields)
        # Another prompt is another delivery: a vendor may recognise its id.
        delivery = f"d-{len(shown.display)}-{shown.display[:1]}"
        return self.parcel(cast, fake, kind="prompt", prompt=shown, delivery=delivery)

    # --- in

    @in_loop
    async def test_a_message_is_acknowledged_after_it_is_durable_and_answered_where_it_came_from(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        inbox, chat = RecordingInbox(), platform()
        inbox.hold.clear()
        async with listening(chat, inbox):
            fake.say(cast.alice, "hi", place=cast.team, name="Alice")
            await inbox.entered.wait()
            assert fake.acknowledged == []
            inbox.hold.set()
            await until(lambda: fake.acknowledged or not fake.acknowledges, "acknowledged")
            await until(lambda: inbox.messages, "the message")
            [first, *_] = inbox.messages
            assert (first.identity, first.place) == (fake.identity(cast.alice), cast.team)
            assert (first.place_kind, first.text, first.is_for_us) == ("channel", "hi", True)
            await chat.send(self.parcel(cast, fake, to=first.thread))
            assert [each.place for each in fake.messages] == [cast.team]
            fake.say(cast.alice, "to you alone", name="Somebody Else")
            await until(lambda: inbox.messages[-1].place_kind == "direct", "a direct message")
            direct = inbox.messages[-1]
            assert direct.identity == first.identity  # a new name is the same user
            assert direct.thread == direct_address(first.identity)

    @in_loop
    async def test_a_message_that_was_not_durable_comes_again_and_a_redelivery_is_the_same_message(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        inbox = RecordingInbox()
        inbox.broken = True
        async with listening(platform(), inbox):
            fake.say(cast.alice, "hi")
            await inbox.entered.wait()
        assert fake.acknowledged == []
        again = RecordingInbox()
        again.known = fake.missed_since(cast.alice)
        async with listening(platform(), again):
            await until(lambda: again.messages, "the message")
            [first] = {each.message for each in again.messages}
            before = len(again.messages)
            fake.redeliver()
            fake.say(cast.alice, "another")
            await until(lambda: again.messages[-1].text == "another", "the next message")
            repeated = {each.message for each in again.messages[before:-1]}
        assert repeated <= {first}

    @in_loop
    async def test_a_message_that_was_not_durable_comes_again_to_the_same_process(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        if not fake.acknowledges:
            pytest.skip("this vendor hears of no acknowledgement, and sends nothing again")
        inbox = RecordingInbox()
        inbox.broken = True
        async with listening(platform(), inbox):
            fake.say(cast.alice, "hi")
            await inbox.entered.wait()
            inbox.broken = False  # the disk has room again
            fake.retry()
            await until(lambda: inbox.messages, "the message again")
            await until(lambda: fake.acknowledged, "its acknowledgement")

    @in_loop
    async def test_a_vendor_that_waited_too_long_sends_a_message_that_is_known(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        """Slack waits 3 s for the acknowledgement. The inbox is not done, and it comes again."""
        inbox = RecordingInbox()
        inbox.hold.clear()
        async with listening(platform(), inbox):
            fake.say(cast.alice, "slowly")
            await inbox.entered.wait()
            fake.redeliver()
            inbox.hold.set()
            await until(lambda: inbox.messages, "the message")
            fake.say(cast.alice, "next")
            await until(lambda: inbox.messages[-1].text == "next", "the next message")
        keys = {(each.place, each.message, each.thread) for each in inbox.messages[:-1]}
        assert len(keys) == 1
        assert {each.text for each in inbox.messages[:-1]} == {"slowly"}

    @in_loop
    async def test_messages_that_came_while_nobody_listened_are_read_in_their_order(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        """Also the first ones of a person and of a channel that settings name."""
        before = RecordingInbox()
        async with listening(platform(), before):
            fake.say(cast.alice, "hi")
            await until(lambda: before.messages, "the first message ever")
            await until(lambda: fake.acknowledged or not fake.acknowledges, "acknowledged")
        first = before.messages[0]
        missed = [f"missed {number}" for number in range(230)]  # more than one page anywhere
        for text in missed:
            fake.say(cast.alice, text, is_missed=True)
        fake.say(cast.alice, "a channel's first", place=cast.team, is_missed=True)
        fake.say(cast.mallory, "a person's first", is_missed=True)
        fake.busy_reads = 1
        after = RecordingInbox()
        after.known = (KnownThread(first.thread, first.place, first.message),)
        after.named = ChatPlaces(
            (fake.identity(cast.alice), fake.identity(cast.mallory)), (cast.team,)
        )
        async with listening(platform(), after):
            await until(lambda: after.messages[-1:] and "person" in after.messages[-1].text, "all")
        texts = [each.text for each in after.messages if each.text != "hi"]
        assert texts == [*missed, "a channel's first", "a person's first"]

    @in_loop
    async def test_a_home_that_has_heard_nothing_yet_has_missed_nothing(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        """Otherwise a new home would do again what an old one has done."""
        if not fake.has_history:
            pytest.skip("this vendor delivers by itself what nobody has acknowledged")
        fake.say(cast.alice, "of another home", is_missed=True)
        inbox = RecordingInbox()
        inbox.named = ChatPlaces((fake.identity(cast.alice),), (cast.team,))
        async with listening(platform(), inbox):
            fake.say(cast.alice, "now")
            await until(lambda: inbox.messages, "the message")
        assert {each.text for each in inbox.messages} == {"now"}

    @in_loop
    async def test_only_a_message_that_names_us_is_for_us_and_a_forged_sender_is_nobody(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        inbox = RecordingInbox()
        async with listening(platform(), inbox):
            fake.forge(cast.alice, "let me in", place=cast.team)
            fake.say(cast.alice, "by the way", place=cast.team, mention=False)
            fake.say(cast.alice, "last")
            await until(lambda: inbox.messages and inbox.messages[-1].text == "last", "the last")
        texts = {each.text: each.is_for_us for each in inbox.messages}
        assert texts.pop("by the way", False) is False
        forged = [each for each in inbox.messages if each.text == "let me in"]
        assert fake.identity(cast.alice) not in {each.identity for each in forged}

    @in_loop
    async def test_a_press_names_its_message_its_user_and_itself_and_words_reach_the_presser_alone(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        inbox, chat = RecordingInbox(), platform()
        inbox.words = "No."
        async with listening(chat, inbox):
            receipt = await chat.send(self.prompt(cast, fake))
            [message] = fake.messages
            payload = message.payload("Approve once")
            assert payload == f"{PROMPT.approval}:0:{PROMPT.digest[:16]}"
            for _ in range(2):  # two devices at once
                fake.press(cast.alice, message, "Approve once")
            await until(lambda: len(inbox.presses) == 2, "two presses")
            await asyncio.to_thread(fake.whispered, cast.alice)
        assert {each.message for each in inbox.presses} == {receipt.message}
        assert {each.payload for each in inbox.presses} == {payload}
        assert {each.identity for each in inbox.presses} == {fake.identity(cast.alice)}
        assert len({each.press for each in inbox.presses}) == 2
        assert {who for who, _ in fake.whispers} == {cast.alice}

    # --- out

    @in_loop
    async def test_a_prompt_is_whole_with_buttons_or_its_head_with_deny_up_to_the_last_character(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        chat, inbox = platform(), RecordingInbox()
        async with listening(chat, inbox):
            receipt = await chat.send(self.prompt(cast, fake))
            assert receipt.shown == "whole"
            assert fake.messages[-1].preformatted == PROMPT.display
            for letter in ("x", "&", "\N{GRINNING FACE}"):
                low, high = 1, 20_000
                while low < high:  # the longest display that is whole
                    middle = (low + high + 1) // 2
                    sent = await chat.send(self.prompt(cast, fake, display=letter * middle))
                    low, high = (middle, high) if sent.shown == "whole" else (low, middle - 1)
                    self._check(fake.messages[-1], letter * middle, sent)
                assert 500 < low < 20_000

    def _check(self, message: FakeMessage, display: str, sent: ChatReceipt) -> None:
        """Everything and two buttons, or a beginning that says so, and one."""
        if sent.shown == "whole":
            assert message.preformatted == display
            assert message.labels == ["Approve once", "Deny"]
        else:
            assert message.preformatted != display
            assert display.startswith(message.preformatted)
            assert message.labels == ["Deny"]
            assert f"first {len(message.preformatted)} of {len(display)} characters" in message.text

    @in_loop
    async def test_an_update_takes_the_buttons_away_and_may_be_repeated(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        chat, inbox = platform(), RecordingInbox()
        async with listening(chat, inbox):
            receipt = await chat.send(self.prompt(cast, fake))
            closed = self.parcel(
                cast, fake, kind="update", text="Denied by bob.", replaces=receipt.message
            )
            await chat.update(closed)
            await chat.update(closed)
            [message] = fake.messages
            assert (message.buttons, message.text) == ([], "Denied by bob.")
            fake.messages.clear()  # somebody deleted it
            await chat.update(closed)

    @in_loop
    async def test_each_failure_says_what_is_certain(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        chat, inbox = platform(), RecordingInbox()
        async with listening(chat, inbox):
            fake.faults = ["too_many"]
            with pytest.raises(NotDelivered) as waits:
                await chat.send(self.parcel(cast, fake))
            assert (waits.value.may_pass, waits.value.wait_seconds) == (True, 1.0)
            fake.faults = ["refused"]
            with pytest.raises(NotDelivered) as never:
                await chat.send(self.parcel(cast, fake))
            assert not never.value.may_pass
            assert fake.messages == []
            fake.faults = ["server_error"]
            with pytest.raises(DeliveryInDoubt):
                await chat.send(self.parcel(cast, fake))
            assert await chat.find(self.parcel(cast, fake)) == (
                "absent" if fake.can_find else "unknown"
            )

    @in_loop
    async def test_a_reset_after_the_post_is_in_doubt_and_posts_once(
        self, fake: FakeChat, cast: ChatCast, platform: Callable[[], ChatPlatform]
    ) -> None:
        chat, inbox = platform(), RecordingInbox()
        async with listening(chat, inbox):
            fake.faults = ["reset_after"]
            parcel = self.prompt(cast, fake)
            try:
                # A platform whose vendor recognises the delivery's id may settle it by itself.
                found: object = await chat.send(parcel)
            except DeliveryInDoubt:
                found = await chat.find(parcel)
            [message] = fake.messages
            if fake.can_find:
                assert found == ChatReceipt(fake.receipt(message), "whole")
            else:
                assert found == "unknown"

    @in_loop
    async def test_a_platform_that_cannot_be_reached_took_nothing(
        self, fake: FakeChat, platform: Callable[[], ChatPlatform]
    ) -> None:
        chat = platform()
        assert await chat.check()
        await asyncio.to_thread(fake.stop)
        with pytest.raises(NotDelivered) as gone:
            await chat.check()
        assert gone.value.may_pass
        assert not chat.is_up
