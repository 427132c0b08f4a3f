"""
Check a session's stored records, and nothing else, after any faults of the processes that wrote
them.

`check_history` folds them and checks every promise of `checkers/promises.py`. It also checks that
there is no gap, times never fall, drivers' epochs rise, a call that must not run twice started at
most once, and every call has one result once its turn has ended. It raises `PromiseBroken`, or
returns the history.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.home.layout import HOME_SESSION
from holdfast.errors import Refused
from holdfast.ids import InstanceId, SessionId
from holdfast.journal.record import read_unverified
from holdfast.journal.verify import Verdict
from holdfast.ports.journal_store import Record
from holdfast.session.codec import decode
from holdfast.session.evolve.fold import evolve, initial
from holdfast.session.react import react
from holdfast.session.state import SessionState
from proof.checkers.promises import Watcher
from proof.checkers.states import hold

_OF_THE_FILES = frozenset(
    {"segment_opened", "segment_closed"}
)  # they describe segments, not the session


class CheckedRecord(NamedTuple):
    """The fields of one record that these checks need."""

    seq: int
    at: int
    epoch: int
    writer: str
    type: str
    body: dict[str, Any]


class History(NamedTuple):
    verdict: Verdict
    entries: tuple[CheckedRecord, ...]
    state: SessionState
    owes: tuple[str, ...]
    home_is_sealed: bool = (
        False  # then nothing of the session continues, even if its own journal is intact
    )

    def of(self, kind: str) -> list[CheckedRecord]:
        return [each for each in self.entries if each.type == kind]

    def outcomes(self) -> list[str]:
        return [each.body["outcome"] for each in self.of("call_finished")]


async def read_history(home: Path, session: str) -> History | None:
    """
    Verify, fold and check the records. Return None if the session does not exist. Changes nothing
    except the repairs of opening.
    """
    store = await FileStore.open_existing(home)
    if store is None:
        return None
    try:
        name = SessionId(session)
        try:
            verdict = await store.verify_session(name)
            journal = await store.open(name)
        except Refused as exc:
            if exc.code != "unknown":
                raise
            return None
        records: list[Record] = []
        await journal.load(records.append)
        instance, of_the_files = journal.instance, _answered_by_files(map(Path, journal.where()))
        await journal.close()
        told = check_history(verdict, name, instance, records, of_the_files)
        return told._replace(home_is_sealed=(await store.verify_session(HOME_SESSION)).sealed)
    finally:
        await store.close()


def check_history(
    verdict: Verdict,
    session: SessionId,
    instance: InstanceId,
    records: Iterable[Record],
    of_the_files: Collection[int] = frozenset(),
    *,
    disbelieved_until: int = 0,
) -> History:
    """
    `of_the_files` are the numbers of records that a store keeps to itself, since they tell of its
    segments alone. `disbelieved_until`: see `Watcher`.
    """
    entries: list[CheckedRecord] = []
    watcher = Watcher(disbelieved_until=disbelieved_until)
    state = initial(session, instance)
    for record in records:
        body = msgspec.json.decode(record.body)
        entry = CheckedRecord(record.seq, record.at, record.epoch, record.writer, record.type, body)
        if entries:
            missing = set(range(entries[-1].seq + 1, entry.seq)).difference(of_the_files)
            hold(
                "D2",
                entry.seq > entries[-1].seq and not missing,
                f"after record {entries[-1].seq} comes {entry.seq}",
            )
            hold("D7", entry.at >= entries[-1].at, f"time falls at record {entry.seq}")
            hold("C1", entry.epoch >= entries[-1].epoch, f"the epoch falls at record {entry.seq}")
        entries.append(entry)
        if record.type in _OF_THE_FILES:
            continue
        event = decode(record.type, record.version, record.body, seq=record.seq)
        state = evolve(state, event, seq=record.seq, at=record.at)
        watcher.saw(event, state, seq=record.seq, at=record.at)
    _check_starts(entries)
    return History(
        verdict, tuple(entries), state, tuple(type(effect).__name__ for effect in react(state))
    )


def _answered_by_files(paths: Iterable[Path]) -> set[int]:
    """
    Return the seqs of records that only describe segments. A store need not hand them out, so they
    are read from disk.
    """
    lines = (
        read_unverified(line)
        for path in paths
        for line in path.read_bytes().splitlines(keepends=True)
    )
    return {line.seq for line in lines if line is not None and line.type in _OF_THE_FILES}


def _check_starts(entries: list[CheckedRecord]) -> None:
    once: set[str] = set()
    for entry in entries:
        if entry.type == "tool_started" and entry.body.get("contract", "once") == "once":
            hold("T2", entry.body["call"] not in once, f"{entry.body['call']} is started twice")
            once.add(entry.body["call"])
