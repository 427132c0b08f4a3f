"""
Turns every failure of a provider, its SDK or the network into one ModelFailed, with its kind and
whether waiting helps.

Pydantic AI classifies most errors by the provider's response. This module classifies the rest: a
raw transport error in mid-stream, an overflow in other words, garbage that breaks Pydantic AI's own
code. Messages are shortened because a provider's error may echo the whole request.
"""

from collections.abc import Iterator
from math import isfinite

import httpx2
from pydantic_ai import exceptions as theirs
from pydantic_ai.messages import ModelResponse

from holdfast.adapters.models.providers import Advice
from holdfast.ports.model import ModelFailed
from holdfast.session.view.messages import FailureKind

MESSAGE_CHARS_MAX = 500

# Wordings of an overflow without an error code, in addition to those that Pydantic AI knows.
OVERFLOW_WORDS = (
    "exceed context limit",  # Anthropic: input length and `max_tokens` exceed context limit
    "exceeds the context window",  # OpenAI, in a stream
    "exceeds the available context size",  # llama.cpp
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
)
TOO_LARGE = 413  # Anthropic's request_too_large
REQUEST_TIMEOUT = 408
CONFLICT = 409
SERVER_ERRORS = 500

Sorted = tuple[FailureKind, bool]  # the kind, and whether trying again can help

# The first match counts, so subclasses stand before their bases.
SORTED: tuple[tuple[type[BaseException], Sorted], ...] = (
    (theirs.ModelContextWindowExceededError, ("overflow", False)),
    (theirs.ModelRateLimitError, ("rate_limit", True)),
    (theirs.ModelQuotaExceededError, ("refused", False)),
    (theirs.ModelAuthenticationError, ("auth", False)),
    (theirs.ModelNotFoundError, ("unavailable", False)),
    (theirs.ModelRequestRejectedError, ("refused", False)),
    (theirs.ModelUnavailableError, ("server", True)),
    (theirs.ModelServerError, ("server", True)),
    (theirs.ModelTimeoutError, ("timeout", True)),
    (theirs.ModelRequestTimeout, ("timeout", True)),
    (theirs.ModelConnectionError, ("server", True)),
    (theirs.ContentFilterError, ("refused", False)),
    (theirs.UnexpectedModelBehavior, ("malformed", True)),
    (theirs.ModelAPIError, ("server", True)),
    (theirs.UserError, ("unavailable", False)),
    (ImportError, ("unavailable", False)),
    (httpx2.TimeoutException, ("timeout", True)),
    (httpx2.HTTPError, ("server", True)),
    (httpx2.StreamError, ("server", True)),
    (TimeoutError, ("timeout", True)),
    (OSError, ("server", True)),
    (Exception, ("malformed", True)),
)


def failure_from_exception(
    exc: Exception,
    *,
    model: str,
    advice: Advice = Advice(),  # noqa: B008  # immutable
) -> ModelFailed:
    """Translate an exception that Pydantic AI raised."""
    if isinstance(exc, theirs.FallbackExceptionGroup):
        # Each of several models failed. The last failure ended the call.
        return failure_from_exception(exc.exceptions[-1], model=model, advice=advice)
    kind, may_pass = sort(exc)
    return ModelFailed(
        kind,
        f"{model}{shortened(exc)}",
        may_pass=may_pass,
        retry_after_seconds=retry_after_seconds(exc),
        hint=hint_for(exc, kind, advice),
    )


def retry_after_seconds(exc: Exception) -> float | None:
    """Return the wait that the provider asks for, if its header holds a number of seconds."""
    asked = exc.retry_after if isinstance(exc, theirs.ModelAPIError) else None
    return asked if asked is not None and isfinite(asked) and asked >= 0 else None


def hint_for(exc: Exception, kind: FailureKind, advice: Advice) -> str | None:
    if kind == "auth":
        return advice.key
    if isinstance(exc, theirs.ModelNotFoundError):
        return advice.not_found
    if isinstance(exc, theirs.ModelQuotaExceededError):
        return "the account at the provider has no credit left; look at its billing"
    return None


def sort(exc: Exception) -> Sorted:
    if isinstance(exc, theirs.ModelAPIError) and speaks_of_overflow(exc):
        return "overflow", False
    if isinstance(exc, theirs.ModelConnectionError) and exc.phase in ("pool", "connect"):
        return "unavailable", True
    found = next(sorted_as for known, sorted_as in SORTED if isinstance(exc, known))
    if type(exc) is theirs.ModelHTTPError:
        return sort_status(exc.status_code)
    return found


def sort_status(status: int) -> Sorted:
    """Classify a status that Pydantic AI does not classify."""
    if status == REQUEST_TIMEOUT:
        return "timeout", True
    if status == CONFLICT or status >= SERVER_ERRORS:
        return "server", True
    return "refused", False


def speaks_of_overflow(exc: theirs.ModelAPIError) -> bool:
    # Only errors that blame the request count: a server's crash report may quote anything.
    status = exc.status_code if isinstance(exc, theirs.ModelHTTPError) else None
    if status is not None and (
        status >= SERVER_ERRORS or isinstance(exc, theirs.ModelRateLimitError)
    ):
        return False
    said = " ".join(texts_in(exc.body)).lower() or exc.message.lower()
    return status == TOO_LARGE or any(words in said for words in OVERFLOW_WORDS)


def texts_in(body: object) -> Iterator[str]:
    """Yield the texts of an error's body, however it is nested."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for key in ("error", "code", "type", "message"):
            yield from texts_in(body.get(key))


def message_in(body: object) -> str | None:
    """
    Return the provider's own sentence.

    >>> message_in({"type": "error", "error": {"type": "overloaded", "message": "Come back later"}})
    'Come back later'
    """
    if not isinstance(body, dict):
        return None
    own = body.get("message")
    return message_in(body.get("error")) or (own if isinstance(own, str) else None)


def shortened(exc: Exception) -> str:
    """Return the end of a sentence that begins with the model's name."""
    if isinstance(exc, theirs.ModelHTTPError):
        said = message_in(exc.body) or ": ".join(dict.fromkeys(texts_in(exc.body)))
        text = f" answered {exc.status_code}" + (f": {said}" if said else "")
    elif isinstance(exc, theirs.AgentRunError | theirs.UserError):
        text = f": {exc.message}"
    else:
        text = f": {type(exc).__name__}: {exc}"
    return text if len(text) <= MESSAGE_CHARS_MAX else text[:MESSAGE_CHARS_MAX] + "..."


def failure_from_response(response: ModelResponse, *, model: str) -> ModelFailed | None:
    """Return why a response without an error is still not an answer, or None."""
    reason = response.finish_reason
    if reason == "content_filter":
        said = str(
            (response.provider_details or {}).get("refusal")
            or "the provider's filter stopped the answer"
        )
        return ModelFailed("refused", f"{model}: {said[:MESSAGE_CHARS_MAX]}", may_pass=False)
    if reason == "error":
        return ModelFailed(
            "server", f"{model}: the provider ended the answer with an error", may_pass=True
        )
    if cut_short(response):
        return ModelFailed(
            "server", f"{model}: the stream stopped in the middle of the answer", may_pass=True
        )
    return None


def cut_short(response: ModelResponse) -> bool:
    """
    Return whether the stream ended before the provider reported its end.

    Pydantic AI fills in `stop` when an OpenAI-compatible server closed the stream without a reason,
    so its own field proves nothing. The provider's own reason is kept in `provider_details`. Models
    without a network connection (Pydantic AI's test models) give no reason at all.
    """
    if response.state != "complete":
        return True
    if response.provider_url is None or response.provider_name == "xai":
        # Pydantic AI maps xAI's reason without keeping the original, and never fills it in.
        return response.provider_url is not None and response.finish_reason is None
    return (response.provider_details or {}).get("finish_reason") is None
