"""Every chat platform keeps the contract of `ports/chat`, with its real library and its fake."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.adapters.channels.discord.platform import DiscordPlatform
from holdfast.adapters.channels.slack.platform import SlackPlatform
from holdfast.adapters.channels.telegram.platform import TelegramPlatform
from holdfast.ports.chat.platform import ChatPlatform
from holdfast.testing.conformance.chats import ChatCast, ChatSuite
from holdfast.testing.fakes.discord import FakeDiscord
from holdfast.testing.fakes.slack import FakeSlack
from holdfast.testing.fakes.telegram import FakeTelegram


class TestTelegram(ChatSuite):
    @pytest.fixture
    def fake(self) -> Iterator[FakeTelegram]:
        with FakeTelegram() as fake:
            yield fake

    @pytest.fixture
    def cast(self) -> ChatCast:
        return ChatCast("1001", "1666", "-100500")

    @pytest.fixture
    def platform(self, fake: FakeTelegram) -> Callable[[], ChatPlatform]:
        return lambda: TelegramPlatform(fake.bot_token, api=fake.address)


class TestSlack(ChatSuite):
    @pytest.fixture
    def fake(self) -> Iterator[FakeSlack]:
        with FakeSlack() as fake:
            yield fake

    @pytest.fixture
    def cast(self) -> ChatCast:
        return ChatCast("U0ALICE", "U0MALLORY", "C0OPS")

    @pytest.fixture
    def platform(self, fake: FakeSlack) -> Callable[[], ChatPlatform]:
        return lambda: SlackPlatform(
            fake.bot_token, app_token=fake.app_token, api=f"{fake.address}/api/"
        )


class TestDiscord(ChatSuite):
    @pytest.fixture
    def fake(self) -> Iterator[FakeDiscord]:
        with FakeDiscord() as fake:
            yield fake

    @pytest.fixture
    def cast(self) -> ChatCast:
        return ChatCast("1001", "1666", "500500")

    @pytest.fixture
    def platform(self, fake: FakeDiscord) -> Callable[[], ChatPlatform]:
        return lambda: DiscordPlatform(fake.bot_token, api=f"{fake.address}/api")
