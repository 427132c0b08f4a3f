"""
Long lives: opening a session of 100,000 records with and without its snapshot, and what looking for
room in the view costs a turn.

    python bench/long_lives.py [RECORDS]

Must reach: with a snapshot at most 0.25 x of without; compaction adds at most 5 ms of our own time
to a turn.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from holdfast.adapters.files import FileStore
from holdfast.ids import InputId, InstanceId, SessionId, TurnId
from holdfast.journal.record import Draft
from holdfast.runtime.context import Tuning
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.ledger.rules import LedgerRules
from holdfast.session.authority.context import MessageSource, context_from_source
from holdfast.session.codec import encode
from holdfast.session.events import (
    Compacted,
    InputAccepted,
    ModelAnswered,
    ModelCallStarted,
    SessionBorn,
    SessionEvent,
    TurnEnded,
    TurnStarted,
)
from holdfast.session.view.compaction import plan_for_turn, view_tokens
from holdfast.session.view.messages import Usage

SESSION, INSTANCE = SessionId("bench/long"), InstanceId("abcdefghijklmnopqrstuvwxyz")
TURNS_PER_SUMMARY = 100


def story(records: int) -> list[SessionEvent]:
    events: list[SessionEvent] = [
        SessionBorn(session=SESSION, instance=INSTANCE, origin="created", by="bench")
    ]
    number = 0
    while len(events) < records:
        number += 1
        turn = TurnId(f"t{number}")
        context = context_from_source(
            MessageSource.local("alice"),
            session=SESSION,
            instance=INSTANCE,
            turn=turn,
            workspace=None,
        )
        raw = msgspec.Raw(msgspec.json.encode(context))
        name = InputId(f"i{number}")
        events += [
            InputAccepted(
                input=name,
                turn=turn,
                text=f"request {number} " + "word " * 20,
                context=raw,
                agent="ops",
                model="demo",
                dedup=f"k{number}",
            ),
            TurnStarted(turn=turn, inputs=(name,), epoch=1),
            ModelCallStarted(turn=turn, number=1, epoch=1, model="demo"),
            ModelAnswered(
                turn=turn,
                number=1,
                text="answer " * 20,
                usage=Usage(input_tokens=100, output_tokens=10),
            ),
            TurnEnded(turn=turn, outcome="completed", reply="answer " * 20),
        ]
        if number % TURNS_PER_SUMMARY == 0:
            events.append(
                Compacted(
                    summary="so far",
                    turns=TURNS_PER_SUMMARY - 4
                    if number == TURNS_PER_SUMMARY
                    else TURNS_PER_SUMMARY,
                    tokens_before=9000,
                    tokens_after=90,
                    trigger="bench",
                )
            )
    return events


_NEVER = LedgerRules(
    tuning=Tuning(snapshot_every_records=10**9, snapshot_every_records_closed=10**9)
)
_ALWAYS = LedgerRules(tuning=Tuning(snapshot_every_records=1))


async def timed_open(home: Path) -> tuple[float, float]:
    """Opening the journal, and coming up to its head with the state."""
    store = await FileStore.open_home(home)
    start = time.perf_counter()
    journal = await store.open(SESSION)
    verified = time.perf_counter()
    ledger = await Ledger.open(journal, _NEVER)
    done = time.perf_counter()
    await ledger.close()
    await store.close()
    return verified - start, done - start


async def main(records: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        store = await FileStore.open_home(home)
        journal = await store.create(
            SESSION,
            INSTANCE,
            [Draft(*encode(each)) for each in story(records)],
            origin="created",
            by="bench",
        )
        ledger = await Ledger.open(journal, _NEVER)
        state = ledger.state
        await ledger.close()
        await store.close()
        without = min([await timed_open(home) for _ in range(3)], key=lambda each: each[1])
        store = await FileStore.open_home(home)
        ledger = await Ledger.open(await store.open(SESSION), _ALWAYS)
        start = time.perf_counter()
        await ledger.keep_snapshot_if_due()
        keeping = time.perf_counter() - start
        await ledger.close()
        await store.close()
        with_ = min([await timed_open(home) for _ in range(3)], key=lambda each: each[1])
        print(f"records {records}, view {len(state.view.entries)} turns")
        print(
            f"open without a snapshot: {without[1] * 1000:8.1f} ms (of it verifying {without[0] * 1000:.1f})"
        )
        print(
            f"open with a snapshot:    {with_[1] * 1000:8.1f} ms (of it verifying {with_[0] * 1000:.1f}) = {with_[1] / without[1]:.3f} x"
        )
        print(
            f"writing one:             {keeping * 1000:8.1f} ms, once per {2000} records, off the event loop"
        )
    look_for_room()


def look_for_room() -> None:
    """What a turn with a view of 100 turns pays before each model call, and for a plan."""
    from holdfast.session.evolve.fold import evolve, initial

    state = initial(SESSION, INSTANCE)
    events = [each for each in story(500) if not isinstance(each, Compacted)]
    for seq, event in enumerate(events[:-2], 1):
        state = evolve(state, event, seq=seq, at=0)
    turn = next(iter(state.turns.values()))
    start = time.perf_counter()
    for _ in range(100):
        view_tokens(turn, 1000)
    looking = (time.perf_counter() - start) / 100
    start = time.perf_counter()
    for _ in range(20):
        plan_for_turn(state, turn, tokens=20_000, goal=5_000, keep_turns=4)
    planning = (time.perf_counter() - start) / 20
    print(
        f"looking for room before a call: {looking * 1000:.3f} ms; planning a compaction: {planning * 1000:.3f} ms"
    )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
