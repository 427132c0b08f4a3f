"""
Questions that a server of the older wire asks inside of an open call (`elicitation/create`).

The call stays open, and its time stands still, until a person has answered or nobody will.
`decline` is a person's own word. Everything else that is not an answer is `cancel`, at once, so a
server does not wait for a time-out. Only questions beyond a bound get no answer at all.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from holdfast.adapters.mcp.connection import QUESTION, NeverSent, OnQuestion, ReplyLost
from holdfast.adapters.mcp.messages import FromServer, write_answer, write_result
from holdfast.adapters.mcp.replies.forms import NotAskable, input_wanted, members_of
from holdfast.limits import MCP_INPUT_ROUNDS_MAX
from holdfast.ports.tools import AskPerson, ToolReturned
from holdfast.secrecy import Secret
from holdfast.session.view.safe_text import render_line

CANCEL: dict[str, Any] = {"action": "cancel"}
_KEY = "question"
_QUESTIONS_MAX = 64  # that are taken from one call, asked or not
_WHY_CHARS_MAX = 300


class Questions:
    """The questions of one call, answered by a person if there is one to ask."""

    def __init__(self, tool: str, secrets: tuple[Secret, ...], ask: AskPerson | None) -> None:
        self._tool, self._secrets, self._ask = tool, secrets, ask
        self._asked = 0
        self._notes: dict[str, None] = {}

    async def answer(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result for one question."""
        request = {"method": QUESTION, "params": params}
        asks = {"inputRequests": {_KEY: request}}
        try:
            wants = input_wanted(self._tool, asks, self._secrets, is_inside=True)
        except NotAskable as exc:
            return self._cancelled(str(exc))
        self._asked += 1
        if self._ask is None:
            return self._cancelled("nobody can be asked here")
        if self._asked > MCP_INPUT_ROUNDS_MAX:
            return self._cancelled(f"it asked {self._asked} times, which is more than its bound")
        said = await self._ask(wants)
        if said.declined:
            return {"action": "decline"}
        if said.filled is None:
            return self._cancelled(said.why)
        filled: dict[str, Any] = members_of(said.filled)["inputResponses"][_KEY]
        return filled

    def _cancelled(self, why: str) -> dict[str, Any]:
        text = render_line(why[:_WHY_CHARS_MAX]).text
        self._notes[f"(its server asked for input and got no answer: {text})"] = None
        return CANCEL

    def noted(self, returned: ToolReturned) -> ToolReturned:
        """Say beside the result which questions had no answer, and why."""
        text = "\n".join((returned.text, *self._notes))
        return msgspec.structs.replace(returned, text=text) if self._notes else returned


class AskableCalls:
    """The open calls of one connection, for a question that does not name its call."""

    def __init__(self) -> None:
        self._open: list[OpenQuestions] = []

    @contextlib.asynccontextmanager
    async def during(self, questions: "OpenQuestions") -> AsyncGenerator[None, None]:
        self._open.append(questions)
        try:
            yield
        finally:
            self._open.remove(questions)
            await questions.close()

    def take(self, request: FromServer) -> bytes | None:
        """
        Return the answer to a server's request, or None if a call takes it. If several calls are
        open, nobody knows whose people a question is for, and nobody is asked.
        """
        if request.method != QUESTION or not self._open:
            return write_answer(request)
        if len(self._open) > 1:
            return write_result(request, CANCEL)
        self._open[0].take(request)
        return None


class OpenQuestions:
    """
    The questions that are open inside of one request. `send` writes a message to the server. The
    request's time-out counts only while none is open.
    """

    def __init__(
        self,
        on_question: OnQuestion | None,
        send: Callable[[bytes], Awaitable[None]],
        limit: asyncio.Timeout,
    ) -> None:
        self._on_question, self._send, self._limit = on_question, send, limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: set[int | str | None] = set()  # a resumed stream may repeat a question
        self._left = 0.0  # of the time-out, while a question is open

    def take(self, request: FromServer) -> None:
        """Answer the question in a task of its own. A flood of questions gets no answer."""
        if request.id in self._seen or len(self._seen) >= _QUESTIONS_MAX:
            return
        self._seen.add(request.id)
        loop = asyncio.get_running_loop()
        if not self._tasks and (ends_at := self._limit.when()) is not None:
            self._left = ends_at - loop.time()
            self._limit.reschedule(None)
        task = loop.create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._answered)

    async def _answer(self, request: FromServer) -> None:
        answer = write_answer(request)
        if request.method == QUESTION and self._on_question is not None:
            answer = write_result(request, await self._on_question(request.params))
        with contextlib.suppress(NeverSent, ReplyLost):  # the call itself meets that too
            await self._send(answer)

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not self._tasks and not self._limit.expired() and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)

    async def close(self) -> None:
        """The request is over. Nothing more is asked or sent."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
