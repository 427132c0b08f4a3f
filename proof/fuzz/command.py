"""
Fuzzers of every parser of foreign bytes: records, events, strict JSON, arguments, shell text,
scripts, job reports and HTTP.

A target takes any bytes. It returns, or raises its parser's documented error. Any other exception
and any wrong result is a finding. `python -m proof.fuzz.command TARGET` runs one target with
atheris, guided by coverage, for `--seconds`; without a target it runs all, one after the other. The
tests drive the same targets with Hypothesis. `--corpus` keeps the inputs of a run, one per file,
and the next run tries them first.
"""

import argparse
import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import BrokenChain, NewerVersion, Refused, Unusable
from holdfast.ids import SessionId
from holdfast.journal.record import BIRTH_MAC, Draft, believe, frame, read_unverified
from holdfast.journal.strict import strict_json
from holdfast.ports.tools import InvalidArguments
from proof.child_process import words_for
from proof.fuzz.anchors import attacked, crashed

Target = Callable[[bytes], None]
KEY = b"k" * 32
_WORDS = (
    b'{"seq":1,"at":1,"epoch":0,"writer":"w","type":"note","version":1,"more":false,"digest":"',
    b'","body":{}',
    b',"mac":"',
    b'"}\n',
)
HTTP_STATUSES = frozenset(
    {200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 423, 429, 431, 503}
)


class Found(AssertionError):
    """A parser violated its contract."""


def _expect(holds: object, what: str) -> None:
    if not holds:
        raise Found(what)


def fuzz_record(data: bytes) -> None:
    """
    A line without the key is never trusted and never makes the reader fail. A genuine line with any
    change is not trusted.
    """
    for line in (data, data + b"\n", _WORDS[0] + data + _WORDS[1] + _WORDS[2] + data + _WORDS[3]):
        _expect(
            believe(KEY, BIRTH_MAC, line) is None,
            f"a line without a mac of ours is believed: {line!r}",
        )
        read_unverified(line)
    genuine, _ = frame(
        KEY, BIRTH_MAC, Draft("note", 1, b'{"n":1}'), seq=1, at=1, epoch=0, writer="w"
    )
    _expect(believe(KEY, BIRTH_MAC, genuine) is not None, "a genuine line is not believed")
    if len(data) > 1:
        place, changed = data[0] % len(genuine), bytearray(genuine)
        changed[place : place + 1] = data[1:9]
        _expect(
            bytes(changed) == genuine or believe(KEY, BIRTH_MAC, bytes(changed)) is None,
            f"a changed line is believed: {bytes(changed)!r}",
        )


def fuzz_anchor(data: bytes) -> None:
    """
    A crash is never reported as tampering, and an attacker without a key hides nothing
    acknowledged.
    """
    durable, lag, torn, tail, more = (data[:5] + bytes(5))[:5]
    for found, seq in (
        crashed(durable, lag, torn, tail * 256 + more),
        crashed(durable, 1, torn, 0),
    ):
        _expect(
            found.verdict in {"holds", "torn_tail"} and found.at_seq >= seq,
            f"an honest crash is accused: {found}",
        )
    found, seq = attacked(data)
    _expect(
        found.verdict in {"broken", "cut_short"} or found.at_seq >= seq,
        f"acknowledged records are missing and nobody says so: {found}",
    )


def fuzz_strict(data: bytes) -> None:
    """Accepted JSON reads the same to every reader, and encodes to an equal value."""
    try:
        value = strict_json(data, what="it")
    except Refused:
        return
    again = msgspec.json.encode(value)
    _expect(strict_json(again, what="it") == value, f"{data!r} does not read back")


def fuzz_event(data: bytes) -> None:
    """Any body of any event is decoded, or refused with its name."""
    from holdfast.session.codec import EVENT_TYPES, decode, encode

    names = sorted(EVENT_TYPES)
    name = names[data[0] % len(names)] if data else names[0]
    try:
        event = decode(name, 1, data[1:])
    except (BrokenChain, NewerVersion):
        return
    kind, version, body = encode(event)
    _expect(decode(kind, version, body) == event, f"{name} does not read back: {data[1:]!r}")


@cache
def _tools() -> tuple[Any, ...]:
    from holdfast.adapters.tools.python.decorator import tool
    from holdfast.adapters.tools.registry import builtin_tools

    @tool
    def made(
        text: str,
        number: int = 1,
        words: list[str] | None = None,
        flag: bool = False,  # noqa: FBT001, FBT002
        share: float = 0.5,
    ) -> str:  # a schema
        """Return one of each type."""
        return f"{text}{number}{words}{flag}{share}"

    return (made, *builtin_tools())


def fuzz_arguments(data: bytes) -> None:
    """
    Arguments that a tool accepts are accepted again with the same value: the shown call is the
    executed call.
    """
    tools = _tools()
    chosen = tools[data[0] % len(tools)] if data else tools[0]
    try:
        once = chosen.validate(data[1:])
    except InvalidArguments:
        return
    _expect(
        chosen.validate(once) == once,
        f"{chosen.definition.name}: {data[1:]!r} becomes {once!r}, and that something else",
    )


def fuzz_shell(data: bytes) -> None:
    """Any command is parsed, or the reason is given; the parser never fails."""
    from holdfast.adapters.tools.shell.parse import read_command
    from holdfast.adapters.tools.shell.remembered.commands import why_not_text
    from holdfast.session.view.rendering import render

    text = data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()
    why_not_text(read_command(text))
    shown = render(text).text
    _expect(
        not any(each in shown for each in "\x1b\x00\r\u202e\u200b"), f"something hides in {shown!r}"
    )


def fuzz_script(data: bytes) -> None:
    from holdfast.adapters.models.script import script_from_text

    try:
        script_from_text(data, where="fuzz.jsonl")
    except Unusable:
        return


def fuzz_report(data: bytes) -> None:
    """
    A job report without the key is never trusted, nor is a genuine one with any change or with
    another output. No report makes the reader fail.
    """
    from holdfast.adapters.tools.jobs import report as job_report
    from holdfast.adapters.tools.jobs.supervisor import new_digest, seal
    from holdfast.ids import JobId
    from holdfast.ports.tools import ProcessFacts

    job, process = JobId("j-" + "a" * 26), ProcessFacts(boot_id="boot", group=7, start_time=9)
    digest = new_digest()
    digest.update(b"said")
    facts = {
        "ended": "exited",
        "status": 0,
        "failed": "",
        "bytes": 4,
        "kept": 4,
        "digest": digest.hexdigest(),
        "left": 0,
        "left_names": [],
        "at_ms": 1,
    }
    body = msgspec.json.encode(
        {**facts, "job": job, "boot": "boot", "group": 7, "start_time": 9, "generation": 1}
    )
    genuine = seal(body, KEY)
    report = job_report.verified(genuine, KEY, job, process)
    if report is None:
        raise Found("a genuine report is not believed")
    for raw in (
        data,
        data + b"\n",
        body + b"\n" + data,
        seal(data, b"o" * 32),
        seal(body, b"o" * 32),
        data + genuine,
        genuine + data,
    ):
        job_report.generation_of(raw)
        _expect(
            raw == genuine or job_report.verified(raw, KEY, job, process) is None,
            f"a report without a mac of ours is believed: {raw!r}",
        )
    job_report.verified(
        seal(data, KEY), KEY, job, process
    )  # its mac may be genuine: it must be read without a failure
    for other in (
        ProcessFacts(boot_id="boot", group=7, start_time=8),
        ProcessFacts(boot_id="other", group=7, start_time=9),
    ):
        _expect(
            job_report.verified(genuine, KEY, job, other) is None,
            "a report is believed of another run",
        )
    _expect(
        job_report.verified(genuine, KEY, JobId("j-" + "b" * 26), process) is None,
        "a report is believed of another job",
    )
    _expect(
        data == b"said" or not job_report.is_as_reported(data, report),
        f"another output is believed: {data!r}",
    )
    if len(data) > 1:
        place, changed = data[0] % len(genuine), bytearray(genuine)
        changed[place : place + 1] = data[1:9]
        believed = job_report.verified(bytes(changed), KEY, job, process) is not None
        _expect(
            bytes(changed) == genuine or not believed,
            f"a changed report is believed: {bytes(changed)!r}",
        )


# --- HTTP


class _Wire(asyncio.Transport):
    """The other end of a connection, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.said = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.said += bytes(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 8321)}.get(name, default)

    def pause_reading(self) -> None:
        """Do nothing: the data is given at once."""

    def resume_reading(self) -> None:
        """Do nothing: the data is given at once."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: every write is accepted."""


class _Gateway:
    """The real app and protocol over a home in memory, on their own loop. Created once."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        import uvicorn
        from uvicorn.server import ServerState

        from holdfast.gateway.http.app import make_app
        from holdfast.gateway.http.context import Gateway, GatewaySettings
        from holdfast.gateway.http.protocol import Protocol
        from holdfast.gateway.server.tokens import TokenBook
        from holdfast.session.authority.context import MessageSource
        from holdfast.testing.memory_home import open_in_memory

        self._home = home = open_in_memory()  # kept: it is closed with the process
        await home.__aenter__()
        await home.send(SessionId("ops/api"), "help", source=MessageSource.local("alice"))
        self.token, _ = await TokenBook(home.service.home).add(
            "fuzz",
            person="alice",
            scopes=["read", "send", "approve"],
            audience="personal",
            expires_at=None,
            by="fuzz",
            now=0,
        )
        gateway = Gateway(
            home.service,
            GatewaySettings(requests_per_second=1e9, requests_burst=1e9),
            workspace=lambda: None,
        )
        config = uvicorn.Config(
            make_app(gateway),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
        )
        config.load()
        self._made: Callable[[], Any] = lambda: Protocol(
            config=config, server_state=ServerState(), app_state={}
        )

    def answers(self, request: bytes) -> bytes:
        return self.loop.run_until_complete(self._answers(request))

    async def _answers(self, request: bytes) -> bytes:
        protocol, wire = self._made(), _Wire()
        protocol.connection_made(wire)
        protocol.data_received(request)
        for _ in range(40):
            await asyncio.sleep(0)
        if not wire.closed:
            protocol.eof_received()
        protocol.connection_lost(None)
        for _ in range(10):
            await asyncio.sleep(0)
        return wire.said


@cache
def _gateway() -> _Gateway:
    return _Gateway()


def fuzz_http(data: bytes) -> None:
    """
    Any bytes get a documented status or silence, never a server error. The first byte decides how
    much of a request is sent.
    """
    gateway = _gateway()
    host, bearer = (
        b"Host: 127.0.0.1:8321\r\n",
        b"Authorization: Bearer " + gateway.token.encode() + b"\r\n",
    )
    kind, rest = (data[0] % 4, data[1:]) if data else (0, b"")
    path, _, body = rest.partition(b"\n")
    requests = (
        rest,
        b"GET /" + rest + b" HTTP/1.1\r\n" + host + bearer + b"\r\n",
        b"POST /v1/sessions/ops/api/messages HTTP/1.1\r\n"
        + host
        + bearer
        + b"Content-Type: application/json\r\n"
        + _length(rest)
        + rest,
        b"POST /v1/"
        + path
        + b" HTTP/1.1\r\n"
        + host
        + bearer
        + b"Content-Type: application/json\r\n"
        + _length(body)
        + body,
    )
    if not requests[kind]:
        return  # a transport never delivers empty data
    said = gateway.answers(requests[kind])
    if said:
        status = int(said.split(b" ", 2)[1])
        _expect(status in HTTP_STATUSES, f"{requests[kind]!r} is answered with {said[:300]!r}")


def _length(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)


TARGETS: Mapping[str, Target] = {
    "anchor": fuzz_anchor,
    "record": fuzz_record,
    "strict": fuzz_strict,
    "event": fuzz_event,
    "arguments": fuzz_arguments,
    "shell": fuzz_shell,
    "script": fuzz_script,
    "report": fuzz_report,
    "http": fuzz_http,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fuzzing", description="Coverage-guided fuzzing of every parser, by atheris."
    )
    parser.add_argument(
        "target",
        nargs="?",
        choices=sorted(TARGETS),
        help="one of them; without it all, one after the other",
    )
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"), help="where inputs are kept")
    options = parser.parse_args(arguments)
    if options.target is not None:
        return _fuzz(options.target, options.seconds, options.corpus)
    for name in TARGETS:
        words = [
            *words_for("proof.fuzz.command"),
            name,
            "--seconds",
            str(options.seconds),
            "--corpus",
            str(options.corpus),
        ]
        done = subprocess.run(words, check=False)  # atheris takes over the whole process
        if done.returncode != 0:
            sys.stderr.write(f"{name}: a finding; the input that led to it lies where it says\n")
            return done.returncode
    return 0


def _fuzz(name: str, seconds: int, corpus: Path) -> int:
    try:
        atheris: Any = importlib.import_module("atheris")
    except ModuleNotFoundError:
        sys.stderr.write("atheris is not installed: `make fuzz` installs it\n")
        return 2
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]
    if name == "http":
        _gateway()
    with atheris.instrument_imports():  # instruments later imports; the others are done by hand
        target(b"")
    for module in [
        each
        for key, each in sys.modules.items()
        if key.startswith(("holdfast.journal", "holdfast.gateway", "holdfast.adapters"))
    ]:
        _instrument(atheris, module)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-artifact_prefix={folder}/found-",
            "-print_final_stats=1",
            str(folder),
        ],
        target,
    )
    atheris.Fuzz()
    return 0


def _instrument(atheris: Any, module: Any) -> None:
    for name, value in list(vars(module).items()):
        if (
            callable(value)
            and getattr(value, "__module__", None) == module.__name__
            and hasattr(value, "__code__")
        ):
            setattr(module, name, atheris.instrument_func(value))


if __name__ == "__main__":
    sys.exit(main())
