"""
The spans of one record: their names, ids and attributes. Names of attributes follow the GenAI
conventions of OpenTelemetry where they exist; the others begin with `holdfast.`.
"""

import msgspec

from holdfast.session.view.messages import Usage
from holdfast.telemetry.span import AttributeValue, Span, SpanKind, SpanLink, span_id, trace_id
from holdfast.telemetry.trace_state import OpenCall, OpenTurn, SpanPlace, TraceState

_CONTENT_CHARS = 8_192  # of one attribute; collectors cut longer ones without a word

Attributes = dict[str, AttributeValue]


class SpanMaker:
    def __init__(self, state: TraceState, at: int, *, with_content: bool) -> None:
        self._state = state
        self._at = at
        self._with_content = with_content
        self.spans: list[Span] = []

    def drive_place(self, name: str, drive: int) -> SpanPlace:
        parts = (self._state.instance, name, str(drive))
        return SpanPlace(trace_id(*parts), span_id("drive", *parts))

    def end_drive(
        self,
        name: str,
        turn: OpenTurn,
        outcome: str,
        *,
        ended_at: int | None = None,
        error_type: str | None = None,
        reply: str | None = None,
    ) -> None:
        place = self.drive_place(name, turn.drive)
        before = self.drive_place(name, turn.drive - 1)
        started_at = turn.drive_at if turn.drive_at is not None else self._at
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": turn.agent,
            "gen_ai.request.model": turn.model,
            "holdfast.turn.outcome": outcome,
            "holdfast.turn.kind": turn.kind,
            "holdfast.drive": turn.drive,
        }
        if turn.loop != "ours":
            attributes["holdfast.external_loop"] = True
        if turn.drive == 1:
            attributes["holdfast.queued_seconds"] = (started_at - turn.accepted_at) / 1000
            self._add_content(attributes, "gen_ai.input.messages", "user", turn.text)
        self._add_content(attributes, "gen_ai.output.messages", "assistant", reply)
        self.add(
            name,
            f"invoke_agent {turn.agent}",
            place,
            started_at=started_at,
            ended_at=ended_at,
            error_type=error_type,
            attributes=attributes,
            links=(link_to(before, "resumes"),) if turn.drive > 1 else (),
        )

    def chat(
        self,
        name: str,
        turn: OpenTurn,
        number: int,
        *,
        model: str,
        started_at: int,
        usage: Usage,
        error_type: str | None = None,
        text: str | None = None,
    ) -> None:
        drive = self.drive_place(name, turn.drive)
        parts = (self._state.instance, name, str(number))
        attributes: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
        }
        if provider := _provider(model):
            attributes["gen_ai.provider.name"] = provider
        if usage.cached_tokens:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        if usage.cost_microusd:
            attributes["holdfast.usage.cost_usd"] = usage.cost_microusd / 1_000_000
        self._add_content(attributes, "gen_ai.output.messages", "assistant", text)
        self.add(
            name,
            f"chat {model}",
            SpanPlace(drive.trace_id, span_id("model", *parts)),
            parent_id=drive.span_id,
            kind="client",
            started_at=started_at,
            error_type=error_type,
            attributes=attributes,
        )

    def call_place(self, name: str, call: OpenCall | None) -> SpanPlace:
        run = str(call.run) if call else "1"
        return SpanPlace(
            call.trace_id if call else "", span_id("call", self._state.instance, name, run)
        )

    def end_call(
        self,
        turn: str,
        name: str,
        call: OpenCall,
        outcome: str,
        *,
        error_type: str | None = None,
        result: str | None = None,
    ) -> None:
        attributes: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": name,
            "holdfast.call.outcome": outcome,
            "holdfast.call.run": call.run,
        }
        if call.arguments is not None:
            attributes["gen_ai.tool.call.arguments"] = call.arguments
        if result is not None:
            attributes["gen_ai.tool.call.result"] = result
        self.add(
            turn,
            f"execute_tool {call.tool}",
            self.call_place(name, call),
            parent_id=call.parent_id,
            started_at=call.started_at if call.started_at is not None else self._at,
            error_type=error_type,
            attributes=attributes,
            links=(link_to(call.asked, "asks"),) if call.asked else (),
        )

    def add(
        self,
        turn: str,
        name: str,
        place: SpanPlace,
        *,
        started_at: int,
        attributes: Attributes,
        ended_at: int | None = None,
        parent_id: str | None = None,
        kind: SpanKind = "internal",
        error_type: str | None = None,
        links: tuple[SpanLink, ...] = (),
    ) -> None:
        attributes["gen_ai.conversation.id"] = self._state.session
        attributes["holdfast.instance"] = self._state.instance
        attributes["holdfast.turn"] = turn
        if self._state.parent is not None:
            attributes["holdfast.parent.session"] = self._state.parent
        if error_type is not None:
            attributes["error.type"] = error_type
        self.spans.append(
            Span(
                trace_id=place.trace_id,
                span_id=place.span_id,
                name=name,
                started_at=started_at,
                # A clock that was set back never makes a span of negative length.
                ended_at=max(started_at, self._at if ended_at is None else ended_at),
                kind=kind,
                parent_id=parent_id,
                error_type=error_type,
                attributes=attributes,
                links=links,
            )
        )

    def content(self, text: str | None) -> str | None:
        if not self._with_content or text is None:
            return None
        return text if len(text) <= _CONTENT_CHARS else text[:_CONTENT_CHARS] + "…"

    @staticmethod
    def _add_content(attributes: Attributes, key: str, role: str, text: str | None) -> None:
        if text:
            message = {"role": role, "parts": [{"type": "text", "content": text}]}
            attributes[key] = msgspec.json.encode([message]).decode()


def link_to(place: SpanPlace, relation: str) -> SpanLink:
    return SpanLink(place.trace_id, place.span_id, relation)


def _provider(model: str) -> str | None:
    """
    >>> _provider("anthropic:claude-sonnet-5"), _provider("demo")
    ('anthropic', None)
    """
    name, colon, _ = model.partition(":")
    return name if colon else None
