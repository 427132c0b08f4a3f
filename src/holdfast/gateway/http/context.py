"""
The parts that the gateway shares: one service, its tokens, streams and drives, and their settings.
"""

import secrets
from collections.abc import Callable

import msgspec

from holdfast.errors import Refused
from holdfast.gateway.server.drive_scheduler import DriveScheduler
from holdfast.gateway.server.metrics import Metrics
from holdfast.gateway.server.rate_limit import Rate
from holdfast.gateway.server.tokens import Bearer, TokenBook
from holdfast.gateway.streams.inbox_hub import Inboxes
from holdfast.gateway.streams.registry import Streams
from holdfast.gateway.streams.session_tail import Tails
from holdfast.runtime.service import Service
from holdfast.session.authority.context import Workspace


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
    ) -> None:
        self.service = service
        self.settings = settings
        self.workspace = workspace
        self.book = TokenBook(service.home)
        self.code_tries = Rate(per_second=0.5, burst=30)
        self.metrics = Metrics()
        now, store = service.world.clock.now_ms, service.world.store
        self.streams = Streams(
            self.book,
            store,
            now,
            streams_max=settings.streams_max,
            streams_per_token_max=settings.streams_per_token_max,
            streams_per_person_max=settings.streams_per_person_max,
        )
        self.tails = Tails(service, self.streams)
        self.inboxes = Inboxes(service, self.streams)
        self.drives = DriveScheduler(service)
        self.is_ready = False
        # A lookup of an unknown prompt compares every session with the index, so each token gets
        # few of them.
        self._misses = Rate(per_second=2, burst=30)

    def page_token_name(self) -> str:
        return f"page-{secrets.token_hex(4)}"

    def spend_miss(self, bearer: Bearer) -> None:
        """Spend one lookup before it is made. It is returned when the lookup finds something."""
        if not self._misses.take(bearer.digest):
            raise Refused(
                "too many prompts were asked for that are not there",
                code="too_many",
                hint="GET /v1/approvals lists what waits",
            )

    def refund_miss(self, bearer: Bearer) -> None:
        self._misses.give_back(bearer.digest)
