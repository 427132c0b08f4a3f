"""A served home in front of one real server, whose calls ask, and the person who answers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from holdfast.runtime.service import Service
from tests.acceptance.gateway.conftest import Gateway, until
from tests.adapters.mcp.real import home_with
from tests.adapters.mcp.served import ServedHome


class GatedHome:
    """`policy` has further rules of `[policy.personal]`; every other call of the server asks."""

    def __init__(
        self,
        folder: Path,
        command: list[str],
        *,
        write: Sequence[Path] = (),
        policy: str = "",
        more: str = "",
    ) -> None:
        settings = home_with(folder, command, write=list(write), more=more, mode="ask")
        with (settings / "holdfast.toml").open("a") as file:
            file.write(f'{policy}\n[mcp]\nwait = "60s"\n')
        self.gateway = Gateway(folder, None)

    def __enter__(self) -> Self:
        self.gateway.elsewhere(self._pin)
        self.token = self.gateway.token("alice", "send")
        self._approver = self.gateway.token("alice")
        self.gateway.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.close()

    async def _pin(self, service: Service) -> None:
        shown = await service.servers.show(["peer"])
        await service.servers.pin([(each.name, each.digest) for each in shown], by="alice")

    @property
    def served(self) -> ServedHome:
        return ServedHome(self.gateway.home, self.gateway.port, self.token)

    @property
    def environment(self) -> dict[str, str]:
        return self.served.environment

    @property
    def relay(self) -> list[str]:
        words = ["--home", str(self.gateway.home), "mcp", "proxy", "--server", "peer"]
        return [sys.executable, "-m", "holdfast", *words]

    def prompt(self) -> dict[str, Any]:
        """The prompt that waits."""
        return self.gateway.waiting(self.gateway.client(self._approver))

    def answer(self, option: str) -> None:
        client = self.gateway.client(self._approver)
        assert self.gateway.answer(client, self.prompt(), option).status_code == 200

    def starts(self, count: int) -> int:
        """Wait until so many calls were started, in all sessions; return how many there are."""
        return until(lambda: self._starts() >= count and self._starts(), f"{count} starts")

    def _starts(self) -> int:
        client = self.gateway.client(self._approver)
        sessions = client.get("/v1/sessions").json()["sessions"]
        lines = [line for each in sessions for line in self.gateway.lines(each["session"])]
        return sum(line.get("type") == "tool_started" for line in lines)
