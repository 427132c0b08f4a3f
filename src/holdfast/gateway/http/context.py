"""
The parts that the gateway shares: one service, its tokens, streams and drives, and their settings.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from holdfast import limits
from holdfast.errors import Refused
from holdfast.gateway.mcp.calls.desk import CallDesk
from holdfast.gateway.server.decision_log import DecisionLog
from holdfast.gateway.server.drive_scheduler import DriveScheduler
from holdfast.gateway.server.inbound_hook import InboundHook
from holdfast.gateway.server.metrics import Counts, Metrics
from holdfast.gateway.server.rate_limit import Rate
from holdfast.gateway.server.telemetry_export import TelemetryExporter
from holdfast.gateway.server.tokens import Bearer, TokenBook
from holdfast.gateway.streams.inbox_hub import InboxHub
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tails import SessionTails
from holdfast.gateway.workers.place import WorkerPlace
from holdfast.gateway.workers.share import ALL
from holdfast.runtime.service import Service
from holdfast.session.authority.context import Workspace

ChatReceiver = Callable[[Callable[[str], str | None], bytes], Awaitable[str | None]]
"""Takes one request of a chat platform: its headers and its body."""


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The server's address, names and limits."""

    host: str = "127.0.0.1"
    port: int = 8321
    hosts: tuple[str, ...] = ()  # further allowed Host values, with their ports
    allow_remote: bool = False  # listen where other machines can connect
    requests_per_second: float = 1_000.0  # per token, on average
    requests_burst: float = 3_000.0
    streams_max: int = 8_192
    # An eighth and a quarter of all: neither a stolen token nor a person with many tokens can shut
    # the others out.
    streams_per_token_max: int = 1_024
    streams_per_person_max: int = 2_048
    mcp_wait_seconds: float = limits.MCP_WAIT_SECONDS  # of a client, for a person's answer
    hooks: Mapping[str, InboundHook] = {}  # webhooks that start turns, by name
    stop_seconds: float = (
        10.0  # seconds for which a running tool may continue after a request to stop
    )


class Gateway:
    def __init__(
        self,
        service: Service,
        settings: GatewaySettings,
        *,
        workspace: Callable[[], Workspace | None],
        exporter: TelemetryExporter | None = None,
        place: WorkerPlace | None = None,
    ) -> None:
        self.service = service
        self.share = ALL if place is None else place.share
        self.exporter = exporter
        self.settings = settings
        self.workspace = workspace
        self.book = TokenBook(service.home)
        self.code_tries = Rate(per_second=0.5, burst=30)
        self.metrics = Metrics()
        self.streams = Streams(
            self.book,
            service.live.clock_ms,
            streams_max=settings.streams_max,
            streams_per_token_max=settings.streams_per_token_max,
            streams_per_person_max=settings.streams_per_person_max,
        )
        self.tails = SessionTails(service, self.streams)
        self.inboxes = InboxHub(service, self.streams)
        self.decision_log = DecisionLog(service)
        self.drives = DriveScheduler(service, self.share)
        self.desk = CallDesk(service, self.share)
        self.peers = None if place is None else place.peers(service.live.feed, self.counts)
        self.is_ready = False
        self.chat_receiver: Callable[[str], ChatReceiver | None] = lambda _name: None
        # The chats that do not answer, with the reason.
        self.chats_down: Callable[[], Mapping[str, str]] = dict
        # A lookup of an unknown prompt compares every session with the index, so each token gets
        # few of them.
        self._misses = Rate(per_second=2, burst=30)

    def counts(self) -> Counts:
        """Return the numbers of this process."""
        gauges: dict[str, tuple[str, float]] = {
            "streams": ("Live streams.", len(self.streams)),
            "drives": ("Sessions driven by this process now.", self.drives.running),
            "sessions_open": ("Sessions this process has open.", self.service.live.sessions_open),
            "pieces_gaps": (
                "How often pieces were lost on their way to followers.",
                self.tails.gaps,
            ),
        }
        if self.share.is_first:
            gauges["channels_down"] = ("Chats that do not answer.", len(self.chats_down()))
        if self.exporter is not None:
            gauges["telemetry_sessions_behind"] = (
                "Sessions with spans that the collector has not taken.",
                self.exporter.sessions_behind,
            )
        return self.metrics.counts({**gauges, **self.service.live.store_gauges()})

    async def counts_of_workers(self) -> Mapping[int | None, Counts]:
        """Return the numbers of each worker by its number, or of the only process."""
        if self.peers is None:
            return {None: self.counts()}
        return await self.peers.counts()

    def page_token_name(self) -> str:
        return f"page-{secrets.token_hex(4)}"

    def spend_miss(self, bearer: Bearer) -> None:
        """Spend one lookup before it is made. It is returned when the lookup finds something."""
        if not self._misses.take(bearer.digest):
            raise Refused(
                "too many prompts were asked for that are not there",
                code="too_many",
                hint="GET /v1/approvals lists the prompts that wait",
            )

    def refund_miss(self, bearer: Bearer) -> None:
        self._misses.give_back(bearer.digest)
