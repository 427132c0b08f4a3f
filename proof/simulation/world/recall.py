"""
Memory in a simulation: a canary appears only in requests of its own boundary, nobody outside reads
a recalled item, and a failing memory is reported.

Labels are compared here independently, as stored, and not by the functions that the runtime filters
with.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.ids import SessionId
from holdfast.session.features.memory.items import MemoryItem
from proof.checkers.history import CheckedRecord, History
from proof.checkers.states import hold
from proof.simulation.home import SimulatedHome
from proof.simulation.world.memory import PLACED, Label, SimulatedSearch, is_of
from proof.simulation.world.people import tag


def check_memory(home: SimulatedHome, histories: Mapping[SessionId, History]) -> None:
    _check_shown(home, histories)
    _check_kept(home, histories)
    for history in histories.values():
        for entry in history.of("memory_recalled"):
            _check_readers(history, entry)
        _check_degraded(history, home.searches)


def _check_shown(home: SimulatedHome, histories: Mapping[SessionId, History]) -> None:
    """M1: every remembered item that a model was shown was for the requester of that turn."""
    for shown in home.shown:
        hold(
            "M1", shown.session is not None, f"a request of no turn holds {sorted(shown.canaries)}"
        )
        history = histories.get(SessionId(shown.session or ""))
        if history is None:
            continue  # an outsider changed its journal, so the turn's label is unknown
        reader_set = _reader_set(_context(history, str(shown.turn)))
        foreign = sorted(each for each in shown.canaries if not is_of(PLACED[each], reader_set))
        hold(
            "M1",
            not foreign,
            f"{shown.session} {shown.turn}, for {reader_set}, was shown {foreign}",
        )


def _check_kept(home: SimulatedHome, histories: Mapping[SessionId, History]) -> None:
    """A1: a turn stores memory items under its own label only."""
    for body, _ in home.disk.memory.values():
        item = msgspec.json.decode(body, type=MemoryItem)
        history = histories.get(item.session)
        if history is not None:
            reader_set = _reader_set(_context(history, item.turn))
            hold(
                "A1",
                is_of((item.audience, item.boundary, item.person), reader_set),
                f"{item.session} {item.turn} remembered for {item.boundary}",
            )


def _check_readers(history: History, recalled: CheckedRecord) -> None:
    """M1: everybody who took part in the session by then may see the recalled items."""
    context = _context(history, recalled.body["turn"])
    reader_set = _reader_set(context)
    hold(
        "M1",
        context["provenance"]["kind"] != "delegate",
        f"{history.state.session}: a delegate recalls, and does not know who reads",
    )
    outsiders = _outsiders(history, reader_set, recalled.seq)
    hold(
        "M1",
        not outsiders,
        f"{history.state.session}: {outsiders} read what was recalled for {reader_set}",
    )
    for item in recalled.body.get("items", ()):
        hold(
            "M1",
            is_of((item["audience"], item["boundary"], item["person"]), reader_set),
            f"{history.state.session}: {reader_set} was given {item['memory']}",
        )


def _check_degraded(history: History, searches: list[SimulatedSearch]) -> None:
    """
    A memory without an answer in time is reported as degraded, and one with an answer is not. If
    outsiders could read by then, nothing is recalled or reported.
    """
    tags = {
        each.body["input"]: tag(each.body.get("dedup") or "-")
        for each in history.of("input_accepted")
    }
    asked = {
        each.body["turn"]: each.seq for each in reversed(history.of("model_call_started"))
    }  # the first of each
    recalled = {each.body["turn"]: each.body for each in history.of("memory_recalled")}
    for started in history.of("turn_started"):
        turn, words = started.body["turn"], {tags[name] for name in started.body["inputs"]}
        mine = [each for each in searches if words & set(each.words)]
        if (
            not mine
            or turn not in asked
            or _outsiders(history, _reader_set(_context(history, turn)), asked[turn])
        ):
            continue
        body = recalled.get(turn, {})
        degraded = body.get("degraded") is not None
        hold(
            "M1",
            degraded or any(each.answered for each in mine),
            f"{history.state.session} {turn}: its memory failed, and nobody says so",
        )
        hold(
            "M1",
            not degraded or not all(each.answered for each in mine),
            f"{history.state.session} {turn}: its memory is said to have failed",
        )


def _outsiders(history: History, reader_set: Label, seq: int) -> list[str]:
    """
    Return the people who took part in the session before that record and may not see this label. A
    person who may answer a prompt takes part in the boundary that asks.
    """
    spoke = [
        _reader_set(each.body["context"])
        for each in history.of("input_accepted")
        if each.seq < seq and each.body.get("kind") != "job"
    ]
    asked = [
        (*_reader_set(_context(history, each.body["turn"]))[:2], person)
        for each in history.of("approval_requested")
        if each.seq < seq
        for person in each.body["may_answer"]
    ]
    others = [each for each in (*spoke, *asked) if each[2] is not None]
    members = (
        {each[2] for each in others if each[:2] == reader_set[:2]}
        if reader_set[0] == "team"
        else {reader_set[2]}
    )
    return sorted({str(each[2]) for each in others} - members)


def _context(history: History, turn: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        each.body["context"] for each in history.of("input_accepted") if each.body["turn"] == turn
    )
    return found


def _reader_set(context: Mapping[str, Any]) -> Label:
    return context["audience"], context["boundary"], context["requester"]
