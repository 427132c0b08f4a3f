"""People's decisions about calls, and the results of the calls."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.ids import ApprovalId, SessionId
from holdfast.runtime.reports import session_list
from holdfast.runtime.runtime import Runtime

if TYPE_CHECKING:
    from holdfast.runtime.reports.decisions import DecisionReport, DecisionsPage


class DecisionVerbs:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(
        self,
        lines: Sequence[session_list.SessionLine],
        *,
        wanted: "Callable[[DecisionReport], bool]",
        limit: int,
        after: str | None = None,
        since: str | None = None,
    ) -> "DecisionsPage":
        """Return one page of people's decisions in these sessions, newest first."""
        from holdfast.runtime.reports.decisions import decisions

        return await decisions(
            self._runtime.world, lines, wanted=wanted, limit=limit, after=after, since=since
        )

    async def outcome(self, session: SessionId, approval: ApprovalId) -> "DecisionReport | None":
        """Return the answer to a prompt and the result of its call."""
        from holdfast.runtime.reports.decisions import decisions_of

        every = await decisions_of(self._runtime.world, session)
        return next((each for each in every if each.id == approval), None)
