"""External turns and their items for synchronous code: each verb waits for its result."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.home import Approval, Turn
from holdfast.runtime.external_loop.gate import Ended, Gate, LoopAnswer, LoopCall
from holdfast.runtime.external_loop.items import Item, Items
from holdfast.runtime.external_loop.turn import ExternalTurn
from holdfast.session.view.messages import Usage

T = TypeVar("T")


def made_in_loop(make: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    """Make a value in the home's own event loop."""

    async def made() -> T:
        return make()

    return made


class BlockingTurn:
    """`ExternalTurn`, for synchronous code."""

    def __init__(
        self, turn: ExternalTurn, do: Callable[[Callable[[], Awaitable[Any]]], Any]
    ) -> None:
        self._turn, self._do = turn, do
        self.turn = turn.turn

    @property
    def session(self) -> str:
        return self._turn.session

    @property
    def is_over(self) -> bool:
        return self._turn.is_over

    @property
    def approvals(self) -> tuple[Approval, ...]:
        return self._turn.approvals

    def report(self) -> Turn:
        report: Turn = self._do(self._turn.report)
        return report

    def gates(self) -> tuple[Gate, ...]:
        gates: tuple[Gate, ...] = self._do(self._turn.gates)
        return gates

    def answers(self, *, adapter: str | None = None) -> tuple[LoopAnswer, ...]:
        answers: tuple[LoopAnswer, ...] = self._do(lambda: self._turn.answers(adapter=adapter))
        return answers

    def said(
        self,
        text: str = "",
        calls: Sequence[LoopCall] = (),
        *,
        usage: Usage | None = None,
        model: str | None = None,
        blob: bytes | str | None = None,
        adapter: str | None = None,
    ) -> tuple[Gate, ...]:
        gates: tuple[Gate, ...] = self._do(
            lambda: self._turn.said(
                text, calls, usage=usage, model=model, blob=blob, adapter=adapter
            )
        )
        return gates

    def gate(
        self,
        tool: str,
        arguments: Mapping[str, Any] | str,
        *,
        id: str | None = None,  # noqa: A002  # the field's name
        text: str = "",
        may_repeat: bool = False,
    ) -> Gate:
        gate: Gate = self._do(
            lambda: self._turn.gate(tool, arguments, id=id, text=text, may_repeat=may_repeat)
        )
        return gate

    def look(self, gate: Gate | str) -> Gate:
        found: Gate = self._do(lambda: self._turn.look(gate))
        return found

    def wait(self, gate: Gate | None = None) -> Gate:
        answered: Gate = self._do(lambda: self._turn.wait(gate))
        return answered

    def start(self, gate: Gate) -> Gate:
        started: Gate = self._do(lambda: self._turn.start(gate))
        return started

    def call(
        self,
        gate: Gate,
        run: Callable[[Any], Any],
        *,
        timeout_seconds: float | None = None,
        pauses: tuple[type[BaseException], ...] = (),
    ) -> Gate:
        """Like `ExternalTurn.call`; `run` is called in a thread of its own."""
        ended: Gate = self._do(
            lambda: self._turn.call(
                gate,
                lambda arguments: asyncio.to_thread(run, arguments),
                timeout_seconds=timeout_seconds,
                pauses=pauses,
            )
        )
        return ended

    def run(self, gate: Gate) -> Gate:
        ended: Gate = self._do(lambda: self._turn.run(gate))
        return ended

    def until_closed(self, gate: Gate) -> Gate:
        closed: Gate = self._do(lambda: self._turn.until_closed(gate))
        return closed

    def drop(self, gate: Gate, reason: str) -> Gate:
        dropped: Gate = self._do(lambda: self._turn.drop(gate, reason))
        return dropped

    def record(
        self,
        gate: Gate,
        outcome: Ended,
        text: str,
        *,
        blob: bytes | str | None = None,
        adapter: str | None = None,
    ) -> None:
        self._do(lambda: self._turn.record(gate, outcome, text, blob=blob, adapter=adapter))

    def keep(self, blob: bytes | str, *, adapter: str) -> None:
        self._do(lambda: self._turn.keep(blob, adapter=adapter))

    def kept(self, adapter: str) -> bytes | None:
        found: bytes | None = self._do(lambda: self._turn.kept(adapter))
        return found

    def child(self, gate: Gate, *, agent: str) -> "BlockingTurn":
        nested = self._do(made_in_loop(lambda: self._turn.child(gate, agent=agent)))
        return BlockingTurn(nested, self._do)

    def finish(self, reply: str) -> Turn:
        ended: Turn = self._do(lambda: self._turn.finish(reply))
        return ended

    def fail(self, code: str, message: str) -> Turn:
        ended: Turn = self._do(lambda: self._turn.fail(code, message))
        return ended

    def leave(self) -> None:
        self._do(self._turn.leave)


class BlockingItems:
    """`Items`, for synchronous code."""

    def __init__(self, items: Items, do: Callable[[Callable[[], Awaitable[Any]]], Any]) -> None:
        self._items, self._do = items, do

    def add(self, blob: bytes | str, *, key: str = "") -> int:
        seq: int = self._do(lambda: self._items.add(blob, key=key))
        return seq

    def add_all(self, items: Sequence[tuple[str, bytes | str]]) -> tuple[int, ...]:
        seqs: tuple[int, ...] = self._do(lambda: self._items.add_all(items))
        return seqs

    def list(self, key: str | None = None) -> tuple[Item, ...]:
        found: tuple[Item, ...] = self._do(lambda: self._items.list(key))
        return found

    def keys(self) -> tuple[tuple[int, str], ...]:
        found: tuple[tuple[int, str], ...] = self._do(self._items.keys)
        return found

    def remove(self, items: Sequence[int]) -> None:
        self._do(lambda: self._items.remove(items))

    def clear(self) -> None:
        self._do(self._items.clear)
