"""
Half a character: a lone surrogate, which no journal, no wire and no terminal can hold. What a model
wrote is paid for, so its words are mended and kept.

In words, U+FFFD stands where half a character stood; two halves that found each other in a stream
are one again. In a call's arguments nothing is mended, since nobody may approve or run what the
model did not write: there the half is spelt out (`\\ud83d`), which strict JSON refuses, and the
model is told.
"""

import re

import msgspec

from holdfast.session.view.messages import ModelAnswer, ProposedCall

_HALF = re.compile("(\\\\*)([\ud800-\udfff])")


def whole(text: str) -> str:
    """The same words, and U+FFFD for each half of a character."""
    return (
        text
        if _is_whole(text)
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def spelt_out(arguments: str) -> str:
    """
    JSON text that can be written down and means the same; one with half a character in it is no
    more JSON than before.
    """
    if _is_whole(arguments):
        return arguments
    joined = arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub(_spell, joined)


def _spell(found: re.Match[str]) -> str:
    slashes, half = found.groups()
    # After an open backslash, spelling it out would close an escape that never was one: "\" and
    # half a character are no JSON, and stay none.
    return slashes + (f"\\u{ord(half):04x}" if len(slashes) % 2 == 0 else "\ufffd")


def mended(answer: ModelAnswer) -> ModelAnswer:
    """An answer that can be written down; the same object where nothing was amiss."""
    parts = (
        answer.text,
        answer.blob or "",
        answer.blob_adapter or "",
        *(part for call in answer.calls for part in _parts(call)),
    )
    if all(_is_whole(each) for each in parts):
        return answer
    blob = (
        answer.blob
        if _is_whole(answer.blob or "") and _is_whole(answer.blob_adapter or "")
        else None
    )
    return msgspec.structs.replace(
        answer,
        text=whole(answer.text),
        calls=tuple([_call(call) for call in answer.calls]),
        # a provider's own parts can't be mended; without them the answer is still the answer
        blob=blob,
        blob_adapter=answer.blob_adapter if blob is not None else None,
    )


def _parts(call: ProposedCall) -> tuple[str, str, str]:
    return call.tool, call.arguments, call.provider_id or ""


def _call(call: ProposedCall) -> ProposedCall:
    provider_id = whole(call.provider_id) if call.provider_id is not None else None
    return ProposedCall(whole(call.tool), spelt_out(call.arguments), provider_id)


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
