"""The values that an external loop hands in and gets back: calls, gates and results."""

from typing import Any, Literal

import msgspec

from holdfast.ids import CallId
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.session.view.messages import Usage

Ended = Literal["ok", "error", "timed_out", "in_doubt"]
GateState = Literal["ready", "waiting", "run", "started", "closed"]


class LoopCall(msgspec.Struct, frozen=True):
    """
    A call that the loop's model made. `id` is the model's or the framework's own: the same id in
    the same turn is the same call. `may_repeat`: a pure call that may be made again and again, such
    as a poll.
    """

    id: str | None
    tool: str
    arguments: Any  # a mapping, or the JSON text that the model wrote
    may_repeat: bool = False


class LoopAnswer(msgspec.Struct, frozen=True):
    """An answer of the loop's model, as `said` recorded it."""

    text: str
    calls: tuple[str | None, ...]  # the caller's ids
    blob: bytes | None = None


class LoopResult(msgspec.Struct, frozen=True):
    """A tool's result: the text for the model, and the framework's own form of it."""

    text: str
    blob: bytes | str | None = None
    adapter: str | None = None  # required with a blob: its name and version, such as "langchain/1"


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """
    The decision about one call.

    | state | meaning |
    |---|---|
    | ready | it may start: hand it to `turn.call`, or to `turn.start` |
    | waiting | an approver must answer first |
    | run | `turn.start` made its start durable: run it now, once, and record the outcome |
    | started | it runs already, elsewhere in this loop |
    | closed | it has ended: `outcome`, `text` and `result` say how |
    """

    call: CallId
    id: str | None
    tool: str
    state: GateState
    text: str = ""  # if closed: the text for the model
    outcome: str | None = None
    code: str | None = None
    arguments: Any = None  # the arguments to run: validated, and perhaps edited by a person
    approval: ApprovalReport | None = None
    result: bytes | None = None  # if closed: the framework's own form of the result
    run: int = 0

    @property
    def may_start(self) -> bool:
        return self.state == "ready"

    @property
    def may_run(self) -> bool:
        """True only once the start is durable."""
        return self.state == "run"

    @property
    def waiting(self) -> bool:
        return self.state == "waiting"

    @property
    def closed(self) -> bool:
        return self.state == "closed"


NO_USAGE = Usage()
