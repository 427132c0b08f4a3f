"""
The fuzzed readers of bytes that are not HTTP: records, events, arguments, scripts, job reports.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from holdfast.errors import BrokenChain, NewerVersion, Refused, Unusable
from holdfast.journal.record import ZERO_MAC, Draft, believe, frame, read_unverified
from holdfast.journal.strict import strict_json
from holdfast.ports.tools import InvalidArguments
from proof.fuzz.anchors import attacked, crashed

Target = Callable[[bytes], None]
KEY = b"k" * 32
_WORDS = (
    b'{"seq":1,"at":1,"epoch":0,"writer":"w","type":"note","version":1',
    b',"body":{}',
    b',"mac":"',
    b'"}\n',
)


class Found(AssertionError):
    """A parser violated its contract."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise Found(what)


def fuzz_record(data: bytes) -> None:
    """
    A line without the key is never trusted and never makes the reader fail. A genuine line with any
    change is not trusted.
    """
    for line in (data, data + b"\n", _WORDS[0] + data + _WORDS[1] + _WORDS[2] + data + _WORDS[3]):
        expect(
            believe(KEY, ZERO_MAC, line) is None,
            f"a line without a mac of ours is believed: {line!r}",
        )
        read_unverified(line)
    genuine, _ = frame(
        KEY, ZERO_MAC, Draft("note", 1, b'{"n":1}'), seq=1, at=1, epoch=0, writer="w"
    )
    expect(believe(KEY, ZERO_MAC, genuine) is not None, "a genuine line is not believed")
    if len(data) > 1:
        place, changed = data[0] % len(genuine), bytearray(genuine)
        changed[place : place + 1] = data[1:9]
        expect(
            bytes(changed) == genuine or believe(KEY, ZERO_MAC, bytes(changed)) is None,
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
        expect(
            found.verdict in {"holds", "torn_tail"} and found.at_seq >= seq,
            f"an honest crash is accused: {found}",
        )
    found, seq = attacked(data)
    expect(
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
    expect(strict_json(again, what="it") == value, f"{data!r} does not read back")


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
    expect(decode(kind, version, body) == event, f"{name} does not read back: {data[1:]!r}")


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
    expect(
        chosen.validate(once) == once,
        f"{chosen.definition.name}: {data[1:]!r} becomes {once!r}, and that something else",
    )


def fuzz_shell(data: bytes) -> None:
    """Any command is parsed, or the reason is given; the parser never fails."""
    from holdfast.adapters.tools.shell.parse import read_command
    from holdfast.adapters.tools.shell.remembered.commands import why_not_text
    from holdfast.session.view.safe_text import render

    text = data.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode()
    why_not_text(read_command(text))
    shown = render(text).text
    expect(
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
    from holdfast.adapters.tools.jobs.supervisor import seal
    from holdfast.ids import JobId
    from holdfast.ports.tools import ProcessFacts

    job, process = JobId("j-" + "a" * 26), ProcessFacts(boot_id="boot", group=7, start_time=9)
    body = _report_body(job)
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
        _changed(genuine, data),
    ):
        job_report.generation_of(raw)
        expect(
            raw == genuine or job_report.verified(raw, KEY, job, process) is None,
            f"a report without a mac of ours is believed: {raw!r}",
        )
    job_report.verified(
        seal(data, KEY), KEY, job, process
    )  # its mac may be genuine: it must be read without a failure
    for other_job, other_process in (
        (job, ProcessFacts(boot_id="boot", group=7, start_time=8)),
        (job, ProcessFacts(boot_id="other", group=7, start_time=9)),
        (JobId("j-" + "b" * 26), process),
    ):
        expect(
            job_report.verified(genuine, KEY, other_job, other_process) is None,
            "a report is believed of another run or another job",
        )
    expect(
        data == b"said" or not job_report.is_as_reported(data, report),
        f"another output is believed: {data!r}",
    )


def _report_body(job: str) -> bytes:
    from holdfast.adapters.tools.jobs.supervisor import new_digest

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
    return msgspec.json.encode(
        {**facts, "job": job, "boot": "boot", "group": 7, "start_time": 9, "generation": 1}
    )


def _changed(genuine: bytes, data: bytes) -> bytes:
    """The report with a few bytes of `data` at a place that `data` names."""
    if not data:
        return genuine
    place, changed = data[0] % len(genuine), bytearray(genuine)
    changed[place : place + 1] = data[1:9]
    return bytes(changed)
