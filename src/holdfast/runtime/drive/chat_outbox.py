"""
Messages on their way to chats. Each is sent in order, and confirmed with the platform's own id.

    postponed  it certainly did not arrive (no connection, too many requests): journalled, and sent
               again at the time that the platform asked for, or later and later
    in doubt   it may have arrived: the platform is asked. A message that it finds is confirmed,
               one that it certainly lacks is sent again, and anything else stays in doubt
    update     of a prompt that closed: repeating it does no harm, so it is never in doubt

A process that does not serve sends nothing: its messages stay owed to the process that does.
"""

import asyncio
from collections.abc import Callable, Mapping

from holdfast.ports.chat.messages import ChatParcel, ChatPrompt, ChatReceipt
from holdfast.ports.chat.platform import ChatPlatform, ConfiguredChat
from holdfast.ports.clock import Clock
from holdfast.ports.delivery import DeliveryInDoubt, NotDelivered
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.secrecy import Secrecy
from holdfast.session.authority.context import TurnContext
from holdfast.session.commands import MarkDelivery
from holdfast.session.state import Delivery, SessionState

SEND_SECONDS_MAX = 30.0  # for one request to the platform, whatever its library does
WAIT_IN_DRIVE_SECONDS = 45.0  # longer than a scan for owed work, which finds what waits longer
POSTPONED_SECONDS_MAX = 600.0  # between two tries
GIVEN_UP_SECONDS = 24 * 3600.0  # a reply of yesterday helps nobody; the record says that it failed
RESENT_MAX = 3  # of one that the platform certainly lacks, in one drive

Chats = Callable[[], Mapping[str, ConfiguredChat]]
_GONE = "the sending process was gone before it was confirmed; it may or may not have arrived"


class ChatOutbox:
    """The chat deliveries of one drive."""

    def __init__(self, chats: Chats, ledger: Ledger, clock: Clock, secrecy: Secrecy) -> None:
        self._chats = chats
        self._ledger = ledger
        self._clock = clock
        self._secrecy = secrecy

    def may_start(self, state: SessionState) -> tuple[str, ...]:
        """
        Return the deliveries that may be sent now: the first of each address, so that parts arrive
        in order.
        """
        found: list[str] = []
        if not state.deliveries:
            return ()
        lanes: set[tuple[str, str]] = set()
        chats = self._chats()
        soon = self._clock.now_ms() + WAIT_IN_DRIVE_SECONDS * 1000
        for owed in state.deliveries.values():
            lane = (owed.channel, owed.to)
            if not owed.to or lane in lanes:
                continue
            lanes.add(lane)
            chat = chats.get(owed.channel)
            if not owed.sent and (chat is None or chat.is_open) and owed.not_before <= soon:
                found.append(owed.delivery)
        return tuple(found)

    async def settle(self, owed: Delivery) -> None:
        """Ask the platform for a message that an earlier driver sent and did not confirm."""
        chat = self._chats().get(owed.channel)
        if chat is None:
            await self._mark(owed.delivery, "in_doubt", _GONE)
        elif chat.platform is not None and chat.platform.is_up:
            await self._settled(chat.platform, self._parcel(owed), _GONE)

    async def deliver(self, delivery: str) -> None:
        owed = self._ledger.state.deliveries.get(delivery)
        if owed is None or owed.sent:
            return
        chat = self._chats().get(owed.channel)
        if chat is None:
            await self._mark(delivery, "no_channel", f"no channel {owed.channel!r} here any more")
            return
        if chat.platform is None:
            return
        if (wait_ms := owed.not_before - self._clock.now_ms()) > 0:
            await self._clock.sleep(wait_ms / 1000)
        parcel = self._parcel(owed)
        if owed.kind == "prompt" and parcel.prompt is None:
            await self._mark(delivery, "closed", "the prompt closed before its message was sent")
            return
        if owed.kind == "update":
            await self._update(chat.platform, owed, parcel)
        elif await self._mark(delivery, "sent", ""):
            # Crash before this is durable: nothing has left. Crash after it: the platform is asked.
            await self._send(chat.platform, owed, parcel)

    async def _update(self, platform: ChatPlatform, owed: Delivery, parcel: ChatParcel) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                await platform.update(parcel)
        except NotDelivered as exc:
            await self._not_delivered(owed, exc)
        except (DeliveryInDoubt, TimeoutError) as exc:
            again = NotDelivered(str(exc) or "it took too long", may_pass=True)
            await self._not_delivered(owed, again)
        else:
            await self._mark(owed.delivery, "confirmed", owed.replaces)

    async def _send(self, platform: ChatPlatform, owed: Delivery, parcel: ChatParcel) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                receipt = await platform.send(parcel)
        except NotDelivered as exc:
            await self._not_delivered(owed, exc)
        except (DeliveryInDoubt, TimeoutError) as exc:
            await self._settled(platform, parcel, str(exc) or "it took too long")
        else:
            await self._confirm(parcel, receipt)

    async def _settled(self, platform: ChatPlatform, parcel: ChatParcel, why: str) -> None:
        """Ask the platform, and send again only what it certainly lacks."""
        for _ in range(RESENT_MAX):
            try:
                async with asyncio.timeout(SEND_SECONDS_MAX):
                    found = await platform.find(parcel)
                    if found == "absent":
                        found = await platform.send(parcel)
            except NotDelivered as exc:
                owed = self._ledger.state.deliveries.get(parcel.delivery)
                if owed is not None and exc.may_pass:
                    await self._not_delivered(owed, exc)
                    return
                found = "unknown"
            except (DeliveryInDoubt, TimeoutError):
                continue  # of the message that was sent again: ask again
            if isinstance(found, ChatReceipt):
                await self._confirm(parcel, found)
                return
            break
        await self._mark(parcel.delivery, "in_doubt", why)

    async def _not_delivered(self, owed: Delivery, error: NotDelivered) -> None:
        now = self._clock.now_ms()
        is_old = now - owed.queued_at > GIVEN_UP_SECONDS * 1000
        if not error.may_pass or is_old:
            await self._mark(owed.delivery, "failed", error.message)
            return
        wait = max(error.wait_seconds, min(2.0**owed.tries, POSTPONED_SECONDS_MAX))
        await self._mark(owed.delivery, "postponed", error.message, until=now + int(wait * 1000))

    async def _confirm(self, parcel: ChatParcel, receipt: ChatReceipt) -> None:
        await self._ledger.drive(
            MarkDelivery(
                delivery=parcel.delivery,
                became="confirmed",
                detail=receipt.message,
                shown=receipt.shown if parcel.kind == "prompt" else None,
            )
        )

    def _parcel(self, owed: Delivery) -> ChatParcel:
        return ChatParcel(
            delivery=owed.delivery,
            to=owed.to,
            kind=owed.kind,
            text=owed.text,
            queued_at=owed.queued_at,
            prompt=_open_prompt(self._ledger.state, owed) if owed.kind == "prompt" else None,
            replaces=owed.replaces,
        )

    async def _mark(self, delivery: str, became: str, detail: str, *, until: int = 0) -> bool:
        """Return whether this commit made the change."""
        outcome = await self._ledger.drive(
            MarkDelivery(
                delivery=delivery,
                became=became,
                detail=self._secrecy.hidden(detail),
                until=until,
            )
        )
        return bool(outcome.events)


def _open_prompt(state: SessionState, owed: Delivery) -> ChatPrompt | None:
    turn, call = (owed.about and state.find_prompt(owed.about)) or (None, None)
    prompt = call.approval if call is not None else None
    if turn is None or call is None or prompt is None or not prompt.is_open:
        return None
    asked, context = prompt.asked, turn.context
    if asked.approval != owed.about:
        return None
    return ChatPrompt(
        approval=asked.approval,
        session=state.session,
        tool=asked.tool,
        kind=asked.kind,
        requester=(context.requester if isinstance(context, TurnContext) else None) or "somebody",
        agent=turn.agent,
        editor=call.edited_by,
        risks=tuple(dict.fromkeys(each.text for each in asked.risks)),
        display=asked.display,
        digest=asked.digest,
        options=tuple(each.option for each in asked.options),
        may_answer=asked.may_answer,
        expires_at=asked.expires_at,
        is_at_home=state.session == f"{owed.channel}/{owed.to}",
    )
