"""
Lone surrogates (half a character), which no journal, no wire and no terminal can hold. A model's
answer has been paid for, so its text is repaired and kept.

In text, U+FFFD replaces half a character. Two halves that meet in a stream become one character
again. A call's arguments are never repaired, because nobody may approve or run a call that the
model did not write. There the half is spelt out as a JSON escape (backslash, `ud83d`). Strict JSON
refuses it, and the model gets an error.
"""

import re

import msgspec

from holdfast.session.view.messages import ModelAnswer, ProposedCall

_HALF = re.compile("(\\\\*)([\ud800-\udfff])")


def whole(text: str) -> str:
    """Return the same text, with U+FFFD for each half of a character."""
    return (
        text
        if _is_whole(text)
        else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    )


def plain(text: str) -> str:
    """
    Return text that can be written down: a `str` and no subclass, which JSON may not know, with `?`
    for each half of a character. The name of a file that is not UTF-8 has such halves.
    """
    return str.__str__(text).encode(errors="replace").decode()


def spelt_out(arguments: str) -> str:
    """
    Return JSON text that can be written down and means the same. Text with half a character in it
    stays invalid JSON.
    """
    if _is_whole(arguments):
        return arguments
    joined = arguments.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub(_spell, joined)


def _spell(found: re.Match[str]) -> str:
    slashes, half = found.groups()
    # After an open backslash, spelling the half out would complete an escape that never was one. A
    # backslash and half a character are not JSON, and must stay invalid.
    return slashes + (f"\\u{ord(half):04x}" if len(slashes) % 2 == 0 else "\ufffd")


def mended(answer: ModelAnswer) -> ModelAnswer:
    """Return an answer that can be written down."""
    blob = (
        answer.blob
        if _is_whole(answer.blob or "") and _is_whole(answer.blob_adapter or "")
        else None
    )
    return msgspec.structs.replace(
        answer,
        text=whole(answer.text),
        calls=tuple([_call(call) for call in answer.calls]),
        # A provider's own parts cannot be repaired; the answer is usable without them.
        blob=blob,
        blob_adapter=answer.blob_adapter if blob is not None else None,
    )


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
