"""
`holdfast serve`: a process that answers requests, drives turns and stops in order. It is the only
one of its home, or one of several workers.

- Start: hold the home, open the socket, scan for owed work, print the page's address.
- Stop (SIGTERM, SIGINT): become not ready, end the streams, finish requests in flight, end drives
  at a quiet point. A running tool gets a bounded time and is in doubt after it. If only prompts are
  pending, there is nothing to wait for.
- A second signal waits for nothing. Neither it nor kill -9 loses anything that was acknowledged.
"""

import asyncio
import contextlib
import ipaddress
import logging
import resource
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from holdfast.errors import Busy, HoldfastError, Unusable
from holdfast.gateway.channels.rules import OpenChat
from holdfast.gateway.channels.runner import ChatRunner
from holdfast.gateway.http.app import make_app
from holdfast.gateway.http.context import Gateway, GatewaySettings
from holdfast.gateway.http.protocol import Protocol
from holdfast.gateway.server.serve_lock import ServeLock, hold_home
from holdfast.gateway.server.telemetry_export import TelemetryExporter
from holdfast.gateway.workers.place import WorkerPlace
from holdfast.runtime.service import Service
from holdfast.session.authority.context import Workspace

_BACKLOG = 2_048
_DRAIN_SECONDS = 5  # for requests in flight; none takes longer than a few syncs
_HOUSE_SECONDS = 86_400.0  # retention is given in days
_MORE_HOUSE_SECONDS = 60.0  # continue a large cleanup in small steps
_log = logging.getLogger("holdfast.gateway.server.serve")

KeepHouse = Callable[[], Awaitable[bool]]
"""Deletes old data. Returns whether there is more to delete."""


class Server(uvicorn.Server):
    """
    uvicorn without its signal handlers; Holdfast handles signals. `is_up` is set once it answers.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        for each in sockets or ():
            each.listen(_BACKLOG)  # the system's queue; that of `config` is what one wake-up takes
        self.is_up.set()


def address_of(host: str, port: int) -> str:
    """
    >>> address_of("::1", 8321)
    'http://[::1]:8321'
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Serving:
    """A gateway that answers at `address` until `stop` is called."""

    def __init__(
        self,
        gateway: Gateway,
        server: Server,
        sock: socket.socket,
        *,
        keep_house: KeepHouse | None,
        chats: ChatRunner | None = None,
        place: WorkerPlace | None = None,
    ) -> None:
        self.gateway = gateway
        self._chats = chats
        self._keep_house = keep_house
        self._server = server
        self._socket = sock
        self._place = place
        self.stopping = asyncio.Event()
        self.started = asyncio.Event()
        # Set once notices arrive here. Requests are taken only afterwards.
        self._is_listening = asyncio.Event()

    @property
    def address(self) -> str:
        return address_of(self.gateway.settings.host, self.gateway.settings.port)

    def stop(self) -> None:
        """Stop in order. The second call stops at once."""
        if self.stopping.is_set():
            self.gateway.drives.hasten()
            self._server.force_exit = True
        self.stopping.set()

    async def run(self) -> None:
        """Serve until `stop` is called."""
        gateway = self.gateway
        async with asyncio.TaskGroup() as group:
            streaming = (
                gateway.tails.run(),
                gateway.inboxes.run(),
                gateway.streams.run(gateway.tails.look, gateway.inboxes.look),
            )
            working = (
                gateway.drives.run(),
                gateway.desk.run(),
                gateway.decision_log.run(),
                self._listen(),
            )
            forever = (*working, *streaming, *self._once_per_home())
            background = [group.create_task(each) for each in forever]
            if gateway.peers is not None and self._place is not None:
                background.append(group.create_task(gateway.peers.run()))
                background.append(group.create_task(self._stop_with_parent(self._place)))
            await self._is_listening.wait()
            serving = group.create_task(self._server.serve(sockets=[self._socket]))
            try:
                await self._server.is_up.wait()
                gateway.is_ready = True
                self.started.set()
                await self.stopping.wait()
            finally:
                gateway.is_ready = False
                gateway.streams.end_all("stopping")
                self._server.should_exit = True
                await asyncio.gather(
                    gateway.drives.stop(gateway.settings.stop_seconds),
                    gateway.desk.stop(gateway.settings.stop_seconds),
                )
                await asyncio.wait([serving])
                for task in background:
                    task.cancel()

    async def _stop_with_parent(self, place: WorkerPlace) -> None:
        await place.wait_for_orphaning()
        self.stop()

    def _once_per_home(self) -> list[Coroutine[Any, Any, None]]:
        """Return the work that only one process of a home does."""
        gateway = self.gateway
        if not gateway.share.is_first:
            return []
        exporting = [] if gateway.exporter is None else [gateway.exporter.run()]
        chatting = [] if self._chats is None else [self._chats.run()]
        return [self._keep_house_daily(), *exporting, *chatting]

    async def _listen(self) -> None:
        """Pass on notices from every process that uses this home."""
        async with self.gateway.service.live.notices() as notices:
            await self.gateway.decision_log.begin()
            self._is_listening.set()
            async for session in notices:
                self.gateway.tails.notice(session)
                self.gateway.inboxes.notice(session)
                self.gateway.drives.wake(session)
                if self.gateway.share.has(session):
                    self.gateway.decision_log.notice(session)
                if self.gateway.exporter is not None:
                    self.gateway.exporter.notice(session)

    async def _keep_house_daily(self) -> None:
        """
        Delete old data at the start and every day, or sooner if one pass left some. Log a failure
        and try again later.
        """
        while self._keep_house is not None:
            is_more = False
            try:
                is_more = await self._keep_house()
            except (HoldfastError, OSError) as exc:
                _log.warning("nothing was let go of: %s", exc)
            await asyncio.sleep(_MORE_HOUSE_SECONDS if is_more else _HOUSE_SECONDS)


@asynccontextmanager
async def open_serving(
    service: Service,
    settings: GatewaySettings,
    *,
    workspace: Callable[[], Workspace | None] = lambda: None,
    keep_house: KeepHouse | None = None,
    exporter: TelemetryExporter | None = None,
    place: WorkerPlace | None = None,
    chats: Sequence[OpenChat] = (),
) -> AsyncGenerator[Serving, None]:
    """
    Hold the home and open the socket. A worker gets both from its parent. Nothing answers before
    `run`.
    """
    with contextlib.ExitStack() as stack:
        if place is None:
            sock, _ = stack.enter_context(open_port(settings, home_folder(service)))
        else:
            sock = stack.enter_context(contextlib.closing(place.socket()))
        bound = msgspec.structs.replace(settings, port=sock.getsockname()[1])
        gateway = Gateway(service, bound, workspace=workspace, exporter=exporter, place=place)
        config = uvicorn.Config(
            make_app(gateway),
            http=Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            # Each of several workers takes one connection at a time, so that none takes them all.
            backlog=_BACKLOG if place is None else 1,
            timeout_keep_alive=65,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        runner = ChatRunner(gateway, chats) if chats else None
        if runner is not None:
            gateway.chat_receiver = runner.receiver
            if gateway.share.is_first:  # it listens; every worker receives
                gateway.chats_down = runner.down_now
        yield Serving(
            gateway, Server(config), sock, keep_house=keep_house, chats=runner, place=place
        )


def home_folder(service: Service) -> Path | None:
    """Return the home's folder; None if the home is not in files."""
    return Path(folder) if (folder := service.live.home_folder) is not None else None


@contextmanager
def open_port(
    settings: GatewaySettings, home: Path | None
) -> Generator[tuple[socket.socket, ServeLock | None], None, None]:
    """Hold the home, and listen at the address of the settings."""
    check_host(settings)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(hold_home(home)) if home is not None else None
        sock = stack.enter_context(contextlib.closing(_listening(settings)))
        if lock is not None:
            lock.say(address_of(settings.host, sock.getsockname()[1]))
        yield sock, lock


def check_host(settings: GatewaySettings) -> None:
    """Allow only a loopback address, unless settings explicitly allow remote clients."""
    try:
        is_local = ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        is_local = settings.host == "localhost"
    if not is_local and not settings.allow_remote:
        raise Unusable(
            f"{settings.host} can be reached from other machines, and this server speaks plain "
            "HTTP",
            code="not_loopback",
            hint="put a TLS proxy in front and set serve.allow_remote = true and serve.hosts in "
            "holdfast.toml",
        )


def _listening(settings: GatewaySettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # Name TCP explicitly: only then does asyncio send small writes at once, so an answer's body
        # does not wait for the acknowledgement of its head.
        sock = socket.socket(found[0], found[1], socket.IPPROTO_TCP)
    except OSError as exc:
        raise Unusable(
            f"{settings.host} is not an address of this machine: {exc}",
            code="address",
            hint="--host 127.0.0.1",
        ) from exc
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(found[4])
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        raise Busy(
            f"port {settings.port} of {settings.host} is taken: {exc.strerror}",
            code="address",
            hint="--port 0 takes any free one",
        ) from exc
    sock.setblocking(False)  # noqa: FBT003  # the standard library's own way
    return sock


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system allows; each stream needs a descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE,
            (max(soft, hard if hard != resource.RLIM_INFINITY else 65_536), hard),
        )


async def serve_until_signalled(serving: Serving) -> None:
    """Run until SIGTERM or SIGINT. The second signal does not wait."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.stop)
    try:
        await serving.run()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
