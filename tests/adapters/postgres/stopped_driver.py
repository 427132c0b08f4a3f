"""
A node that drives one turn and stops itself, as SIGSTOP would, at the given await of its store: just
before the statement is asked for, or just after its answer. It prints how its turn ended.

`python stopped_driver.py FOLDER MARKER PLACE`
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast.adapters.postgres.commit.append import AwaitedAppend
from holdfast.adapters.postgres.store import PostgresStore
from holdfast.assembly.service import open_service
from holdfast.home import specs_from_agents
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.messages import ModelAnswer, ProposedCall, ResultMessage, Usage

LEASE_SECONDS = 1.5
OPTIONS: dict[str, Any] = PostgresStore.open_home.__func__.__kwdefaults__  # type: ignore[attr-defined]
SESSION = "ops/api"


class Looks:
    """A model that calls the tool once, and then says a sentence."""

    name = "looks"
    context_tokens = 200_000

    def resolve(self, _: str) -> "Looks":
        return self

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:  # noqa: ARG002
        usage = Usage(input_tokens=40)
        if isinstance(request.messages[-1], ResultMessage):
            return ModelAnswer(text="Done.", usage=usage)
        calls = (ProposedCall("restart", '{"service":"api"}', None),)
        return ModelAnswer(text="", calls=calls, usage=usage)


@asynccontextmanager
async def service_at(folder: Path, marker: Path) -> AsyncIterator[Service]:
    """A service over the database, with a tool whose effect can be counted."""

    @holdfast.tool(contract="once", mode="auto")
    async def restart(service: str) -> str:
        """Restart a service."""
        with marker.open("a") as file:
            file.write(f"{service}\n")
        return "restarted"

    agent = holdfast.Agent("ops", model="looks", tools=[restart])
    specs, tools, _ = specs_from_agents([agent])
    async with open_service(folder, agents=specs, tools=tools, models=Looks()) as service:
        yield service


class StoppingPlace:
    """Counts the awaits of the store, and stops the process at one of them."""

    def __init__(self, place: int) -> None:
        self._left = place

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)

    def watch(self, owner: type, name: str) -> None:
        true: Callable[..., Awaitable[Any]] = getattr(owner, name)

        async def watched(*args: Any, **named: Any) -> Any:
            self._pass()
            found = await true(*args, **named)
            self._pass()
            return found

        setattr(owner, name, watched)


async def main(folder: Path, marker: Path, place: int) -> None:
    OPTIONS["lease_seconds"] = LEASE_SECONDS
    async with service_at(folder, marker) as service:
        await service.create(SESSION, by="alice")
        stopping = StoppingPlace(place)
        for owner, name in (
            (AwaitedAppend, "result"),
            (PostgresStore, "in_thread"),
            (PostgresStore, "in_lane"),
        ):
            stopping.watch(owner, name)
        source = holdfast.MessageSource.local("alice")
        try:
            report = await service.send(SESSION, Incoming(text="restart the api", source=source))
            _say(f"ended {report.outcome}")
        except holdfast.HoldfastError as exc:
            _say(f"ended {type(exc).__name__} {exc}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
