"""
The messages that came while nobody listened. Slack sends an event again for some minutes only;
later ones are read from the history of each place, and handed on in the order of their times.
"""

from typing import Any

from holdfast.adapters.channels.history import OVERLAP_SECONDS, log, read_patiently
from holdfast.adapters.channels.slack import events
from holdfast.adapters.channels.slack.events import SlackSelf
from holdfast.adapters.channels.slack.web_api import SlackApi
from holdfast.ports.chat.messages import Arrived, KnownThread, direct_address
from holdfast.ports.chat.platform import ChatInbox

_PAGE, _PAGES_MAX = 200, 20
_READ_BY = "Web API"


class MissedMessages:
    def __init__(self, api: SlackApi, me: SlackSelf) -> None:
        self._api, self._me = api, me
        self._found: dict[tuple[str, str], Arrived] = {}

    async def read(self, inbox: ChatInbox) -> None:
        """
        Hand on the missed messages of known threads, of their channels, and of the people and
        channels of settings. Before the first message ever, nothing counts as missed.
        """
        threads = await inbox.threads()
        for known in threads:
            await self._read_thread(known)
        for place, since in (await self._places(threads, inbox)).items():
            await self._read(place, since)
        for _, message in sorted(self._found.items(), key=lambda each: each[1].message):
            await inbox.message(message)

    async def _read_thread(self, known: KnownThread) -> None:
        root = events.address(known.thread)[1]
        await self._read(known.place, known.message, root)

    async def _places(self, threads: Any, inbox: ChatInbox) -> dict[str, str]:
        """By channel: the time from which its history is read, for threads that are new."""
        newest = max((each.message for each in threads), default=None)
        if newest is None:
            return {}
        found: dict[str, str] = {}
        for each in threads:
            if not each.place.startswith("D"):
                found[each.place] = max(each.message, found.get(each.place, ""))
        direct = {each.thread for each in threads}
        named = inbox.places()
        for identity in named.identities:
            if direct_address(identity) not in direct and (to := await self._opened(identity)):
                found[to] = newest
        for channel in named.channels:
            found.setdefault(channel, newest)
        return {place: f"{float(at) - OVERLAP_SECONDS:.6f}" for place, at in found.items()}

    async def _opened(self, identity: str) -> str | None:
        """The channel of a person's direct messages. To open it posts nothing."""
        tenant, _, user = identity.partition("/")
        if tenant != self._me.team:
            return None
        opened = await read_patiently(
            lambda: self._api.call("conversations.open", users=user), f"Slack, {user}"
        )
        return None if opened is None else str(opened["channel"]["id"])

    async def _read(self, place: str, since: str, root: str | None = None) -> None:
        listed = await read_patiently(lambda: self._listed(place, since, root), f"Slack, {place}")
        if not listed:
            return
        is_direct = place.startswith("D")
        shared = {"is_ext_shared_channel": not is_direct and await self._is_shared(place)}
        for each in listed:
            kind = {"channel_type": "im"} if is_direct else {}
            event = {"type": "message", "channel": place, **kind, **each}
            envelope = {"team_id": self._me.team, "event": event, **shared}
            message = events.arrived(envelope, self._me, _READ_BY)
            if message is not None and message.message > since:
                self._found[place, message.message] = message

    async def _listed(self, place: str, since: str, root: str | None) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(_PAGES_MAX):
            page = await self._api.call(
                "conversations.history" if root is None else "conversations.replies",
                channel=place,
                ts=root,
                oldest=since,
                limit=_PAGE,
                cursor=cursor,
            )
            found += page.get("messages") or []
            cursor = (page.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return found
        log.warning("Slack, %s: more messages were missed than are read", place)
        return found

    async def _is_shared(self, place: str) -> bool:
        """Return whether another workspace may read the channel: yes, unless Slack denies it."""
        info = await read_patiently(
            lambda: self._api.call("conversations.info", channel=place), f"Slack, {place}"
        )
        return ((info or {}).get("channel") or {}).get("is_ext_shared") is not False
