"""
Replies, prompts and notices that are owed to channels. Each is queued with the record that causes
it, sent once, and confirmed or given up with a reason.

    queued     in the same commit as the turn's end or the prompt, so neither exists alone
    sent       durable before it leaves: a crash before this commit sends it later, a crash after
               it leaves it in doubt
    confirmed  the channel has it; it is never queued again under this id
    failed     given up after bounded tries, or in doubt: it may have arrived, the record says so,
               and it is never sent again automatically
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from holdfast.ids import TurnId, turn_id_of
from holdfast.ports.clock import Clock
from holdfast.ports.delivery import Channel, DeliveryInDoubt, NotDelivered, Parcel
from holdfast.runtime.context import World
from holdfast.runtime.drive.chat_deliveries import OWING as CHAT_OWING
from holdfast.runtime.drive.chat_deliveries import owed_to_chats
from holdfast.runtime.drive.chat_outbox import ChatOutbox, Chats
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.secrecy import Secrecy
from holdfast.session.authority.context import TurnContext
from holdfast.session.authority.restore import restore
from holdfast.session.commands import MarkDelivery, QueueDelivery
from holdfast.session.events import ApprovalRequested, InputAccepted, SessionEvent, TurnEnded
from holdfast.session.react import unsettled
from holdfast.session.state import SessionState

TRIES_MAX = 3
SEND_SECONDS_MAX = 30.0  # a drive waits at most this long for one send, whatever the channel does

Channels = Callable[[], Mapping[str, Channel]]

_OWING: frozenset[type[SessionEvent]] = frozenset({ApprovalRequested, TurnEnded})


class PromptNotice(msgspec.Struct, frozen=True, kw_only=True):
    """The notice of a prompt: enough to find it, nothing of the plan."""

    id: str
    session: str
    tool: str
    kind: str


def owed_by(
    world: World, before: SessionState, events: Sequence[SessionEvent]
) -> tuple[QueueDelivery, ...]:
    """
    Return the deliveries that these events owe, over the current channels. They are decided in the
    same commit, against the same state.
    """
    kinds = set(map(type, events))
    channel_of = partial(_channel_of, before, events)
    found: list[QueueDelivery] = []
    if not CHAT_OWING.isdisjoint(kinds) and ((chats := world.chats()) or before.shown):
        found.extend(owed_to_chats(chats, before, events, channel_of))
    if _OWING.isdisjoint(kinds) or not (channels := world.channels()):
        return tuple(found)
    for event in events:
        match event:
            case ApprovalRequested():
                notice = PromptNotice(
                    id=event.approval, session=before.session, tool=event.tool, kind=event.kind
                )
                found.extend(
                    _to_all(
                        channels,
                        channel_of(event.turn),
                        event.turn,
                        event.approval,
                        "prompt",
                        msgspec.json.encode(notice).decode(),
                    )
                )
            case TurnEnded() if before.parent is not None:
                pass  # a delegate reports only to the call that started it
            case TurnEnded(outcome="completed", reply=str() as reply):
                found.extend(
                    _to_all(channels, channel_of(event.turn), event.turn, "reply", "reply", reply)
                )
            case TurnEnded(outcome=outcome):
                text = f"This request {outcome}: {event.message or event.code or 'no reason given'}"
                found.extend(
                    _to_all(channels, channel_of(event.turn), event.turn, "end", "notice", text)
                )
            case _:
                pass
    return tuple(found)


def _channel_of(state: SessionState, events: Sequence[SessionEvent], turn: TurnId) -> str:
    """
    Return the channel that a turn came over, from its context. The context may be as new as the
    commit that ends the turn.
    """
    open_turn = state.turns.get(turn)
    context = (
        open_turn.context
        if open_turn is not None
        else next((each.context for each in state.queued if each.turn == turn), None)
    )
    if context is None:
        accepted = (
            event
            for event in events
            if isinstance(event, InputAccepted) and turn_id_of(event.input) == turn
        )
        context = next(
            (
                restore(each.context, session=state.session, instance=state.instance)
                for each in accepted
            ),
            None,
        )
    return context.channel if isinstance(context, TurnContext) else ""


def _to_all(
    channels: Mapping[str, Channel], origin: str, turn: TurnId, part: str, kind: str, text: str
) -> list[QueueDelivery]:
    return [
        QueueDelivery(turn=turn, channel=name, part=part, kind=kind, text=text)
        for name, channel in channels.items()
        if channel.takes(kind, of=origin)
    ]


class Outbox:
    """
    The outbox of one drive. Only a session's driver sends: with two senders, each could assume that
    the other did not send.
    """

    def __init__(
        self,
        channels: Channels,
        ledger: Ledger,
        clock: Clock,
        secrecy: Secrecy,
        *,
        retry_seconds: float,
        chats: Chats = dict,
    ) -> None:
        self._channels = channels
        self._chats = ChatOutbox(chats, ledger, clock, secrecy)
        self._ledger = ledger
        self._clock = clock
        self._secrecy = secrecy
        self._retry_seconds = retry_seconds

    async def settle(self) -> None:
        """Mark as in doubt each delivery that an earlier driver sent and never confirmed."""
        for delivery in unsettled(self._ledger.state):
            if delivery.to:
                await self._chats.settle(delivery)
                continue
            await self._mark(
                delivery.delivery,
                "in_doubt",
                "the sending process was gone before it was confirmed; it may or may not have "
                "arrived",
            )

    def may_start(self, state: SessionState) -> tuple[str, ...]:
        """Return the deliveries that this process may send now."""
        direct = (each for each in state.deliveries.values() if not each.to and not each.sent)
        return (*(each.delivery for each in direct), *self._chats.may_start(state))

    async def deliver(self, delivery: str) -> None:
        owed = self._ledger.state.deliveries.get(delivery)
        if owed is None or owed.sent:
            return
        if owed.to:
            await self._chats.deliver(delivery)
            return
        channel = self._channels().get(owed.channel)
        if channel is None:
            await self._mark(delivery, "no_channel", f"no channel {owed.channel!r} here any more")
            return
        # Crash before this is durable: nothing has left, and it is sent later. Crash after it: the
        # delivery is in doubt.
        if not await self._mark(delivery, "sent", ""):
            return  # another driver has sent it since our last check
        parcel = Parcel(
            delivery=delivery,
            session=self._ledger.session,
            turn=owed.turn,
            kind=owed.kind,
            text=owed.text,
        )
        became, detail = await self._send(channel, parcel)
        await self._mark(delivery, became, detail)

    async def _send(self, channel: Channel, parcel: Parcel) -> tuple[str, str]:
        for tries in range(1, TRIES_MAX + 1):
            try:
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    return "confirmed", await channel.send(parcel) or ""
            except NotDelivered as exc:
                if not exc.may_pass or tries == TRIES_MAX:
                    return "failed", f"{exc.message} ({tries} {'try' if tries == 1 else 'tries'})"
            except (DeliveryInDoubt, TimeoutError) as exc:
                return "in_doubt", str(exc) or "it took too long; it may or may not have arrived"
            if self._retry_seconds:
                await self._clock.sleep(self._retry_seconds * 2 ** (tries - 1))
        return "failed", "it was not tried"

    async def _mark(self, delivery: str, became: str, detail: str) -> bool:
        """Return whether this commit made the change."""
        outcome = await self._ledger.drive(
            MarkDelivery(delivery=delivery, became=became, detail=self._secrecy.hidden(detail))
        )
        return bool(outcome.events)
