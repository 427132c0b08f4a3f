"""
An allowed call of an MCP client: straight to its server, through `/mcp`, and through
`holdfast mcp proxy`.

The three take turns, call by call, with the same server program and bare bytes on each wire, so
that no client's own cost is in any of them. The gateway is `holdfast serve` in a process of its
own. Its syncs are counted there and priced at a bare write+fdatasync on this disk in this run. CPU
time is that of the gateway, the relay and the server, read from the kernel.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.counted import cpu_seconds, noted
from bench.gateway import Served
from bench.ground import Ground, RawFile, Row, Times, timed, told
from bench.journals import LINE_BYTES
from holdfast.assembly.service import open_service
from holdfast.gateway.server.tokens import TokenBook

PART = "mcp proxy"
CALLS = 300
OVER_SECONDS = 0.005
_SERVER = Path(__file__).parent.parent / "tests" / "adapters" / "mcp" / "wire_server.py"
_ECHO = {
    "name": "echo",
    "description": "Say it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def measure(ground: Ground) -> list[Row]:
    folder, calls = ground.fresh("mcp"), ground.count(CALLS, 40)
    raw = RawFile(folder, LINE_BYTES)
    with ExitStack() as stack:
        served = stack.enter_context(_gateway(folder))
        ways = {
            "direct": stack.enter_context(_direct(folder)),
            "/mcp": stack.enter_context(_over_http(served)),
            "mcp proxy": stack.enter_context(_through_relay(served)),
        }
        ran = {name: _Ran() for name in ways}
        limits: list[float] = []
        for number in range(calls):
            limits += [timed(raw.append) for _ in range(3)]
            for name, way in ways.items():
                ran[name].add(way, served, number)
    raw.close()
    price = Times(limits).p50
    return [_row(name, ran[name], ran["direct"], price, calls) for name in ways if name != "direct"]


class _Way(NamedTuple):
    """How a call is made, and the processes that work for it beside the gateway."""

    call: Callable[[int], Any]
    pids: tuple[int, ...]


class _Gateway(NamedTuple):
    served: Served
    syncs: Path


class _Ran:
    """The calls of one way: seconds, syncs and CPU time of the gateway, and of other processes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.syncs: list[int] = []  # until the reply
        self.syncs_in_all: list[int] = []
        self.cpu = self.cpu_until_reply = self.cpu_beside = 0.0

    def add(self, way: _Way, gateway: _Gateway, number: int) -> None:
        pid = gateway.served.pid
        syncs, cpu = noted(gateway.syncs).count, cpu_seconds(pid)
        beside = sum(cpu_seconds(each) for each in way.pids)
        began = time.perf_counter()
        answer = way.call(number)
        self.seconds.append(time.perf_counter() - began)
        self.syncs.append(noted(gateway.syncs).count - syncs)
        self.cpu_until_reply += cpu_seconds(pid) - cpu
        text = answer["result"]["content"][0]["text"]
        assert json.loads(text) == {"text": f"n {number}"}, answer
        self.cpu_beside += sum(cpu_seconds(each) for each in way.pids) - beside
        _rest(gateway.syncs)  # a reply leaves before its turn has ended
        self.syncs_in_all.append(noted(gateway.syncs).count - syncs)
        self.cpu += cpu_seconds(pid) - cpu


def _rest(file: Path) -> None:
    still = 0
    while still < 3:
        before = noted(file).count
        time.sleep(0.005)
        still = still + 1 if noted(file).count == before else 0


def _row(name: str, ran: _Ran, direct: _Ran, price: float, calls: int) -> Row:
    times, bare = Times(ran.seconds), Times(direct.seconds)
    syncs = min(ran.syncs)  # some replies were read after a sync of the turn's end
    later = sorted(ran.syncs_in_all)[calls // 2] - syncs
    over = times.p50 - bare.p50 - syncs * price
    note = (
        f"{calls} calls; {syncs} syncs until the reply at {told(price)} each, {later} after it; "
        f"CPU time of one call: gateway {told(ran.cpu_until_reply / calls)} until the reply and "
        f"{told(ran.cpu / calls)} in all, server and relay {told(ran.cpu_beside / calls)}; "
        f"the reply is there after {times.told()}, directly {bare.told()}"
    )
    return Row(
        PART,
        f"an allowed call through {name}, beyond the direct call and its syncs, p50",
        told(max(over, 0.0)),
        "",
        None,
        f"at most {told(OVER_SECONDS)}",
        over <= OVER_SECONDS,
        note,
    )


# --- the three ways


def _line(number: int, tool: str) -> bytes:
    params = {"name": tool, "arguments": {"text": f"n {number}"}}
    message = {"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params}
    return json.dumps(message).encode()


@contextmanager
def _direct(folder: Path) -> Iterator[_Way]:
    with _program([sys.executable, "-I", str(_SERVER), str(_work(folder / "direct"))]) as process:
        yield _Way(lambda number: _lines(process, _line(number, "echo")), (process.pid,))


@contextmanager
def _through_relay(gateway: _Gateway) -> Iterator[_Way]:
    served = gateway.served
    environment = {**os.environ, "HOLDFAST_TOKEN": served.token, "HOLDFAST_URL": served.url}
    command = [sys.executable, "-m", "holdfast", "mcp", "proxy"]
    with _program(command, environment) as process:
        pids = (process.pid, *_children(served.pid))
        yield _Way(lambda number: _lines(process, _line(number, "wire.echo")), pids)


@contextmanager
def _over_http(gateway: _Gateway) -> Iterator[_Way]:
    served = gateway.served
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call(number: int) -> Any:
            body = _line(number, "wire.echo").decode()
            connection.sendall(served.request("POST", "/mcp", body=body))
            return _answer(connection)

        call(-1)  # its server starts
        yield _Way(call, _children(served.pid))


@contextmanager
def _program(
    command: list[str], environment: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        _lines(process, b'{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{}}')
        yield process
        process.kill()


def _lines(process: "subprocess.Popen[bytes]", line: bytes) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def _answer(connection: socket.socket) -> Any:
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(1 << 16)
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return json.loads(body)


# --- the gateway and its server


def _work(folder: Path) -> Path:
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"tools": [_ECHO]}))
    return folder


def _children(pid: int) -> tuple[int, ...]:
    """Return every process below this one: the confined server and its launcher."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_children(int(child))]
    return tuple(found)


@contextmanager
def _gateway(folder: Path) -> Iterator[_Gateway]:
    home, work, syncs = folder / "home", _work(folder / "work"), folder / "syncs"
    home.mkdir(mode=0o700)
    script = folder / "server.py"
    script.write_bytes(_SERVER.read_bytes())
    command = [os.path.realpath(sys.executable), "-I", str(script), str(work)]
    (home / "holdfast.toml").write_text(
        f"[mcp.wire]\ncommand = {json.dumps(command)}\nread = [{json.dumps(str(script))}]\n"
        f'write = [{json.dumps(str(work))}]\n[policy.personal]\n"wire.*" = "auto"\n'
    )
    token = asyncio.run(_pinned(home))
    words = ["--home", str(home), "--json", "serve", "--port", "0"]
    with subprocess.Popen(
        [sys.executable, "-m", "bench.counted", str(syncs), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        try:
            yield _Gateway(Served(port, token, process.pid), syncs)
        finally:
            process.terminate()


async def _pinned(home: Path) -> str:
    """Pin the server's tool, and return the token of a client."""
    async with open_service(home) as service:
        shown = await service.servers.show(["wire"])
        await service.servers.pin([(each.name, each.digest) for each in shown], by="bench")
        now = service.runtime.world.clock.now_ms()
        token, _ = await TokenBook(service.home).add(
            "bench", person="alice", scopes=("send",), by="bench", now=now
        )
        return token
