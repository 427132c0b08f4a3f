"""
External turns that can go on: all their prompts are answered, one of their calls may start, or
their loop left. For the process that runs the loops.
"""

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from holdfast.errors import HoldfastError
from holdfast.ids import SessionId, TurnId
from holdfast.ports.journal_store import Record
from holdfast.runtime.context import World
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.session.codec import decode
from holdfast.session.events import InputAccepted
from holdfast.session.state import CallStatus, Turn

_LOOK_AGAIN_SECONDS = 30.0
"""Notices may be lost; every session is looked at again after this time."""


class OpenLoop(msgspec.Struct, frozen=True, kw_only=True):
    """
    An external turn that can go on. `text` and `dedup` are those of its message, so that the same
    line can be run again.
    """

    session: SessionId
    turn: TurnId
    agent: str
    requester: str | None
    text: str
    dedup: str | None


async def open_loops(world: World, opened: OpenSessions) -> AsyncGenerator[OpenLoop, None]:
    """Yield each such turn once for each time that it moved, without end."""
    yielded: dict[tuple[SessionId, TurnId], tuple[object, ...]] = {}
    noticed: set[SessionId] = set()
    woken = asyncio.Event()

    async def listen() -> None:
        async with world.notifier.listen() as notices:
            async for session in notices:
                noticed.add(session)
                woken.set()

    listening = asyncio.ensure_future(listen())
    try:
        noticed.update(session for session, _, _ in await world.store.heads())
        while True:
            woken.clear()
            for session in sorted(noticed):
                noticed.discard(session)
                for found in await _movable(world, opened, session, yielded):
                    yield found
            if not noticed:
                try:
                    async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                        await woken.wait()
                except TimeoutError:
                    noticed.update(session for session, _, _ in await world.store.heads())
    finally:
        listening.cancel()


async def _movable(
    world: World,
    opened: OpenSessions,
    session: SessionId,
    yielded: dict[tuple[SessionId, TurnId], tuple[object, ...]],
) -> list[OpenLoop]:
    known = opened.get(session)
    if known is not None and known.driving:
        return []
    if known is None:  # the index is asked only where no state is at hand
        row = await world.index.get(session)
        if row is not None and row.phase == "idle":
            return []
    try:
        async with opened.use(session) as ledger:
            if ledger.journal.sealed is not None or ledger.driving:
                return []
            await ledger.catch_up_if_behind()
            found = []
            for turn in ledger.state.turns.values():
                mark = tuple((call.call, call.status, call.prompts) for call in turn.calls)
                if _can_go_on(turn) and yielded.get((session, turn.id)) != mark:
                    yielded[session, turn.id] = mark
                    found.append(await _open_loop(ledger, turn))
            return found
    except HoldfastError:
        return []  # a session that can't be read is reported by its own verbs


def _can_go_on(turn: Turn) -> bool:
    if turn.loop != "foreign" or not turn.parked or turn.is_half_settled:
        return False
    return turn.is_left or any(call.status is CallStatus.APPROVED for call in turn.calls)


async def _open_loop(ledger: Ledger, turn: Turn) -> OpenLoop:
    inputs: list[InputAccepted] = []

    def take(record: Record) -> None:
        if record.type == "input_accepted":
            event = decode(record.type, record.version, record.body, seq=record.seq)
            if isinstance(event, InputAccepted) and event.turn == turn.id:
                inputs.append(event)

    await ledger.journal.load(take)
    return OpenLoop(
        session=ledger.session,
        turn=turn.id,
        agent=turn.agent,
        requester=turn.context.requester,
        text=inputs[0].text if inputs else "",
        dedup=inputs[0].dedup if inputs else None,
    )
