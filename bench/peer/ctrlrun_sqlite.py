"""
CTRLRun on SQLite: it gates actions and keeps a receipt of each, and has no conversations. So an
append is an allowed action, which is recorded, and a pause is an action that asks a person.

BENCH_SYNCHRONOUS=FULL has every commit reach the disk; its own default is NORMAL, which does not.
"""

import asyncio
import os
import sqlite3

from work import (
    APPENDS,
    LENGTHS,
    NOT_OFFERED,
    PARKED,
    TEXT,
    imported,
    main,
    many,
    median_us,
    on_disk,
    ran,
    timed,
)


def imports():
    import ctrlrun  # noqa: F401


imported(imports)

import ctrlrun  # noqa: E402

SYNCHRONOUS = os.environ.get("BENCH_SYNCHRONOUS", "NORMAL")
POLICY = """
schema: ctrlrun.policy/v2
actions:
  message.say:
    effect: "say:{number}"
    rules:
      - decision: allow
  service.restart:
    effect: "restart:{number}"
    rules:
      - decision: approve
"""


class Store(ctrlrun.SQLiteStateStore):
    """Its own store. Each connection gets the level of durability that is asked for."""

    level = SYNCHRONOUS

    def _connection(self):
        connection = super()._connection()
        if getattr(self._local, "level", None) != self.level:
            connection.execute(f"PRAGMA synchronous={self.level}")
            self._local.level = self.level
        return connection


class Gate:
    def __init__(self, folder):
        self.path = folder / "state.db"
        self.store = Store(self.path)
        policy = folder / "ctrlrun.yaml"
        policy.write_text(POLICY)
        control = ctrlrun.Control(ctrlrun.Policy.from_file(policy), self.store)
        self.count = 0

        @ctrlrun.protect("message.say", effect="say:{number}", control=control)
        def say(number: int, text: str) -> str:  # noqa: ARG001  it names the effect
            return text

        @ctrlrun.protect("service.restart", effect="restart:{number}", control=control)
        def restart(number: int) -> str:
            ran()
            return f"{number} is up"

        self.restart, self._say = restart, say

    def append(self):
        self.count += 1
        number = self.count  # each has an effect of its own; a repeated one would be refused
        with ctrlrun.context(agent="ops"):
            self._say(number=number, text=TEXT)

    def lay_down(self, length):
        """Without waiting for the disk: what is measured comes after it."""
        self.store.level = "OFF"
        while self.count < length:
            self.append()
        self.store.level = SYNCHRONOUS

    def bytes(self):
        """What its database takes, without the log that SQLite writes ahead of it."""
        with sqlite3.connect(self.path) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return on_disk(self.path.parent)

    def ask(self, number):
        try:
            with ctrlrun.context(agent="ops"):
                self.restart(number=number)
        except ctrlrun.ApprovalRequired as pending:
            return pending.request_id
        raise AssertionError("it ran without being asked for")


def work(folder):
    gate = Gate(folder)
    found = {"turn": {10: NOT_OFFERED, 1_000: NOT_OFFERED}, "load": NOT_OFFERED}
    found["append"] = {}
    for length in LENGTHS:
        gate.lay_down(length)
        found["append"][length] = median_us([timed(gate.append) for _ in range(APPENDS)])
    before = gate.bytes()
    requests = []
    found["pause"] = median_us(
        [timed(lambda number=number: requests.append(gate.ask(number))) for number in range(PARKED)]
    )
    found["parked_bytes"] = (gate.bytes() - before) / PARKED
    found["list"] = NOT_OFFERED  # its command line lists receipts, not the requests that wait
    (folder / "request").write_text(requests[0])
    found["many"] = asyncio.run(crowd(gate))
    with sqlite3.connect(gate.path) as db:
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
    found["durability"] = f"SQLite, journal_mode={mode}, synchronous={SYNCHRONOUS}" + (
        "; several commits for each action"
        if SYNCHRONOUS == "FULL"
        else "; a power cut may take the last commits"
    )
    return found


async def crowd(gate):
    """Its calls block, so each runs in a thread. They share the database, not a session."""
    return await many(lambda _: asyncio.to_thread(gate.append))


def resume(folder):
    gate = Gate(folder)
    request = (folder / "request").read_text()
    gate.store.grant_approval(request, "alice")
    with ctrlrun.context(agent="ops"), ctrlrun.with_approval(request):
        gate.restart(number=0)


if __name__ == "__main__":
    main(work, resume)
