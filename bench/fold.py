"""
How fast a session's history is folded: events per second through decode and evolve, against msgspec's decoding of the same bodies alone.

The ratio is what counts: 150,000 events/s where msgspec decodes 700,000 such bodies/s, so about 0.21. `python -m bench.fold`
"""

import gc
import time
from collections.abc import Callable

from holdfast.session.codec import EVENT_TYPES, decode
from holdfast.session.evolve import fold, initial
from holdfast.testing.pure_session import LIFE, SESSION, Stored
from holdfast.testing.scenarios import Teller

TURNS = 400
RATIO_WANTED = 150_000 / 700_000
ROUNDS = 7


def realistic_session(turns: int = TURNS) -> list[Stored]:
    """Turns of a few model calls with tools that look and, in every fourth turn, one that asks; compacted now and then."""
    teller = Teller()
    pure = teller.pure
    teller._say_events = lambda _before: None  # type: ignore[method-assign]  # telling is not what is measured
    for number in range(turns):
        teller.tell([f'submit "look into ticket {number}, and say what you find in a sentence or two" dedup=k{number}', "go"])
        for step in range(3):
            teller.tell([f'calls "look at=ticket-{number}-{step} depth={step}" "look at=log-{number}-{step} lines=200"', "go"])
        if number % 4 == 0:
            teller.tell([f'calls "delete branch=b{number}"', "decide", "park"])
            (approval,) = pure.state.approvals
            pure.answer(approval, "approve_once", "alice")
            teller.tell(["go"])
        teller.tell([f'says "Ticket {number} is about a service that was restarted twice during the night; nothing is wrong with it now."'])
        if len(pure.state.view.entries) > 40:
            teller.tell(['compact 30 "tickets were looked into"'])
    return pure.records


def best_seconds(work: Callable[[], object]) -> float:
    """The best of several rounds: the one least disturbed by everything else on the machine."""
    found = []
    gc.collect()
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def measure() -> tuple[float, float]:
    """(events folded per second, bodies decoded per second)."""
    import msgspec

    records = realistic_session()
    decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in EVENT_TYPES.items()}
    pairs = [(decoders[each.type], each.body) for each in records]

    def decode_alone() -> None:
        for decoder, body in pairs:
            decoder(body)

    def decode_and_fold() -> None:
        fold(initial(SESSION, LIFE), ((seq, each.at, decode(each.type, each.version, each.body, seq=seq)) for seq, each in enumerate(records, 1)))

    return len(records) / best_seconds(decode_and_fold), len(records) / best_seconds(decode_alone)


def main() -> None:
    folded, decoded = measure()
    verdict = "reached" if folded / decoded >= RATIO_WANTED else "missed"
    print(
        f"fold: {folded:,.0f} events/s; msgspec alone decodes {decoded:,.0f}/s; ratio {folded / decoded:.3f} (wanted {RATIO_WANTED:.3f}: {verdict})"
    )


if __name__ == "__main__":
    main()
