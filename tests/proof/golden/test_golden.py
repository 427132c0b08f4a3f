"""
Journals of every released version replay to the same state (case 49).

`session_v1.jsonl` is one journal with every event type of version 1: each line has the record as
stored, what it means, and the state it leads to. The file is never regenerated after a
release (decision 27). A new event type or
version gets a line in a new file; a changed reading of an old line is a bug, whatever the reason.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from proof.scenarios.pure_session import INSTANCE, SESSION

from holdfast.session.codec import EVENT_TYPES, UPCASTS, VERSIONS, decode, encode
from holdfast.session.evolve.fold import evolve, fold, initial

HERE = Path(__file__).parent
JOURNALS = sorted(HERE.glob("session_v*.jsonl"))

_spec = importlib.util.spec_from_file_location("golden_summary", HERE / "summary.py")
assert _spec is not None
assert _spec.loader is not None
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)


def lines(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_every_event_type_and_version_has_a_golden_record() -> None:
    """One that lacks it could change its meaning unseen."""
    kept = {(line["type"], line["version"]) for journal in JOURNALS for line in lines(journal)}
    assert kept == {
        (name, version) for name in EVENT_TYPES for version in range(1, VERSIONS[name] + 1)
    }


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_every_record_still_means_what_it_meant(journal: Path) -> None:
    for line in lines(journal):
        event = decode(line["type"], line["version"], line["body"].encode())
        found = golden.facts(event)
        assert {name: found[name] for name in line["event"]} == line["event"]


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_every_record_still_leads_to_the_state_it_led_to(journal: Path) -> None:
    state = initial(SESSION, INSTANCE)
    for line in lines(journal):
        state = evolve(
            state,
            decode(line["type"], line["version"], line["body"].encode()),
            seq=line["seq"],
            at=line["at"],
        )
        assert json.loads(json.dumps(golden.summary(state))) == line["fold"], line["seq"]


def test_version_1_is_still_written_byte_for_byte() -> None:
    """Unless the version went up, what we write is what is in the file."""
    for line in lines(HERE / "session_v1.jsonl"):
        if VERSIONS[line["type"]] == 1:
            event = decode(line["type"], 1, line["body"].encode())
            assert encode(event) == (line["type"], 1, line["body"].encode())


def test_every_older_version_has_a_step_up() -> None:
    assert set(UPCASTS) == {
        (name, version) for name in EVENT_TYPES for version in range(1, VERSIONS[name])
    }


def test_the_golden_journal_replays_as_one() -> None:
    events = [
        (line["seq"], line["at"], decode(line["type"], line["version"], line["body"].encode()))
        for line in lines(HERE / "session_v1.jsonl")
    ]
    state = fold(initial(SESSION, INSTANCE), events)
    assert (state.seq, state.turns, state.queued) == (len(events), {}, ())
