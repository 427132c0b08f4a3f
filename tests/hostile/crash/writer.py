"""
A process to be killed, or to be lied to by the disk: it creates a home and a session, appends,
rotates, and says what it was told.

    python writer.py HOME COUNT [SEGMENT_BYTES]      lines on stdout: born, ack N, not_saved N, in_doubt N, refused N CODE, done
"""

import asyncio
import os
import sys
from pathlib import Path

from holdfast.adapters.files import FileStore
from holdfast.errors import HoldfastError, InDoubt, NotSaved, Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Check, Draft

OPS = SessionId("ops/api")


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")  # at once, by a call that no test injects faults into


def note(number: int) -> Draft:
    return Draft("note", 1, b'{"n":%d,"pad":"%s"}' % (number, b"x" * 300))


async def main(home: Path, count: int, segment_bytes: int) -> None:
    store = await FileStore.open_home(home, segment_bytes=segment_bytes)
    try:
        journal = await store.open(OPS)
    except Refused:
        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
    say("born")
    claim = await journal.claim()
    epoch = claim.epoch if claim else None
    for number in range(count):
        try:
            check = Check.FENCE if number % 3 == 0 else Check.SHORT
            journal.append_now(
                lambda _, number=number: [note(number)],
                since=journal.head,
                epoch=epoch,
                check=check,
            )
        except NotSaved:
            say(f"not_saved {number}")
        except InDoubt:
            say(f"in_doubt {number}")
            journal = await store.open(OPS)
        else:
            say(f"ack {number}")
    await journal.quarantine("reply", b'{"text":"kept"}')
    await journal.close()
    await store.close()
    say("done")


if __name__ == "__main__":
    try:
        asyncio.run(
            main(
                Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 2048
            )
        )
    except HoldfastError as exc:
        say(f"refused {exc.code} {exc}")
        sys.exit(exc.exit_code)
