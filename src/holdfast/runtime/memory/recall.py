"""
Recall for a turn: once, before its first model call, under the context in its journal.

It runs outside of any lock, in a thread, bounded in time. A failure is noted with the turn, which
continues without memory. The items become part of the same commit as the first model call, so they
cost no sync of their own, and a crash leaves both or neither.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.ids import TurnId
from holdfast.ports.memory import CannotRecall, MemoryMatches
from holdfast.runtime.context import World
from holdfast.secrecy import secrecy_of
from holdfast.session.authority.context import LostContext, TurnContext
from holdfast.session.commands import RecordRecall
from holdfast.session.events import InputKind
from holdfast.session.features.jobs.decide import OUTPUT_FOLLOWS
from holdfast.session.features.memory.items import (
    MemoryItem,
    may_see,
    query_words,
    reader_set_of,
    recall_is_owed,
    within_bounds,
)
from holdfast.session.state import SessionState, Turn
from holdfast.session.view.messages import NoteMessage, UserMessage
from holdfast.threads import ThreadPool

_RECALLERS = ThreadPool(4, "holdfast-recall")
_PATIENCE = 2.0  # times the store's own bound: a disk that does not answer is not awaited longer


def remembers(world: World) -> bool:
    """
    Whether a turn must query memory at all. If nothing was ever remembered, one commit accepts a
    message and begins its turn.
    """
    return world.memory is not None and world.recall_seconds > 0 and not world.memory.is_empty()


async def recall_for_open(
    world: World, state: SessionState, turn: Turn
) -> tuple[RecordRecall, ...]:
    """
    Recall for a turn whose beginning is durable already: after a crash, or because other records
    came between.
    """
    if not recall_is_owed(turn):
        return ()
    texts = [message.text for message in turn.own if isinstance(message, UserMessage | NoteMessage)]
    return await recall_for(world, state, turn.id, turn.context, turn.kind, texts)


async def recall_for(
    world: World,
    state: SessionState,
    turn: TurnId,
    context: TurnContext | LostContext,
    kind: InputKind,
    texts: Sequence[str],
) -> tuple[RecordRecall, ...]:
    """
    Return the recall to commit with the first model call; empty if there is nothing to record.
    """
    memory, reader_set = world.memory, reader_set_of(context, state.readers)
    words = query_words("\n".join(_asking(kind, text) for text in texts))
    if memory is None or reader_set is None or not words or not remembers(world):
        return ()

    def find() -> MemoryMatches:
        return memory.find(
            words, reader_set, limit=2 * limits.MEMORY_RECALLED_MAX, seconds=world.recall_seconds
        )

    degraded: str | None = None
    items: tuple[MemoryItem, ...] = ()
    try:
        async with asyncio.timeout(world.recall_seconds * _PATIENCE):
            found = await _RECALLERS.call(find)
    except CannotRecall as exc:
        degraded = str(exc)
    except TimeoutError:
        degraded = "it took too long"
    else:
        items = within_bounds(item for item in found.items if may_see(item, reader_set))
        degraded = (
            f"{found.unverified} of what was found does not verify" if found.unverified else None
        )
    if not items and degraded is None:
        return ()
    secrecy = secrecy_of(world.secrets)
    shown = tuple(msgspec.structs.replace(item, text=secrecy.hidden(item.text)) for item in items)
    return (
        RecordRecall(
            turn=turn, items=shown, degraded=secrecy.hidden(degraded) if degraded else None
        ),
    )


def _asking(kind: InputKind, text: str) -> str:
    """
    Return the part of a message that memory is queried with. For a job's report that is the call,
    never its output, which no person wrote.
    """
    return text.partition(OUTPUT_FOLLOWS)[0] if kind == "job" else text
