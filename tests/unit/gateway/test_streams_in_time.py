"""
G3, measured: how long a stream goes on after its token has died, in a loop whose time is made up.
The real `Streams.run` looks; nothing else does.
"""

import asyncio
from collections.abc import Callable, Collection

import pytest
from proof.simulation.virtual_loop import run_virtually

from holdfast.adapters.inmemory import InMemoryStore
from holdfast.errors import Busy
from holdfast.gateway.server.tokens import Bearer, TokenBook
from holdfast.gateway.streams import registry as module
from holdfast.gateway.streams.registry import LiveStream, Streams
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.session.authority.context import Audience

PROMISED_SECONDS = 5.0
HANGS_SECONDS = 30.0


class Book(TokenBook):
    """
    Says what it is told to: the token lives, it was revoked, nobody can say, or the answer does not
    come.
    """

    def __init__(self) -> None:
        super().__init__(HomeLedger(InMemoryStore()))
        self.standing = "lives"

    async def still_lives(self, bearers: Collection[Bearer], *, now: int) -> set[str]:
        del now
        await asyncio.sleep(HANGS_SECONDS if self.standing == "hangs" else 0)
        if self.standing == "unsure":
            raise Busy("the home can't be read now")
        return {each.digest for each in bearers} if self.standing == "lives" else set()


BEARER = Bearer(
    name="laptop",
    digest="d",
    person="alice",
    scopes=frozenset({"read"}),
    audience=Audience.PERSONAL,
    boundary="personal:alice",
    expires_at=None,
)


async def measured(standing: str, after: float, *, leaves: bool) -> tuple[float, str | None]:
    """
    Seconds from the token's death to the last moment at which its stream can still be read, and why
    it ended.
    """
    loop, book = asyncio.get_running_loop(), Book()
    streams = Streams(
        book,
        lambda: 0,
        streams_max=9,
        streams_per_token_max=9,
        streams_per_person_max=9,
    )
    listener, over = LiveStream(BEARER), asyncio.Event()
    listener.abort = over.set

    async def follow() -> None:
        """A client that goes at once when it is told to; the other one must be cut."""
        while listener.ended is None:
            listener.wake.clear()
            await listener.wake.wait()
        if leaves:
            over.set()

    with streams.hold(listener):
        tasks = [asyncio.create_task(streams.run()), asyncio.create_task(follow())]
        await asyncio.sleep(after)
        assert listener.ended is None
        book.standing, died = standing, loop.time()
        await over.wait()
        seconds = loop.time() - died
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return seconds, listener.ended


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize(
    ("standing", "reason"), [("revoked", "revoked"), ("unsure", "unsure"), ("hangs", "unsure")]
)
def test_a_stream_ends_within_five_seconds_of_its_tokens_death(
    standing: str, reason: str, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    At whatever moment between two looks the token dies, and whether or not the client goes by
    itself.
    """

    def measure(after: float) -> tuple[float, str | None]:
        async def main() -> tuple[float, str | None]:
            clock: Callable[[], float] = asyncio.get_running_loop().time
            monkeypatch.setattr(module.time, "monotonic", clock)
            return await measured(standing, after, leaves=leaves)

        try:
            return run_virtually(main(), seconds_max=120)
        finally:
            monkeypatch.undo()

    for tenths in range(1, 31):
        seconds, ended = measure(tenths / 10)
        assert (ended, seconds <= PROMISED_SECONDS) == (reason, True), (tenths, seconds)


def test_a_stream_with_a_valid_token_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure can tell: nothing ends where nothing died."""

    async def main() -> None:
        monkeypatch.setattr(module.time, "monotonic", asyncio.get_running_loop().time)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(measured("lives", 0.5, leaves=True), 60)

    run_virtually(main(), seconds_max=120)
    monkeypatch.undo()
