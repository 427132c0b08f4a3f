"""
`POST /v1/agui`: one run. It sends the user's last message, or answers prompts, and then streams the
turn until it ends or waits for people.

The token decides everything: its person sends and answers, its scopes say whether it may, and its
audience says what it sees. A run that is repeated, with its own id or with a new one, never starts
a second turn: the message's id and the run's id are keys in the journal, and an answer has its id.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.agui.interrupts import answer_in_entry
from holdfast.gateway.agui.protocol import (
    PROTOCOL_VERSION,
    ResumeEntry,
    RunInput,
    RunStarted,
    event_frame,
)
from holdfast.gateway.agui.run_events import RunEvents
from holdfast.gateway.agui.run_stream import RunStream
from holdfast.gateway.http.context import Gateway
from holdfast.gateway.http.router import AnyRoute, ApiCall, StreamRoute, wrong_scope
from holdfast.gateway.http.schemas import KEY_CHARS_MAX, AnswerIn
from holdfast.gateway.routes.approvals import ApprovalRoutes
from holdfast.gateway.routes.sessions import SessionRoutes
from holdfast.gateway.routes.visibility import check_seen, may_see, unknown_approval
from holdfast.gateway.server.tokens import Bearer
from holdfast.gateway.streams.sse_response import SseResponse
from holdfast.ids import (
    ID_PART,
    ApprovalId,
    InstanceId,
    SessionId,
    TurnId,
    session_id,
    short_digest,
)
from holdfast.runtime.reports.types import ApprovalReport, TurnReport
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.messages import Quote

AGUI_PATH = "/v1/agui"
AGUI_CHANNEL = "agui"
# A client sends its whole history with every run, with every result of a tool in it.
RUN_BYTES_MAX = 8 * 1024 * 1024
CONTEXT_BYTES_MAX = 64 * 1024  # as much as a webhook may quote
_PAGE = "the page"


class _Head(NamedTuple):
    """A session before this run touched it."""

    instance: InstanceId | None
    seq: int
    inputs: int


class _Followed(NamedTuple):
    """The turn that a run shows; `restates` if parts of it may have been shown before."""

    turn: TurnId
    restates: bool


class AguiRoutes:
    def __init__(
        self, gateway: Gateway, sessions: SessionRoutes, approvals: ApprovalRoutes
    ) -> None:
        self._gateway = gateway
        self._service = gateway.service
        self._sessions = sessions
        self._approvals = approvals

    def routes(self) -> list[AnyRoute]:
        return [
            StreamRoute(
                method="POST", path=AGUI_PATH, scope="read", open=self.run, request=RunInput,
                body_bytes_max=RUN_BYTES_MAX, id="runAgent",
                summary="Run an agent, as AG-UI 1.0 says",
                answer="the events of the run", problems=(404, 409, 410, 422),
            ),
        ]  # fmt: skip

    @asynccontextmanager
    async def run(self, call: ApiCall[RunInput]) -> AsyncGenerator[SseResponse, None]:
        bearer, run = call.bearer, call.body
        session = session_of_thread(run.thread_id)
        head = await self._head(session, bearer)
        if any(each.status == "resolved" for each in run.resume):
            followed = await self._answer(session, run, bearer)
        else:
            followed = await self._send(session, run, bearer, head)
        # Ask first: the check below then applies to this instance, or the stream is refused.
        instance = await self._service.live.current(session)
        await check_seen(self._gateway, session, bearer)
        is_new = not followed.restates and instance == head.instance
        events = RunEvents(
            run,
            instance=instance or InstanceId(""),
            turn=followed.turn,
            restates=followed.restates,
        )
        async with self._gateway.tails.follow(
            session,
            bearer,
            instance=instance,
            after=head.seq if is_new else None,
            make=partial(RunStream, run=events, standing=partial(self._standing, session)),
        ) as stream:
            started = RunStarted(
                thread_id=run.thread_id, run_id=run.run_id, protocol_version=PROTOCOL_VERSION
            )
            yield SseResponse(stream, event_frame(started), instance=instance)

    async def _head(self, session: SessionId, bearer: Bearer) -> _Head:
        """Return the head, or nothing for a session that the token does not see yet."""
        if not await may_see(self._gateway, session, bearer):
            return _Head(None, 0, 0)
        async with self._service.live.use(session) as ledger:
            await ledger.catch_up_if_behind()
            return _Head(ledger.instance, ledger.state.seq, ledger.state.inputs)

    async def _standing(self, session: SessionId, turn: TurnId) -> TurnReport:
        return await self._service.turn(session, turn)

    # --- a message

    async def _send(
        self, session: SessionId, run: RunInput, bearer: Bearer, head: _Head
    ) -> _Followed:
        if not bearer.may("send"):
            raise wrong_scope("send")
        message = _last_of_user(run)
        incoming = Incoming(
            text=_text_of(message),
            source=msgspec.structs.replace(bearer.source(), quotes=_quotes(run)),
            dedup=_message_key(message),
            aliases=(f"agui:run:{run.run_id}",),
        )
        await self._refuse_omission(session, run, incoming, bearer)
        report = await self._sessions.accept(session, incoming, bearer)
        if report.turn is None:
            raise Refused("the message began no turn", code="malformed", hint="send it again")
        is_known = head.instance is not None and int(report.turn[1:]) <= head.inputs
        return _Followed(report.turn, restates=is_known)

    async def _refuse_omission(
        self, session: SessionId, run: RunInput, incoming: Incoming, bearer: Bearer
    ) -> None:
        """
        A new message may replace a waiting prompt. The client must name that prompt in `resume`:
        leaving it out is not a decision.
        """
        if not await may_see(self._gateway, session, bearer):
            return
        keys = (*incoming.aliases, incoming.dedup or "")
        closes = await self._service.would_supersede(session, source=incoming.source, keys=keys)
        named = {each.interrupt_id for each in run.resume}
        if left_out := [each for each in closes if each not in named]:
            raise Refused(
                f"{', '.join(left_out)} still waits, and this message would replace it",
                code="prompt_waits",
                hint="answer it, or name it in `resume` with the status cancelled",
            )

    # --- answers

    async def _answer(self, session: SessionId, run: RunInput, bearer: Bearer) -> _Followed:
        """Every entry is checked before the first is recorded."""
        if not bearer.may("approve"):
            raise wrong_scope("approve")
        await check_seen(self._gateway, session, bearer)
        entries = [each for each in run.resume if each.status == "resolved"]
        answers = [(each, answer_in_entry(each)) for each in entries]
        turns = {await self._turn_of(session, each, bearer) for each in entries}
        if len(turns) != 1:
            raise Refused(
                "the answers belong to several turns", code="malformed", hint="one run for each"
            )
        await self._refuse_unsent(session, run, bearer)
        for entry, answer in answers:
            await self._record(ApprovalId(entry.interrupt_id), answer, bearer)
        self._gateway.drives.wake(session)
        return _Followed(turns.pop(), restates=True)

    async def _record(self, approval: ApprovalId, answer: AnswerIn, bearer: Bearer) -> None:
        report = await self._approvals.record(approval, answer, bearer)
        self._gateway.metrics.answers[report.result] += 1

    async def _turn_of(self, session: SessionId, entry: ResumeEntry, bearer: Bearer) -> TurnId:
        """Return the turn of this thread that the prompt belongs to, also for a delegate's."""
        prompt: ApprovalReport = await self._approvals.seen(entry.interrupt_id, bearer)
        at, turn = prompt.session, prompt.turn
        while at != session:
            parent = (await self._service.show(at)).parent
            if parent is None:
                raise unknown_approval()
            at, turn = parent.session, parent.turn
        return turn

    async def _refuse_unsent(self, session: SessionId, run: RunInput, bearer: Bearer) -> None:
        """A run that answers sends nothing. A new message in it would be lost in silence."""
        if not run.messages or run.messages[-1].get("role") != "user":
            return
        key = _message_key(run.messages[-1])
        if not await self._service.is_repeat(session, source=bearer.source(), keys=(key,)):
            raise Refused(
                "a run that answers prompts sends no message, and the last one is new",
                code="malformed",
                hint="answer first, then send the message in a run of its own",
            )


def session_of_thread(thread: str) -> SessionId:
    """
    Return the session of a thread: `CHANNEL/THREAD` names one, and any other text names one of the
    channel `agui`.

    >>> session_of_thread("ops/api"), session_of_thread("5f0c2a9d")
    ('ops/api', 'agui/5f0c2a9d')
    >>> session_of_thread("Thread 1")
    'agui/x-l5sjgr2mryyawrfpanfxajkggz'
    """
    channel, slash, rest = thread.partition("/")
    if slash and ID_PART.match(channel) and ID_PART.match(rest):
        return session_id(thread)
    if not ID_PART.match(thread):
        thread = f"x-{short_digest('agui thread', thread)}"
    return session_id(f"{AGUI_CHANNEL}/{thread}")


def _last_of_user(run: RunInput) -> dict[str, Any]:
    for message in run.messages[::-1]:
        ident = message.get("id")
        if (
            message.get("role") == "user"
            and isinstance(ident, str)
            and 0 < len(ident) <= KEY_CHARS_MAX
        ):
            return message
    raise Refused(
        "no message has the role user and an id",
        code="malformed",
        hint="the last message of the user is the one that is sent",
    )


def _message_key(message: dict[str, Any]) -> str:
    return f"agui:message:{message.get('id')}"


def _text_of(message: dict[str, Any]) -> str:
    """The text of a message. Parts that are not text (images, files) are left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [each.get("text") for each in parts if isinstance(each, dict)]
    return "\n\n".join(each for each in texts if isinstance(each, str))


def _quotes(run: RunInput) -> tuple[Quote, ...]:
    """The context of the application informs the model, and has no authority."""
    quotes = tuple(Quote(_PAGE, f"{each.description}: {each.value}") for each in run.context)
    size = sum(len(each.text.encode(errors="replace")) for each in quotes)
    if size > CONTEXT_BYTES_MAX:
        raise Refused(
            f"the context has {size} bytes; {CONTEXT_BYTES_MAX} are the most",
            code="too_large",
            hint="send less context",
        )
    return quotes
