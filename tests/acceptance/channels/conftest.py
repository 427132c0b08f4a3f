"""A real server that is connected to a fake platform on loopback, with its real library."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.gateway.routes.operations import CHANNELS_DOWN
from holdfast.testing.fakes.chat import FakeChat
from holdfast.testing.fakes.discord import FakeDiscord
from holdfast.testing.fakes.slack import FakeSlack
from holdfast.testing.fakes.telegram import FakeTelegram
from tests.acceptance.gateway.conftest import Gateway, gateway, until

__all__ = ["gateway"]

# By kind: the fake, the users alice, bob and a stranger, a channel of the team, another channel.
CAST: dict[str, tuple[type[FakeChat], dict[str, str]]] = {
    "telegram": (
        FakeTelegram,
        {"alice": "1001", "bob": "1002", "mallory": "1666", "team": "-100500", "public": "-100900"},
    ),
    "slack": (
        FakeSlack,
        {
            "alice": "U0ALICE",
            "bob": "U0BOB",
            "mallory": "U0MALLORY",
            "team": "C0OPS",
            "public": "C0ALL",
        },
    ),
    "discord": (
        FakeDiscord,
        {"alice": "1001", "bob": "1002", "mallory": "1666", "team": "500500", "public": "500900"},
    ),
}
SETTINGS = """
[people.alice]
{kind} = "{alice}"
[people.bob]
{kind} = "{bob}"
[policy.team]
shell = {{ ask = ["bob"], requester_may_answer = false }}
[policy.public]
shell = {{ ask = ["bob"], requester_may_answer = false }}
"""


class Stage:
    """A server, a fake, and the ids of the people and places on it."""

    def __init__(self, gateway: Gateway, fake: FakeChat, ids: dict[str, str]) -> None:
        self.gateway, self.fake, self.ids = gateway, fake, ids
        self.alice, self.bob, self.mallory = ids["alice"], ids["bob"], ids["mallory"]
        self.team, self.public = ids["team"], ids["public"]

    def start(self, teams: dict[str, str] | None = None, *, then: str = "", **more: str) -> "Stage":
        people = {name: self.fake.identity(self.ids[name]) for name in ("alice", "bob")}
        given = (teams or {}) | {self.team: "ops"}
        listed = ", ".join(f'"{place}" = "{team}"' for place, team in given.items())
        keys = "".join(f'{key} = "{value}"\n' for key, value in more.items())
        self.gateway.settings(
            self.fake.settings()
            + f"teams = {{ {listed} }}\n{keys}"
            + SETTINGS.format(kind=self.fake.kind, **people)
            + then
        )
        self.gateway.start()
        return self.until_up()

    def until_up(self) -> "Stage":
        """Wait until the server hears the platform: not every vendor keeps what came before."""
        until(self._hears, "the chat to answer")
        return self

    def _hears(self) -> bool:
        answer = httpx.get(f"{self.gateway.url}/readyz", timeout=60)
        return answer.is_success and CHANNELS_DOWN not in answer.headers

    def records(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The records of every session of the chat, in the order of each journal."""
        found = []
        folder = self.gateway.home / "sessions" / self.fake.kind
        # A folder that is being made has a name of its own, and is gone a moment later.
        sessions = [each for each in folder.glob("*") if not each.name.startswith(".")]
        for path in sorted(path for each in sessions for path in each.glob("*.jsonl")):
            try:
                text = path.read_text()
            except FileNotFoundError:
                continue  # the rest of a creation that was killed, which the next one removes
            for line in text.split("\n")[:-1]:  # the last may be half written
                record = json.loads(line)
                if record.get("type") is not None and kind in (None, record["type"]):
                    found.append(record | {"session": path.parent.name})
        return found

    def bodies(self, kind: str) -> list[dict[str, Any]]:
        return [record["body"] for record in self.records(kind)]

    def until_records(self, kind: str, count: int) -> list[dict[str, Any]]:
        """Wait for that many records of a type, and return their bodies."""
        until(lambda: len(self.records(kind)) >= count, f"{count} {kind}")
        return self.bodies(kind)

    def workspace(self, name: str) -> Path:
        return self.gateway.work / name


@pytest.fixture(params=list(CAST))
def stage(
    request: pytest.FixtureRequest, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    make, ids = CAST[request.param]
    with make() as fake:
        for name, value in fake.environment().items():
            monkeypatch.setenv(name, value)
        yield Stage(gateway, fake, ids)
