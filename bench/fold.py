"""
How fast a session's history is folded: events per second through decode and evolve, against
msgspec's decoding of the same records alone.

A record is a line as stored: header, body, mac. msgspec reads the line and its typed body; a fold
reads the body and moves the state. The ratio is what counts: 150,000 events/s where msgspec decodes
700,000 such records/s, so about 0.21. `python -m bench.fold`
"""

import gc
import time
from collections.abc import Callable

import msgspec
from proof.scenarios.pure_session import INSTANCE, SESSION, Stored
from proof.scenarios.teller import Teller

from holdfast.session.codec import EVENT_TYPES, decode
from holdfast.session.evolve.fold import fold, initial

TURNS = 400
RATIO_WANTED = 150_000 / 700_000
ROUNDS = 9


def realistic_session(turns: int = TURNS) -> list[Stored]:
    """
    Turns of a few model calls with tools that look and, in every fourth turn, one that asks;
    compacted now and then.
    """
    teller = Teller()
    pure = teller.pure
    teller._say_events = lambda _before: None  # telling is not what is measured
    pure.tools_say = "\n".join(
        f"2026-11-16T02:{minute:02}:00Z api-{minute % 3} GET /v1/tickets 200 {minute * 7} ms"
        for minute in range(12)
    )
    for number in range(turns):
        teller.tell(
            [
                f'submit "look into ticket {number}, and say what you find in a sentence or two" dedup=k{number}',
                "go",
            ]
        )
        for step in range(3):
            teller.tell(
                [
                    f'calls "look at=ticket-{number}-{step} depth={step}" "look at=log-{number}-{step} lines=200"',
                    "go",
                ]
            )
        if number % 4 == 0:
            teller.tell([f'calls "delete branch=b{number}"', "decide", "park"])
            (approval,) = pure.state.approvals
            pure.answer(approval, "approve_once", "alice")
            teller.tell(["go"])
        teller.tell(
            [
                f'says "Ticket {number} is about a service that was restarted twice during the night; nothing is wrong with it now."'
            ]
        )
        if len(pure.state.view.entries) > 40:
            teller.tell(['compact 30 "tickets were looked into"'])
    return pure.records


class Line(msgspec.Struct):
    """A record as it is stored."""

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    version: int
    digest: str
    body: msgspec.Raw
    mac: str


def best_seconds(*works: Callable[[], object]) -> list[float]:
    """
    The best of several rounds of each, in turns: the one least disturbed by everything else on the
    machine. Processor time, not the wall's.
    """
    found: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for times, work in zip(found, works, strict=True):
            gc.collect()
            started = time.thread_time()
            work()
            times.append(time.thread_time() - started)
    return [min(times) for times in found]


def measure() -> tuple[float, float]:
    """(events folded per second, records decoded per second)."""
    records = realistic_session()
    lines = [
        msgspec.json.encode(
            Line(
                seq,
                each.at,
                3,
                "w-1234567890",
                each.type,
                each.version,
                "0" * 64,
                msgspec.Raw(each.body),
                "f" * 64,
            )
        )
        for seq, each in enumerate(records, 1)
    ]
    decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in EVENT_TYPES.items()}
    decode_line = msgspec.json.Decoder(Line).decode

    def decode_alone() -> None:
        for line in lines:
            record = decode_line(line)
            decoders[record.type](record.body)

    def decode_and_fold() -> None:
        fold(
            initial(SESSION, INSTANCE),
            (
                (seq, each.at, decode(each.type, each.version, each.body, seq=seq))
                for seq, each in enumerate(records, 1)
            ),
        )

    folding, decoding = best_seconds(decode_and_fold, decode_alone)
    return len(records) / folding, len(records) / decoding


def main() -> None:
    folded, decoded = measure()
    verdict = "reached" if folded / decoded >= RATIO_WANTED else "missed"
    print(
        f"fold: {folded:,.0f} events/s; msgspec alone decodes {decoded:,.0f}/s; ratio {folded / decoded:.3f} (wanted {RATIO_WANTED:.3f}: {verdict})"
    )


if __name__ == "__main__":
    main()
