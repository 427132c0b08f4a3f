"""
One request to a model of Pydantic AI, and its streamed answer.

The HTTP client is opened for the exchange and closed after it. A session that waits for a person
therefore holds no socket, and a model may be used from one event loop after another. Cancelling
closes the connection. Neither Holdfast nor the SDKs send anything twice. Pydantic AI itself resends
in one case: when Anthropic refuses to replay thinking because the conversation before it changed.
"""

from collections.abc import AsyncGenerator

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.settings import ModelSettings

from holdfast.adapters.models.providers import Advice
from holdfast.adapters.models.pydantic_ai.failures import (
    failure_from_exception,
    failure_from_response,
    shortened,
)
from holdfast.adapters.models.pydantic_ai.view import (
    TEXT_BREAK,
    answer_from_response,
    messages_from_request,
    parameters_from_request,
)
from holdfast.limits import MODEL_ANSWER_BYTES_MAX
from holdfast.ports.model import ModelEndpoint, ModelFailed, ModelRequest
from holdfast.session.view.messages import ModelAnswer

CALL_BYTES = (
    512  # the cost of a call besides its text, so that very many empty calls also reach the limit
)


async def exchange(
    model: Model,
    request: ModelRequest,
    *,
    name: str,
    advice: Advice = Advice(),  # noqa: B008  # immutable
    endpoint: ModelEndpoint | None = None,
) -> AsyncGenerator[str | ModelAnswer, None]:
    """Yield pieces of text as they come, then the answer. Raise ModelFailed."""
    messages = messages_from_request(request)
    parameters = parameters_from_request(request)
    settings = settings_from_request(request, endpoint)
    pieces = Pieces(name)
    response: ModelResponse
    try:
        async with model:
            if streams(model):
                async with model.request_stream(messages, settings, parameters) as stream:
                    async for event in stream:
                        yield pieces.next(event)
                response = stream.get()
            else:
                response = await model.request(messages, settings, parameters)
    except ModelFailed:
        raise
    except Exception as exc:
        # The seam: an SDK or the network may raise anything. Every such error ends this call only.
        raise failure_from_exception(exc, model=name, advice=advice) from exc
    except SystemExit as exc:
        # As for tools: code of a model's author ends its own call, not the program.
        raise ModelFailed(
            "malformed", f"{name}: the model's own code tried to end the program", may_pass=False
        ) from exc
    failure = failure_from_response(response, model=name)
    if failure is not None:
        raise failure
    try:
        answer = answer_from_response(response, request)
    except Exception as exc:
        # Names, ids or details that are not text: Pydantic AI accepts any value from a model
        # object.
        raise ModelFailed(
            "malformed",
            f"{name}: the answer can't be written down: {shortened(exc)}",
            may_pass=True,
        ) from exc
    if not streams(model):
        yield answer.text
    yield answer


def settings_from_request(
    request: ModelRequest, endpoint: ModelEndpoint | None = None
) -> ModelSettings:
    settings = ModelSettings(max_retries=0)
    own = endpoint.max_output_tokens if endpoint is not None else None
    most = [each for each in (request.max_output_tokens, own) if each is not None]
    if most:
        settings["max_tokens"] = min(most)
    if endpoint is not None and endpoint.temperature is not None:
        settings["temperature"] = endpoint.temperature
    if endpoint is not None and endpoint.headers:
        settings["extra_headers"] = dict(endpoint.headers)
    return settings


def streams(model: Model) -> bool:
    """Return whether the model can stream. Other models answer in one piece."""
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return type(model).request_stream is not Model.request_stream


class Pieces:
    """Extracts the visible text from a stream's events. Counts everything, visible or not."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bytes = 0
        # The text part that was written last. Text of another part follows after a break.
        self._written: int | None = None

    def next(self, event: ModelResponseStreamEvent) -> str:
        """Return the visible text. An empty text still shows that the model is alive."""
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text)):
                return self._text(index, text)
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                return self._text(index, text)
            case PartStartEvent(part=ThinkingPart(content=content)):
                self._count(content)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=content)):
                self._count(content)
            case PartStartEvent(part=ToolCallPart() as call):
                self._bytes += CALL_BYTES
                self._count((call.tool_name, call.tool_call_id, call.args))
            case PartDeltaEvent(delta=ToolCallPartDelta(args_delta=args)):
                self._count(args)
            case _:
                pass
        return ""

    def _text(self, index: int, text: str) -> str:
        self._count(text)
        if not text:
            return ""
        starts_anew = self._written not in (None, index)
        self._written = index
        return TEXT_BREAK + text if starts_anew else text

    def _count(self, piece: object) -> None:
        self._bytes += len(str(piece).encode(errors="replace")) if piece else 0
        if self._bytes > MODEL_ANSWER_BYTES_MAX:
            message = (
                f"{self._name}: the answer is longer than {MODEL_ANSWER_BYTES_MAX} bytes; it was"
                " given up"
            )
            raise ModelFailed("malformed", message, may_pass=False)
