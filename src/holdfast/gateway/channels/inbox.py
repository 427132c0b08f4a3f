"""
The way in from one chat. A message is durable when `message` returns, and a redelivered one is
found by its key in the journal. A press is judged by the session, like every other answer.

Nobody who is not in `[people]` gets a word: not an error, not a hint that something is here.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from holdfast.errors import Busy, HoldfastError, Refused, Untrusted, Unusable
from holdfast.gateway.channels.questions import (
    is_reply,
    open_question,
    option_and_words,
    was_reply,
)
from holdfast.gateway.channels.rules import ChatRules, is_wanted, source_of
from holdfast.gateway.http.context import Gateway
from holdfast.ids import ApprovalId, SessionId, session_id
from holdfast.ports.chat.messages import Arrived, ChatPlaces, KnownThread, Pressed, Taken
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.approvals import DENY
from holdfast.session.authority.context import MessageSource
from holdfast.session.evolve.lifecycle import shown_key
from holdfast.session.state import Approval, SessionState

LATE_SECONDS = 120.0  # a message that took longer says so to the model
_PAYLOAD = re.compile(r"(a-[a-z2-7]{26}):([0-9]{1,2}):([0-9a-f]{16})\Z")
_RECEIPT_LOOKS, _RECEIPT_LOOK_SECONDS = 20, 0.1  # within the 3 s that platforms wait for us
_THREADS_MAX = 50  # whose missed messages are read at a start; the latest
_log = logging.getLogger("holdfast.gateway.channels")
_CLOSED_CODES = ("already_answered", "expired", "superseded", "voided", "cancelled", "unknown")
_NOT_YOURS = "You may not answer this prompt. It still stands."


class GatewayInbox:
    """`on_health` gets None when the platform answers, or why it does not."""

    def __init__(
        self, gateway: Gateway, rules: ChatRules, on_health: Callable[[str | None], None]
    ) -> None:
        self._gateway = gateway
        self._service = gateway.service
        self._rules = rules
        self._on_health = on_health
        self.unknown = 0  # messages and presses of people whom settings do not know

    def came_up(self) -> None:
        self._on_health(None)

    def went_down(self, reason: str) -> None:
        self._on_health(reason)

    # --- messages

    async def message(self, arrived: Arrived) -> Taken:
        rules = self._rules
        if not is_wanted(rules, arrived) or not arrived.text.strip():
            return Taken("ignored")
        person = self._person(arrived.identity, "message")
        if person is None:
            return Taken("ignored")
        late = self._service.live.clock_ms() - arrived.sent_at
        if late > rules.late_seconds_max * 1000:
            _log.warning("%s: a message of %s is too old to act on", rules.name, person)
            return Taken("ignored")
        source = source_of(rules, arrived, person)
        try:
            session = session_id(f"{rules.name}/{arrived.thread}")
            if await self._service.live.current(session) is not None:
                await self._refuse_other_readers(session, source)
                if (taken := await self._answered(session, arrived, person)) is not None:
                    return taken
            return await self._accept(session, arrived, source, late_ms=late)
        except (Refused, Unusable, Untrusted) as exc:
            if exc.code == "dedup_conflict":
                return Taken("duplicate")  # the same message, marked late this time
            _log.warning("%s: a message was refused (%s)", rules.name, exc.code)
            return Taken("refused", words=_words(exc))

    async def _accept(
        self, session: SessionId, arrived: Arrived, source: MessageSource, *, late_ms: int
    ) -> Taken:
        report = await self._service.send(
            session,
            Incoming(
                text=_late_text(arrived) if late_ms > LATE_SECONDS * 1000 else arrived.text,
                source=source,
                agent=self._rules.agent,
                dedup=self._key(arrived),
                workspace=self._gateway.workspace(),
            ),
            wait=False,
        )
        self._gateway.drives.wake(session)
        if report.error is not None and report.error.code == "answer_word":
            return Taken(
                "refused", words=f"{report.error.message} Use a button of the prompt, or the page."
            )
        self._gateway.metrics.messages += 1
        return Taken("taken")

    def _key(self, arrived: Arrived) -> str:
        return f"{self._rules.name}:{arrived.place}:{arrived.message}"

    async def _answered(self, session: SessionId, arrived: Arrived, person: str) -> Taken | None:
        """Answer the question that waits for this person in this conversation, if there is one."""
        key, name = self._key(arrived), self._rules.name
        async with self._service.live.use(session) as ledger:
            await ledger.catch_up()
            state = ledger.state
        if was_reply(state, key):
            return Taken("duplicate")
        if (question := open_question(state, person)) is None:
            return None
        asked = question.asked
        state = await self._state_with_receipt(session, asked.approval)
        if not is_reply(state, question, name, arrived):
            return None
        option, words = option_and_words(question, arrived.text)
        try:
            answered = await self._service.answer(
                asked.approval,
                option,
                by=person,
                digest=asked.digest,
                reason=words,
                answer_id=key,
                way="channels",
                wait=False,
            )
        except Refused as exc:
            # It has closed a moment ago, so this is a message like any other.
            if exc.code in _CLOSED_CODES:
                return None
            raise
        self._gateway.drives.wake(session)
        self._gateway.metrics.answers[answered.result] += 1
        return Taken("taken")

    async def _refuse_other_readers(self, session: SessionId, source: MessageSource) -> None:
        """A thread keeps the audience that it began with, whatever settings say later."""
        readers = await self._service.live.readers_of(session)
        if any(
            (each.audience, each.boundary) != (source.audience.value, source.boundary)
            for each in readers
        ):
            raise Refused(
                "this thread began with other readers than it has now",
                code="no_authority",
                hint="begin a new thread",
            )

    async def threads(self) -> Sequence[KnownThread]:
        name = f"{self._rules.name}/"
        lines = [each for each in await self._service.sessions() if each.session.startswith(name)]
        lines.sort(key=lambda each: each.updated_at or "", reverse=True)
        found = [
            await self._known(line.session) for line in lines[:_THREADS_MAX] if line.sealed is None
        ]
        return [each for each in found if each is not None]

    def places(self) -> ChatPlaces:
        return ChatPlaces(tuple(self._rules.identities_now()), tuple(self._rules.teams))

    async def _known(self, session: SessionId) -> KnownThread | None:
        """Return the last message of the session, from the keys in its journal."""
        async with self._service.live.use(session) as ledger:
            await ledger.catch_up()
            keys = [key.rpartition("\0")[2] for key, _ in ledger.state.dedup.items()]
        ours = [key.split(":", 2)[1:] for key in keys if key.startswith(f"{self._rules.name}:")]
        if not ours:
            return None
        place, message = ours[-1]
        return KnownThread(session.partition("/")[2], place, message)

    # --- presses

    async def press(self, pressed: Pressed) -> Taken:
        person = self._person(pressed.identity, "press")
        match = _PAYLOAD.match(pressed.payload)
        if person is None or match is None:
            return Taken("ignored")
        approval, option, digest = ApprovalId(match[1]), int(match[2]), match[3]
        try:
            session = await self._service.live.session_of(approval)
            if session is None:
                return Taken("refused", words="This prompt is not known here.")
            chosen = await self._chosen(session, approval, option, digest, pressed)
            answered = await self._service.answer(
                approval,
                chosen[0],
                by=person,
                digest=chosen[1],
                answer_id=f"{self._rules.name}:{pressed.press}",
                way="channels",
                wait=False,
            )
        except Busy:
            raise
        except HoldfastError as exc:
            self._gateway.metrics.answers["failed"] += 1
            if exc.code == "wrong_approver":
                return Taken("refused", words=_NOT_YOURS)
            return Taken("refused", words=_words(exc))
        self._gateway.drives.wake(session)
        self._gateway.metrics.answers[answered.result] += 1
        return Taken("taken")

    async def _chosen(
        self, session: SessionId, approval: ApprovalId, option: int, digest: str, pressed: Pressed
    ) -> tuple[str, str | None]:
        """
        Return the option and the whole digest. An approval counts only from a message whose
        receipt says that it showed everything.
        """
        state = await self._state_with_receipt(session, approval)
        prompt = _prompt(state, approval)
        if prompt is None:
            return DENY, None  # it is over: the session says how
        offered = [each.option for each in prompt.asked.options]
        if option >= len(offered) or not prompt.asked.digest.startswith(digest):
            raise Refused(
                "This button belongs to another plan.", code="plan_changed", hint="Use the page."
            )
        shown = state.shown.get(shown_key(self._rules.name, pressed.message))
        is_whole = shown is not None and shown.approval == approval and shown.is_whole
        if offered[option] != DENY and prompt.is_open and prompt.asked.risks:
            raise Refused(
                "A call with a known risk is not approved by a button.",
                code="option_unavailable",
                hint="Answer it on the page.",
            )
        if offered[option] != DENY and prompt.is_open and not is_whole:
            raise Refused(
                "This message is not known to show everything that would run.",
                code="option_unavailable",
                hint="Answer it on the page.",
            )
        return offered[option], prompt.asked.digest

    async def _state_with_receipt(self, session: SessionId, approval: ApprovalId) -> SessionState:
        """
        Return the state. A person may press before the message's receipt is journalled, so wait a
        moment for one that is on its way.
        """
        async with self._service.live.use(session) as ledger:
            for _ in range(_RECEIPT_LOOKS):
                await ledger.catch_up()
                on_its_way = any(
                    each.about == approval and each.sent and each.channel == self._rules.name
                    for each in ledger.state.deliveries.values()
                )
                if not on_its_way:
                    break
                await asyncio.sleep(_RECEIPT_LOOK_SECONDS)
            return ledger.state

    def _person(self, identity: str, what: str) -> str | None:
        person = self._rules.person_for(identity)
        if person is None:
            self.unknown += 1
            # The id is all that the operator needs to let somebody in: [people.NAME].
            _log.info(
                "%s: a %s of the unknown %s user %s is ignored",
                self._rules.name,
                what,
                self._rules.kind,
                ascii(identity[:80]),
            )
        return person


def _prompt(state: SessionState, approval: ApprovalId) -> Approval | None:
    found = state.find_prompt(approval)
    prompt = found[1].approval if found is not None and found[1] is not None else None
    return prompt if prompt is not None and prompt.asked.approval == approval else None


def _late_text(arrived: Arrived) -> str:
    at = datetime.fromtimestamp(arrived.sent_at / 1000, UTC)
    return f"(Sent at {at:%Y-%m-%d %H:%M} UTC, and read late.)\n{arrived.text}"


def _words(error: HoldfastError) -> str:
    text = error.message[:1].upper() + error.message[1:]
    return f"{text.rstrip('.')}. {error.hint or ''}".strip()
