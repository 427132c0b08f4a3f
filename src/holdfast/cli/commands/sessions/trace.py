"""
`holdfast sessions trace`: a session's spans, computed from its journal, shown or sent.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.commands.sessions import unknown
from holdfast.cli.shared.arguments import SessionArgument
from holdfast.cli.shared.options import Options, command, options_of, refuse_blank
from holdfast.cli.shared.service import home_of, looking_service, run
from holdfast.errors import Unusable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from holdfast.runtime.service import Service
    from holdfast.telemetry.span import Span

_BATCH_SPANS = 512
_RESULTS = (
    "holdfast.turn.outcome",
    "holdfast.call.outcome",
    "holdfast.job.outcome",
    "holdfast.approval.option",
    "holdfast.approval.closed_as",
)
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def register(app: typer.Typer) -> None:
    @command(
        app,
        "trace",
        example="holdfast sessions trace ops/api\nholdfast sessions trace ops/api --otlp "
        "http://127.0.0.1:4318",
    )
    def trace(
        ctx: typer.Context,
        session: SessionArgument,
        otlp: Annotated[
            str | None,
            typer.Option(
                "--otlp",
                metavar="URL",
                help="Send the spans to this collector (OTLP over HTTP) as well.",
            ),
        ] = None,
        content: Annotated[
            bool,
            typer.Option("--content", help="With messages, arguments and results."),
        ] = False,
    ) -> None:
        """
        Show how a session's turns ran: drives, model calls, prompts and tools, with their times.

        The spans are computed from the journal. Their ids are always the same, so they can be sent
        again without harm.
        """
        options = options_of(ctx)
        refuse_blank(otlp=otlp)
        run(lambda: _trace(options, session, otlp, with_content=content))


async def _trace(options: Options, session: str, otlp: str | None, *, with_content: bool) -> int:
    from holdfast.cli.shared.id_prefix import whole_session
    from holdfast.ids import session_id

    name = session_id(session)
    async with looking_service(options) as service:
        if service is None:
            raise unknown(name)
        name = session_id(await whole_session(service, session))
        spans = await _spans_of(service, name, with_content=with_content)
        if otlp is not None:
            await _send(options, home_of(options), otlp, spans)
    options.out.result([*spans], _text(spans) or f"{name} has no finished step yet")
    return 0


async def _spans_of(service: "Service", session: str, *, with_content: bool) -> "list[Span]":
    import msgspec

    from holdfast.ids import session_id
    from holdfast.journal.record import Record
    from holdfast.secrecy import secrecy_of
    from holdfast.session.codec import decode
    from holdfast.telemetry.span import Span
    from holdfast.telemetry.trace import trace
    from holdfast.telemetry.trace_state import TraceState

    state, spans = TraceState(), list[Span]()

    def fold(record: Record) -> None:
        nonlocal state
        event = decode(record.type, record.version, record.body)
        state, found = trace(state, event, at=record.at, with_content=with_content)
        spans.extend(found)

    async with service.live.read_anew(session_id(session)) as journal:
        await journal.load(fold)
    spans.sort(key=lambda span: span.started_at)
    hidden = secrecy_of(service.live.secrets).hidden_json(msgspec.json.encode(spans))
    return msgspec.json.decode(hidden, type=list[Span])


async def _send(options: Options, home: "Path", otlp: str, spans: "Sequence[Span]") -> None:
    from holdfast.assembly.telemetry import collector_of
    from holdfast.ports.telemetry import NotCollected
    from holdfast.settings import SettingsSource, values

    try:
        collector = collector_of(SettingsSource(home).now(), values.collector(otlp))
    except values.Wrong as exc:
        raise Unusable(
            f"--otlp {exc.text}",
            code="malformed",
            hint="name the collector, as in --otlp http://127.0.0.1:4318",
        ) from exc
    for first in range(0, len(spans), _BATCH_SPANS):
        batch = spans[first : first + _BATCH_SPANS]
        try:
            await collector.send_spans(batch)
        except NotCollected as exc:
            raise Unusable(
                f"{first} of {len(spans)} spans were sent: {exc}",
                code="not_collected",
                hint="start the collector, or name another one with --otlp; sending again is safe",
            ) from exc
    options.out.note(f"sent {len(spans)} spans to {otlp}")


def _text(spans: "Sequence[Span]") -> str:
    """Each trace as a block: its root, then the steps inside it."""
    roots = [span for span in spans if span.parent_id is None]
    inside: dict[str, list[Span]] = {}
    for span in spans:
        if span.parent_id is not None:
            inside.setdefault(span.trace_id, []).append(span)
    lines = []
    for root in roots:
        time = datetime.fromtimestamp(root.started_at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines.append(f"{time}  {_line(root)}")
        lines += [f"{'':21}  {_line(span)}" for span in inside.get(root.trace_id, ())]
    return "\n".join(lines)


def _line(span: "Span") -> str:
    facts = [span.name]
    if span.ended_at > span.started_at:
        facts.append(_length((span.ended_at - span.started_at) / 1000))
    known = span.attributes
    facts += [str(known[key]) for key in _RESULTS if key in known]
    if "holdfast.approval.wait_seconds" in known:
        facts.append(f"after {_length(float(str(known['holdfast.approval.wait_seconds'])))}")
    if tokens := known.get("gen_ai.usage.input_tokens"):
        facts.append(f"{tokens} tokens in, {known['gen_ai.usage.output_tokens']} out")
    if span.error_type is not None and span.error_type not in facts:
        facts.append(f"error: {span.error_type}")
    return "  ".join(facts)


def _length(seconds: float) -> str:
    """
    >>> _length(0.0421), _length(75), _length(7260), _length(180000)
    ('0.04 s', '1 min 15 s', '2 h 1 min', '2 d 2 h')
    """
    if seconds < _MINUTE:
        return f"{seconds:.2f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"
