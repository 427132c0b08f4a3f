"""
A real server on a home of its own, over loopback: started, killed and started again as an operator
would.
"""

import asyncio
import json
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar
from zlib import crc32

import httpx
import psycopg
import pytest

from holdfast.adapters.mcp.process import end_abandoned
from holdfast.adapters.postgres.home.create import init_home
from holdfast.adapters.postgres.server import DatabaseAddress
from holdfast.assembly.service import open_service
from holdfast.cli.shared.identity import login
from holdfast.gateway.server.one_time_codes import new_code
from holdfast.gateway.server.tokens import SCOPES, TokenBook
from holdfast.ids import SessionId
from holdfast.runtime.reports.types import ApprovalReport
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.authority.context import MessageSource
from tests.warm import WarmProcess, WarmStart

T = TypeVar("T")

COMMAND = (sys.executable, "-m", "holdfast")
TAKEN = {
    "started",
    "handed_on",
}  # the answer is durable either way; which of them is told depends on how fast the machine is
WAIT_SECONDS = 60.0  # how long anything here may take before it counts as hung


def until(true: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """
    Wait until something holds, and return it. The only waiting there is here; it ends as soon as it
    can.
    """
    ends = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > ends:
            pytest.fail(f"waited {seconds} s for {what}")
        threading.Event().wait(0.02)
    return found


class Events:
    """One live stream, read by a thread; each event is (name, id, data)."""

    def __init__(self, client: httpx.Client, path: str, headers: dict[str, str]) -> None:
        self._queue: queue.Queue[tuple[str, str | None, Any] | None] = queue.Queue()
        self._stack = client.stream("GET", path, headers=headers, timeout=WAIT_SECONDS)
        self.response = self._stack.__enter__()
        self.heard: list[tuple[str, str | None, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name, ident, data = "message", None, ""
        try:
            for line in self.response.iter_lines():
                if line == "":
                    if data:
                        self._queue.put((name, ident, json.loads(data)))
                    name, ident, data = "message", None, ""
                elif line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("id: "):
                    ident = line[4:]
                elif line.startswith("data: "):
                    data = line[6:]
        except (httpx.HTTPError, httpx.StreamError):
            pass
        self._queue.put(None)

    def next(self, seconds: float = WAIT_SECONDS) -> tuple[str, str | None, Any] | None:
        """The next event; None when the stream has ended."""
        event = self._queue.get(timeout=seconds)
        if event is not None:
            self.heard.append(event)
        return event

    def until(self, wanted: Callable[[str, Any], bool], seconds: float = WAIT_SECONDS) -> Any:
        ends = time.monotonic() + seconds
        while (event := self.next(max(0.01, ends - time.monotonic()))) is not None:
            if wanted(event[0], event[2]):
                return event[2]
        pytest.fail("the stream ended before what was waited for")

    def until_record(self, kind: str, **fields: Any) -> Any:
        return self.until(
            lambda name, data: (
                name == "record"
                and data["type"] == kind
                and all(data["body"].get(key) == value for key, value in fields.items())
            )
        )

    def close(self) -> None:
        self._stack.__exit__(None, None, None)


class Gateway:
    """A home, and at times a process that serves it."""

    def __init__(self, folder: Path, warm: WarmStart | None) -> None:
        self.warm = warm
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[str] | WarmProcess | None = None
        self._out: TextIO | None = None
        self.port = 0
        self.said: dict[str, Any] = {}
        self._code: str | None = None
        self.log = folder / "serve.log"
        self._clients: list[httpx.Client] = []

    # --- commands

    def run(self, *arguments: str, check: bool = True) -> Any:
        words, env = ["--home", str(self.home), "--json", *arguments], self._environment()
        if self.warm is not None and self.warm.begins_like(env):
            done = self.warm.run(words, cwd=self.work, env=env, stdin="", seconds=60)
        else:
            done = subprocess.run(
                [*COMMAND, *words],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                cwd=self.work,
                env=env,
            )
        if check:
            assert done.returncode in (0, 3), done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        return json.loads(lines[-1]) if lines else None

    def _environment(self) -> dict[str, str]:
        return {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("HOLDFAST_", "PYTEST"))
        }

    def settings(self, text: str) -> None:
        self.home.mkdir(mode=0o700, exist_ok=True)
        path = self.home / "holdfast.toml"
        path.write_text(text)
        path.chmod(0o600)

    def script(self, *lines: dict[str, Any], name: str = "script.jsonl") -> str:
        path = self.work / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return f"script:{path}"

    def token(
        self,
        person: str,
        scopes: str = "read,send,approve",
        audience: str = "personal",
        name: str | None = None,
        expires_seconds: int | None = None,
    ) -> str:
        """As `holdfast tokens add` makes it, without the wait for another Python to start."""
        name = name or f"{person}-{secrets.token_hex(3)}"

        async def add(service: Service) -> str:
            now = service.runtime.world.clock.now_ms()
            ends = now + expires_seconds * 1000 if expires_seconds is not None else None
            token, _ = await TokenBook(service.home).add(
                name,
                person=person,
                scopes=scopes.split(","),
                audience=audience,
                expires_at=ends,
                by="tests",
                now=now,
            )
            return token

        return self.elsewhere(add)

    def elsewhere(self, do: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        """In another process than the server's: this one, as a command would."""

        async def run() -> T:
            async with open_service(self.home) as service:
                return await do(service)

        # In a thread of its own: a browser's driver runs a loop in this one.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(run())).result()

    def lines(self, session: str) -> list[dict[str, Any]]:
        """The stored lines of a session, decoded; none if it does not exist yet."""

        async def read(service: Service) -> list[dict[str, Any]]:
            store = service.runtime.world.store
            if await store.current(SessionId(session)) is None:
                return []
            journal = await store.open(SessionId(session))
            try:
                return [json.loads(line) async for line in journal.lines()]
            finally:
                await journal.close()

        return self.elsewhere(read)

    def ask(self, session: str, text: str, person: str = "alice") -> ApprovalReport:
        """A message of theirs that parks, by another process than the server's."""

        async def send(service: Service) -> ApprovalReport:
            report = await service.send(
                session,
                Incoming(
                    text=text,
                    source=MessageSource.local(person),
                    workspace=service.runtime.world.workspace(str(self.work)),
                ),
            )
            return report.approvals[0]

        return self.elsewhere(send)

    # --- the server

    def start(
        self, port: int | None = None, *, program: Sequence[str] = COMMAND, ready: bool = True
    ) -> "Gateway":
        if self.process is not None:
            self._ended()
        words = [
            "--home",
            str(self.home),
            "--json",
            "serve",
            "--port",
            str(port if port is not None else self.port),
        ]
        hear, say = os.pipe()
        self._out = os.fdopen(hear)
        with (
            self.log.open("a") as log,
            os.fdopen(say, "w") as out,
            Path(os.devnull).open() as nothing,
        ):
            self.process = self._started(program, words, nothing, out, log)
        line = self._out.readline()
        assert line, self.log.read_text()
        self.said = json.loads(line)
        self._code = None
        self.port = int(self.said["url"].rpartition(":")[2])
        until(self._is_ready if ready else self._is_alive, "the server to be ready")
        return self

    def _started(
        self, program: Sequence[str], words: Sequence[str], *streams: TextIO
    ) -> "subprocess.Popen[str] | WarmProcess":
        nothing, out, log = (each.fileno() for each in streams)
        env = self._environment()
        if program == COMMAND and self.warm is not None and self.warm.begins_like(env):
            return self.warm.start(words, cwd=self.work, env=env, fds=(nothing, out, log))
        return subprocess.Popen(
            [*program, *words],
            stdin=nothing,
            stdout=out,
            stderr=log,
            text=True,
            cwd=self.work,
            env=env,
            start_new_session=True,
        )

    def _is_ready(self) -> bool:
        return self._says_yes("/readyz")

    def _is_alive(self) -> bool:
        return self._says_yes("/healthz")

    def _says_yes(self, path: str) -> bool:
        try:
            return httpx.get(f"{self.url}{path}", timeout=5).status_code == 204
        except httpx.HTTPError:
            return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def code(self) -> str:
        """As `holdfast serve code` gives it: one for each start of the server."""
        if self._code is None:
            self._code = self.elsewhere(
                lambda service: new_code(
                    TokenBook(service.home),
                    person=login(),
                    scopes=SCOPES,
                    by=login(),
                    now=service.runtime.world.clock.now_ms(),
                )
            )
        return self._code

    def kill(self) -> None:
        """kill -9 of the server, and of nobody else."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        assert self.process is not None
        assert self._out is not None
        code = self.process.wait(WAIT_SECONDS)
        self._out.close()
        return code

    def close(self) -> None:
        for client in self._clients:
            client.close()
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self._ended()
            end_abandoned(self.home / "run" / "mcp")  # a server may not read that its input ended

    # --- talking to it

    def client(self, token: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=WAIT_SECONDS)
        self._clients.append(client)
        return client

    def send(
        self, client: httpx.Client, session: str, text: str, key: str | None = None
    ) -> httpx.Response:
        return client.post(
            f"/v1/sessions/{session}/messages",
            json={"text": text},
            headers={"idempotency-key": key} if key else {},
        )

    @contextmanager
    def events(
        self, client: httpx.Client, session: str, after: int | None = None
    ) -> Iterator[Events]:
        stream = Events(
            client,
            f"/v1/sessions/{session}/events",
            {"last-event-id": str(after)} if after is not None else {},
        )
        try:
            yield stream
        finally:
            stream.close()

    def waiting(self, client: httpx.Client, session: str | None = None) -> dict[str, Any]:
        """The first prompt that waits."""

        def found() -> Any:
            all_ = client.get("/v1/approvals").json()["approvals"]
            return next((each for each in all_ if session in (None, each["session"])), None)

        prompt: dict[str, Any] = until(found, "a prompt")
        return prompt

    def answer(
        self, client: httpx.Client, prompt: dict[str, Any], option: str, **more: Any
    ) -> httpx.Response:
        body = {
            "option": option,
            "answer_id": secrets.token_hex(8),
            "digest": prompt["digest"],
            **more,
        }
        return client.post(f"/v1/approvals/{prompt['id']}/answer", json=body)

    def raw(self, request: bytes, *, half_close: bool = False) -> bytes:
        """Bytes in, bytes out: for what no HTTP library would send."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_SECONDS) as connection:
            connection.sendall(request)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
                if b"\r\n\r\n" in answer and _is_whole(answer):
                    break
            return answer


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    return length is not None and len(body) >= int(length[1])


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


class PostgresGateway(Gateway):
    """The same over a home in PostgreSQL: every settings file names the database."""

    def __init__(self, folder: Path, warm: WarmStart | None, place: DatabaseAddress) -> None:
        super().__init__(folder, warm)
        self._place = place
        init_home(place, self.home)
        self.settings("")

    def settings(self, text: str) -> None:
        url, schema = self._place.url, self._place.schema
        super().settings(f'{text}\n[storage]\nurl = "{url}"\nschema = "{schema}"\n')


# Suites that are told over both kinds of home. The page's are about the page, and talk to the same
# server.
BOTH = frozenset(
    f"test_{name}"
    for name in (
        *("api", "decisions", "delegates", "history", "hooks", "inbox"),
        *("one_time_codes", "reminders", "serve", "streams", "telemetry"),
    )
)
POSTGRES_SHARE = 12  # one of so many runs in `make test`, the others in `make test-postgres`


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    is_both = metafunc.module.__name__.rpartition(".")[2] in BOTH
    about_files = metafunc.definition.get_closest_marker("about_files")
    if "gateway" in metafunc.fixturenames and is_both and about_files is None:
        metafunc.parametrize("gateway", ["files", "postgres"], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        given = getattr(item, "callspec", None)
        if given is None or given.params.get("gateway") != "postgres":
            continue
        if crc32(item.nodeid.encode()) % POSTGRES_SHARE:
            item.add_marker(pytest.mark.beyond_share)


@pytest.fixture
def gateway(
    request: pytest.FixtureRequest, tmp_path: Path, warm: WarmStart | None
) -> Generator[Gateway, None, None]:
    if getattr(request, "param", "files") == "files":
        made = Gateway(tmp_path, warm)
        yield made
        made.close()
        return
    cluster = request.getfixturevalue("postgres")
    schema = f"hf_{secrets.token_hex(6)}"
    made = PostgresGateway(tmp_path, warm, DatabaseAddress(cluster.url(), schema))
    yield made
    made.close()
    with psycopg.connect(cluster.url(), autocommit=True) as owner:
        owner.execute(f'drop schema "{schema}" cascade')


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, warm: WarmStart | None
) -> Generator[Gateway, None, None]:
    """One server for tests that only look at what it refuses."""
    made = Gateway(tmp_path_factory.mktemp("gateway"), warm)
    made.start()
    yield made
    made.close()
