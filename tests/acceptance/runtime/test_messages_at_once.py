"""Messages of many people that come to one session at the same moment."""

import asyncio

from holdfast.ids import SessionId
from holdfast.session.authority.context import MessageSource
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice

PEOPLE = 120
LONG = "x" * 20_000  # a dozen of them fill a segment, also in the middle of a commit


@in_loop
async def test_each_gets_a_turn_of_its_own_also_while_segments_are_filled(stage: Stage) -> None:
    """A1: two messages with one turn would be one request, with the authority of one of them."""
    async with stage.open(stage.agent([])) as home:
        await home.send("ops/api", "first", source=alice, wait=False)

        async def send(number: int) -> str:
            source = MessageSource.local(f"p{number}")
            sent = await home.send("ops/api", f"{number} {LONG}", source=source, wait=False)
            return str(sent.turn)

        turns = await asyncio.gather(*(send(number) for number in range(PEOPLE)))
        assert len(set(turns)) == PEOPLE
        async with home.service.live.use(SessionId("ops/api")) as ledger:
            queued = {each.turn: each for each in ledger.state.queued}
        for number, turn in enumerate(turns):
            assert queued[turn].context.requester == f"p{number}"
