"""
The gateway over loopback: how soon a thousand followers and a thousand inboxes hear, how many
messages a second are taken in, what an answer costs until its tool starts.

Client and server never share a process. For the first three the server is one of its own, as people
run it. For the fourth it is in this one, so that the syncs on the way can be counted, and who asks
is another (`bench.asking`). The syncs are priced at what a bare write+fdatasync costs on this disk
in this run; what a request that does nothing takes on the same connection is said beside it. Every
row's connections and processes have ended before the next row begins.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from bench.asking import Asker, asking, request_text
from bench.ground import Ground, RawFile, Row, Syncs, Times, compared, counting_syncs, timed, told
from bench.journals import LINE_BYTES
from holdfast.assembly.home_path import folder_identity
from holdfast.assembly.service import open_service
from holdfast.gateway.http.context import GatewaySettings
from holdfast.gateway.server.serve import Serving, allow_many_files, open_serving
from holdfast.gateway.server.tokens import TokenBook
from holdfast.session.authority.context import Workspace

PART = "gateway"
FOLLOWERS = 1_000
FOLLOW_GOAL_SECONDS = 0.25
MESSAGES_GOAL = 200
ANSWER_GOAL = 3.0
SENDERS = 32
_HEAD_MAX = 1 << 20


class Served(NamedTuple):
    port: int
    token: str
    pid: int = 0  # of a server in a process of its own

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, *headers: str, body: str = "") -> bytes:
        return request_text(method, path, self.port, self.token, *headers, body=body).encode()


def measure(ground: Ground) -> list[Row]:
    allow_many_files()
    return [*_followers(ground), *_inboxes(ground), *_messages(ground), *_answers(ground)]


# --- a server of its own


@contextmanager
def server_process(
    folder: Path, script_lines: str = '{"say": "at once"}\n', options: Sequence[str] = ()
) -> Iterator[Served]:
    home, work = folder / "home", folder / "work"
    work.mkdir()
    script = work / "script.jsonl"
    script.write_text(script_lines)
    home.mkdir(mode=0o700)
    (home / "holdfast.toml").write_text(
        f'[agents.assistant]\nmodel = "script:{script}"\ntools = ["now", "ask_person"]\n'
    )
    token = asyncio.run(_new_token(home))
    command = [
        sys.executable,
        "-m",
        "holdfast",
        "--home",
        str(home),
        "--json",
        "serve",
        "--port",
        "0",
        *options,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=work
    ) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
                for _ in range(500):
                    if client.get("/readyz").status_code == 204:
                        break
                    time.sleep(0.01)
            yield Served(port, token, process.pid)
        finally:
            process.terminate()


async def _new_token(home: Path) -> str:
    async with open_service(home) as service:
        now = service.runtime.world.clock.now_ms()
        token, _ = await TokenBook(service.home).add(
            "bench", person="alice", scopes=("read", "send", "approve"), by="bench", now=now
        )
        return token


# --- followers


def _followers(ground: Ground) -> list[Row]:
    count, rounds = ground.count(FOLLOWERS), ground.count(20, 5)
    with server_process(ground.fresh("followers")) as served:
        late, opened = asyncio.run(_fan_out(served, count, rounds))
    goal = f"p99 at most {told(FOLLOW_GOAL_SECONDS)}"
    note = f"{count} followers of one session, {rounds} messages; from the record's own time to the client; {told(opened)} to open them all"
    return [
        Row(
            PART,
            f"{count} followers hear of a message, p99",
            late.told(),
            "",
            None,
            goal,
            late.p99 <= FOLLOW_GOAL_SECONDS,
            note,
        )
    ]


async def _fan_out(served: Served, count: int, rounds: int) -> tuple[Times, float]:
    async with _asyncly(served) as client:
        await _send(client, "bench/fan", "first")
        seq = await _settled(client, "bench/fan")
        request = served.request("GET", "/v1/sessions/bench/fan/events", f"Last-Event-ID: {seq}")
        async with _streams(served, count, request, b"retry: 1000\n\n") as (readers, opened):
            late: list[float] = []
            for number in range(rounds):
                waiting = [asyncio.ensure_future(_hears(reader)) for reader in readers]
                await _send(client, "bench/fan", f"message {number}")
                late += await asyncio.gather(*waiting)
                await _settled(client, "bench/fan")
    return Times(late), opened


def _asyncly(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=served.url, headers={"authorization": f"Bearer {served.token}"}, timeout=60
    )


@asynccontextmanager
async def _streams(
    served: Served, count: int, request: bytes, until: bytes
) -> AsyncIterator[tuple[list[asyncio.StreamReader], float]]:
    """
    So many live streams, each open as far as `until`, and how long that took. All of them are
    closed when this returns.
    """
    started = time.perf_counter()
    streams = [
        await asyncio.open_connection("127.0.0.1", served.port, limit=_HEAD_MAX)
        for _ in range(count)
    ]
    try:
        for _, writer in streams:
            writer.write(request)
        for reader, _ in streams:
            await reader.readuntil(until)
        yield [reader for reader, _ in streams], time.perf_counter() - started
    finally:
        await _hang_up([writer for _, writer in streams])


async def _hang_up(writers: Sequence[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def _hears(reader: asyncio.StreamReader) -> float:
    while True:
        line = await reader.readuntil(b"\n")
        if b'"type":"input_accepted"' in line:
            return time.time() - int(line.partition(b'"at":')[2].split(b",", 1)[0]) / 1000


async def _send(client: httpx.AsyncClient, session: str, text: str) -> None:
    answer = await client.post(f"/v1/sessions/{session}/messages", json={"text": text})
    assert answer.status_code == 202, answer.text


async def _settled(client: httpx.AsyncClient, session: str) -> int:
    for _ in range(2_000):
        shown = (await client.get(f"/v1/sessions/{session}")).json()
        if shown["phase"] == "idle":
            return int(shown["seq"])
        await asyncio.sleep(0.005)
    raise TimeoutError(session)


# --- inboxes


def _inboxes(ground: Ground) -> list[Row]:
    count, rounds = ground.count(FOLLOWERS), ground.count(20, 5)
    with server_process(
        ground.fresh("inboxes"),
        '{"call": [{"tool": "ask_person", "args": {"question": "go on?"}}]}\n' * (rounds + 1),
    ) as served:
        late, opened = asyncio.run(_ask_around(served, count, rounds))
    goal = f"p99 at most {told(FOLLOW_GOAL_SECONDS)}"
    note = f"{count} live inboxes, {rounds} prompts; from the record's own time to the client; {told(opened)} to open them all"
    return [
        Row(
            PART,
            f"{count} inboxes hear of a prompt, p99",
            late.told(),
            "",
            None,
            goal,
            late.p99 <= FOLLOW_GOAL_SECONDS,
            note,
        )
    ]


async def _ask_around(served: Served, count: int, rounds: int) -> tuple[Times, float]:
    request = served.request("GET", "/v1/approvals/events")
    async with (
        _asyncly(served) as client,
        _streams(served, count, request, b'"more":false}\n\n') as (readers, opened),
    ):
        late: list[float] = []
        for number in range(rounds):
            waiting = [asyncio.ensure_future(_hears_of_prompt(reader)) for reader in readers]
            await _send(client, f"bench/ask{number}", "ask me")
            late += await asyncio.gather(*waiting)
    return Times(late), opened


async def _hears_of_prompt(reader: asyncio.StreamReader) -> float:
    while True:
        line = await reader.readuntil(b"\n")
        if b'"requested_at":"' in line:
            asked = line.partition(b'"requested_at":"')[2].partition(b'"')[0].decode()
            return time.time() - datetime.fromisoformat(asked).timestamp()


# --- messages


def _messages(ground: Ground) -> list[Row]:
    each = ground.count(40, 10)
    with server_process(ground.fresh("messages")) as served:
        taken, seconds, times = asyncio.run(_pour(served, each))
    per_second = taken / seconds
    note = f"{SENDERS} senders in as many sessions, every turn driven meanwhile; one message {times.told()}"
    goal = f"at least {MESSAGES_GOAL} a second"
    return [
        Row(
            PART,
            "messages taken in durably, a second",
            f"{per_second:.0f}",
            "",
            None,
            goal,
            per_second >= MESSAGES_GOAL,
            note,
        )
    ]


async def _pour(served: Served, each: int) -> tuple[int, float, Times]:
    found: list[float] = []

    async def sender(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for count in range(-2, each):
            body = json.dumps({"text": f"message {count}"})
            started = time.perf_counter()
            writer.write(
                served.request("POST", f"/v1/sessions/bench/s{number}/messages", body=body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b" 202 " in head, head
            await reader.readexactly(
                int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
            )
            if count == -1:
                ready.release()
                await go.wait()
            elif count >= 0:
                found.append(time.perf_counter() - started)
        await _hang_up([writer])

    ready, go = asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(SENDERS):
            group.create_task(sender(number))
        for _ in range(SENDERS):
            await ready.acquire()
        started = time.perf_counter()
        go.set()
    return len(found), time.perf_counter() - started, Times(found)


# --- answers


def _answers(ground: Ground) -> list[Row]:
    kinds = [
        ("answer over HTTP to ToolStarted, p50", "write file-{}.txt: hello"),
        ("answer over HTTP to ToolStarted of a command, p50", "run: echo {}"),
    ]
    return [_answer_row(ground, what, text) for what, text in kinds]


def _answer_row(ground: Ground, what: str, text: str) -> Row:
    folder = ground.fresh("answers")
    times = ground.count(40, 10)
    raw = RawFile(folder, LINE_BYTES)
    answers: list[_Answer] = []
    bare: list[float] = []
    limits: list[float] = []
    with (
        counting_syncs() as counted,
        _in_this_process(folder) as served,
        asking(served.port, served.token) as client,
    ):
        for number in range(times):
            limits += [timed(raw.append) for _ in range(5)]
            prompt = _prompt(client, number, text.format(number))
            _rest(counted)
            bare.append(client.ask("GET", "/healthz").seconds)
            answers.append(_answered(client, prompt, counted))
    raw.close()
    each, on_the_way = (
        Times(limits).p50,
        min(len(answer.synced) for answer in answers),
    )  # the tool and what it says sync too, beside the answer
    heard = Times([answer.heard for answer in answers])
    durable = Times([answer.synced[on_the_way - 1] for answer in answers])
    note = (
        f"{on_the_way} syncs on the way at {told(each)} each; until the client heard {heard.told()}, of which durable after {told(durable.p50)}; "
        f"a request that does nothing, on the same connection: {Times(bare).told()}"
    )
    return compared(PART, what, heard.p50, each * on_the_way, at_most=ANSWER_GOAL, note=note)


def _rest(counted: Callable[[], Syncs]) -> None:
    """
    Until the turn that asked has come to rest: what it still syncs is not on the answer's way.
    """
    for _ in range(200):
        before = counted().count
        time.sleep(0.02)
        if counted().count == before:
            return


@contextmanager
def _in_this_process(folder: Path) -> Iterator[Served]:
    ready: threading.Event = threading.Event()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: asyncio.run(_serve(folder, ready, found)))
    thread.start()
    assert ready.wait(30)
    serving, loop, token = found
    try:
        yield Served(serving.gateway.settings.port, token)
    finally:
        loop.call_soon_threadsafe(serving.stop)
        thread.join(30)


async def _serve(folder: Path, ready: threading.Event, found: list[Any]) -> None:
    home, work = folder / "home", folder / "work"
    work.mkdir()
    identity = folder_identity(str(work)) or ""
    token = await _new_token(home)
    async with (
        open_service(home) as service,
        open_serving(
            service, GatewaySettings(port=0), workspace=lambda: Workspace(str(work), identity)
        ) as serving,
    ):
        found += [serving, asyncio.get_running_loop(), token]
        async with asyncio.TaskGroup() as group:
            group.create_task(serving.run())
            await serving.started.wait()
            ready.set()


def _prompt(client: Asker, number: int, text: str) -> dict[str, Any]:
    assert (
        client.ask("POST", f"/v1/sessions/bench/a{number}/messages", {"text": text}).status == 202
    )
    for _ in range(2_000):
        waiting: list[dict[str, Any]] = client.ask("GET", "/v1/approvals").json()["approvals"]
        if waiting:
            return waiting[0]
        time.sleep(0.002)
    raise TimeoutError(text)


class _Answer(NamedTuple):
    """
    Seconds from the request: until its client heard `started`, and until each sync since had ended.
    """

    heard: float
    synced: list[float]


def _answered(client: Asker, prompt: dict[str, Any], counted: Callable[[], Syncs]) -> _Answer:
    """
    The answer waits for the durable ToolStarted, and for nothing after it, before it says
    `started`.
    """
    before = counted().count
    body = {"option": "approve_once", "answer_id": os.urandom(8).hex(), "digest": prompt["digest"]}
    reply = client.ask("POST", f"/v1/approvals/{prompt['id']}/answer", body)
    assert reply.json()["result"] == "started", reply.body
    return _Answer(
        reply.seconds,
        [ended - reply.began for ended in counted().ends[before:] if ended <= reply.ended],
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for row in measure(Ground(Path(folder))):
            print(
                f"{row.what}: {row.ours}{f' ({row.ratio:.2f} x)' if row.ratio is not None else ''}; goal {row.goal}: {row.reached}; {row.note}"
            )


__all__ = ["PART", "Serving", "main", "measure"]

if __name__ == "__main__":
    main()
