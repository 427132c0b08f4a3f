"""
What was measured of us and of the others, as one table: pure, so that it can be tested without any
of them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bench.ground import told


class Peer(NamedTuple):
    title: str
    synced: bool = True
    """
    Whether what it acknowledges is on the disk: to be quicker than one that waits for the disk is
    no merit.
    """


OURS = Peer("Holdfast")
Found = dict[str, Any]

NOTES = (
    "Bold is the best of a row; where that one does not sync, the best of those that do is bold as well.",
    "Everyone keeps the defaults of the store that it brings.",
    "The disk's own write and fdatasync was measured just before each began, and for Holdfast in turns with its appends.",
    "append: one message more (DBOS: one step more of a running workflow) at the end of that many.",
    "Holdfast's are records of its journal, off the event loop, with a mac and an anchor; no other has either.",
    "turn: a message, a stand-in model that calls a tool, the tool, the model again.",
    "Holdfast journals who asked, the decision and the start of the tool before it runs; a DBOS workflow has no history that grows from turn to turn.",
    "pause: a new session, up to a tool that asks first; cold resume: from the start of a new process until that tool runs.",
    "The OpenAI SDK leaves keeping a paused state to the application, and so a list of them.",
    "disk: what the paused sessions take, divided by their number; one database packs many into fewer blocks than a folder each.",
    "CTRLRun gates actions and keeps no conversation: its append is an allowed action with its receipt, its pause an action that asks, in no session of its own.",
    "pi is the session manager of a coding agent alone: it keeps messages, the turns and the questions are the agent's; its import is that manager's.",
)


def table(found: dict[Peer, Found], sizes: dict[str, Any]) -> dict[str, Any]:
    """
    Rows of cells by column, what is left out and why, how durable each one is, and the lines of the
    picture.
    """
    measured = {peer: each for peer, each in found.items() if "left_out" not in each}
    named = {
        peer: f"{peer.title} {each.get('version', '')}".strip() for peer, each in measured.items()
    }
    rows = list(_rows(measured, sizes))
    return {
        "names": list(named.values()),
        "rows": [
            {"what": row.what, "cells": {named[peer]: cell for peer, cell in row.cells().items()}}
            for row in rows
        ],
        "goals": [goal for row in rows if (goal := row.against_goal()) is not None],
        "better": [line for row in rows if (line := row.better_than_ours())],
        "durability": {named[peer]: each.get("durability", "-") for peer, each in measured.items()},
        "left_out": {
            peer.title: each["left_out"] for peer, each in found.items() if "left_out" in each
        },
        "notes": list(NOTES),
        "series": _series(measured),
    }


class Row(NamedTuple):
    what: str
    values: dict[Peer, Any]
    tell: Callable[[float], str]
    best: Any = min
    """`min` or `max`, or None where there is nothing to win."""
    goal: float | None = None
    """How many times the best durable peer's value ours may be, or must be where more is better."""

    def cells(self) -> dict[Peer, str]:
        numbers = self._numbers(self.values)
        bold = set()
        if self.best is not None and len(numbers) > 1:
            synced = {peer: value for peer, value in numbers.items() if peer.synced}
            bold = {
                peer
                for each in (numbers, synced)
                if each
                for peer, value in each.items()
                if value == self.best(each.values())
            }
        said = {peer: self.tell(value) for peer, value in numbers.items()}
        said |= {peer: str(value) for peer, value in self.values.items() if isinstance(value, str)}
        return {peer: f"**{text}**" if peer in bold else text for peer, text in said.items()}

    def better_than_ours(self) -> str:
        """A line about whoever is ahead of us here, and nothing if nobody is."""
        numbers = self._numbers(self.values)
        if self.best is None or OURS not in numbers:
            return ""
        ahead = {
            peer: each
            for peer, each in numbers.items()
            if each != numbers[OURS] and self.best((each, numbers[OURS])) == each
        }
        names = ", ".join(f"{peer.title} {self.tell(each)}" for peer, each in ahead.items())
        return f"{self.what}: {names}; Holdfast {self.tell(numbers[OURS])}" if ahead else ""

    def against_goal(self) -> dict[str, Any] | None:
        """Ours against the best of those that sync, or None without a goal or without such a peer."""
        numbers = self._numbers(self.values)
        durable = {peer: each for peer, each in numbers.items() if peer.synced and peer != OURS}
        if self.goal is None or self.best is None or OURS not in numbers or not durable:
            return None
        peer = self.best(durable, key=lambda each: durable[each])
        ratio, is_more_better = numbers[OURS] / durable[peer], self.best is max
        return {
            "what": self.what,
            "ours": self.tell(numbers[OURS]),
            "peer": f"{peer.title}, {self.tell(durable[peer])}",
            "ratio": f"{ratio:.2f}",
            "goal": f"{'>=' if is_more_better else '<='} {self.goal:g} x",
            "reached": ratio >= self.goal if is_more_better else ratio <= self.goal,
        }

    @staticmethod
    def _numbers(values: dict[Peer, Any]) -> dict[Peer, float]:
        return {peer: value for peer, value in values.items() if isinstance(value, int | float)}


def _rows(found: dict[Peer, Found], sizes: dict[str, Any]) -> Iterable[Row]:
    def row(
        what: str,
        value: Callable[[Found], Any],
        tell: Callable[[float], str] = _duration,
        best: Any = min,
        goal: float | None = None,
    ) -> Row:
        return Row(what, {peer: value(each) for peer, each in found.items()}, tell, best, goal)

    yield row("import", lambda each: each.get("import"))
    for length in sizes["lengths"]:
        yield row(f"append at {length:,}", lambda each, n=length: _at(each, "append", n), goal=1.0)
    for length in sizes["turn_lengths"]:
        yield row(
            f"turn with one tool at {length:,} messages",
            lambda each, n=length: _at(each, "turn", n),
            goal={10: 0.45, 1_000: 0.09}.get(length),
        )
    yield row("load 1,000 messages", lambda each: each.get("load"), goal=0.8)
    yield row(
        f"{sizes['sessions']:,} sessions by {sizes['tasks']} tasks, appends a second",
        lambda each: each.get("many"),
        _rate,
        max,
        goal=4,
    )
    yield row("turn up to a pause", lambda each: each.get("pause"), goal=0.8)
    yield row("cold resume, new process to tool", lambda each: each.get("resume"))
    yield row(f"list what waits ({sizes['parked']:,})", lambda each: each.get("list"))
    yield row("disk a paused session", lambda each: each.get("parked_bytes"), _kib)
    yield row("the disk just before, write + fdatasync", lambda each: each.get("bare"), best=None)


def _at(found: Found, kind: str, length: int) -> Any:
    return found.get(kind, {}).get(str(length))


def _series(found: dict[Peer, Found]) -> dict[str, list[tuple[int, float]]]:
    """Appends by length of history, ours first, and the disk's own as a line of its own."""
    lines = {
        peer.title: sorted(
            (int(n), us) for n, us in each.get("append", {}).items() if not isinstance(us, str)
        )
        for peer, each in found.items()
    }
    bare = found.get(OURS, {}).get("bare")
    if bare is not None and lines[OURS.title]:
        lines["write + fdatasync alone"] = [(length, bare) for length, _ in lines[OURS.title]]
    return {name: line for name, line in lines.items() if line}


def _duration(microseconds: float) -> str:
    return told(microseconds / 1e6)


def _rate(value: float) -> str:
    return f"{value:,.0f}/s"


def _kib(size: float) -> str:
    return f"{size / 1024:.1f} KiB"
