"""
One run's stream over one connection: the session's frames, translated, until the turn ends or waits
for people. A run that ends otherwise (a revoked token, a stopping server) ends as an error.
"""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.gateway.agui.protocol import RunError, RunEvent, event_frame
from holdfast.gateway.agui.run_events import RunEvents
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.frames import sent_in_frame
from holdfast.gateway.streams.registry import LOOK_AGAIN_SECONDS
from holdfast.gateway.streams.session_tail import SessionStream, SessionTail
from holdfast.ids import TurnId
from holdfast.runtime.reports.types import TurnReport

_FINISHED = "finished"
Standing = Callable[[TurnId], Awaitable[TurnReport]]


class RunStream(SessionStream):
    def __init__(
        self, tail: SessionTail, bearer: Bearer, cursor: int, *, run: RunEvents, standing: Standing
    ) -> None:
        super().__init__(tail, bearer, cursor)
        self._run = run
        self._standing = standing
        self._has_ending = False

    async def read(self) -> bytes:
        if self._has_ending:  # it was sent, and the client had its own time to take it
            self.end(_FINISHED)
            return b""
        events: list[RunEvent] = []
        for frame in await self.next_frames():
            events += self._run.hear(sent_in_frame(frame))
            if self._run.is_over:
                break
        if self.has_caught_up and not self._run.is_over:
            events += self._run.caught_up()
            if self._run.is_parked and not self._run.is_over:
                events += await self._pause()
        self._has_ending = self._run.is_over
        if self._has_ending:
            self.wake.set()
        return b"".join(event_frame(each) for each in events)

    async def _pause(self) -> list[RunEvent]:
        """
        A parked turn waits for people, or for its delegates. Their prompts are in other journals,
        so look again after a moment.
        """
        report = await self._standing(self._run.turn)
        if report.outcome != "waiting":
            asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, self.wake.set)
            return []
        mine = [
            each
            for each in report.approvals
            if self.bearer.is_concerned(
                each.audience, each.boundary, (each.requester, *each.may_answer)
            )
        ]
        if not mine:
            return self._run.fail("waiting", "the turn waits for other people")
        return self._run.interrupt(mine, person=self.bearer.person)

    @property
    def closing(self) -> bytes:
        if self.ended == _FINISHED:
            return b""
        reason = self.ended or "stopping"
        message = f"the stream ended ({reason}); the turn goes on, and the same run shows it"
        return event_frame(RunError(code=reason, message=message))
