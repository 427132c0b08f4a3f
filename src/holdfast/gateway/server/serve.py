"""
`holdfast serve`: one process that answers requests, drives turns and stops in order.

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
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import uvicorn

from holdfast.errors import Busy, HoldfastError, Unusable
from holdfast.gateway.http.app import make_app
from holdfast.gateway.http.context import Gateway, GatewaySettings
from holdfast.gateway.http.protocol import Protocol
from holdfast.gateway.server.one_time_codes import new_code, page_at
from holdfast.gateway.server.serve_lock import hold_home
from holdfast.gateway.server.tokens import SCOPES
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
        self.is_up.set()


class Serving:
    """A gateway that answers at `address` until `stop` is called."""

    def __init__(
        self, gateway: Gateway, server: Server, sock: socket.socket, keep_house: KeepHouse | None
    ) -> None:
        self.gateway = gateway
        self._keep_house = keep_house
        self._server = server
        self._socket = sock
        self.stopping = asyncio.Event()
        self.started = asyncio.Event()

    @property
    def address(self) -> str:
        host, port = self.gateway.settings.host, self.gateway.settings.port
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def page_address(self, person: str, *, by: str) -> str:
        """
        Return the page's address with a one-time code in the fragment, which browsers never send.
        """
        now = self.gateway.service.world.now_ms()
        return page_at(
            self.address,
            await new_code(self.gateway.book, person=person, scopes=SCOPES, by=by, now=now),
        )

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
            forever = (gateway.drives.run(), *streaming, self._listen(), self._keep_house_daily())
            background = [group.create_task(each) for each in forever]
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
                await gateway.drives.stop(gateway.settings.stop_seconds)
                await asyncio.wait([serving])
                for task in background:
                    task.cancel()

    async def _listen(self) -> None:
        """Pass on notices from every process that uses this home."""
        async with self.gateway.service.world.notifier.listen() as notices:
            async for session in notices:
                self.gateway.tails.notice(session)
                self.gateway.inboxes.notice(session)
                self.gateway.drives.wake(session)

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
) -> AsyncGenerator[Serving, None]:
    """Hold the home and open the socket. Nothing answers before `run`."""
    check_host(settings)
    home = Path(service.world.home) if service.world.home is not None else None
    with contextlib.ExitStack() as stack:
        tell_others = stack.enter_context(hold_home(home)) if home is not None else None
        sock = stack.enter_context(contextlib.closing(_listening(settings)))
        bound = msgspec.structs.replace(settings, port=sock.getsockname()[1])
        gateway = Gateway(service, bound, workspace=workspace)
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
            backlog=_BACKLOG,
            timeout_keep_alive=65,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
        )
        serving = Serving(gateway, Server(config), sock, keep_house)
        if tell_others is not None:
            tell_others(serving.address)
        yield serving


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
            f"{settings.host} is no address of this machine: {exc}",
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
