"""
Known secrets in the runtime's inputs and outputs (S1).

Text that a person or a client sends is refused, so that the sender knows. Text that a model or a
tool produced is hidden. A call whose arguments hold a secret does not run. `holdfast.secrecy` finds
secrets; the journal's own check (`check_draft`) refuses a record that these checks missed.
"""

import msgspec

from holdfast.errors import Refused
from holdfast.runtime.context import World
from holdfast.secrecy import Secrecy, secrecy_of
from holdfast.session.codec import decode, encode
from holdfast.session.events import SessionEvent
from holdfast.session.view.messages import ModelAnswer

_WITHOUT = "send it again without the secret; revoke the secret if others saw it"


def refuse_secrets(world: World, *texts: str | None, what: str = "message") -> None:
    """Raise Refused if one of the texts, which a person or a client sent, holds a known secret."""
    secrecy = secrecy_of(world.secrets)
    for text in texts:
        if text and secrecy.holds(text):
            raise Refused(
                f"the {what} holds a known secret, and was not kept", code="secret", hint=_WITHOUT
            )


def hidden_event(secrecy: Secrecy, event: SessionEvent) -> SessionEvent:
    """
    Hide secrets in an event of another journal or file: it may be older than the secrets that are
    known now.
    """
    name, version, body = encode(event)
    return decode(name, version, secrecy.hidden_json(body)) if secrecy.holds(body) else event


def hidden_answer(secrecy: Secrecy, answer: ModelAnswer) -> tuple[ModelAnswer, frozenset[int]]:
    """
    Return an answer that holds secrets without them, and the indexes of calls that held one: those
    may not run.
    """
    refused = frozenset(
        index for index, call in enumerate(answer.calls) if secrecy.holds(msgspec.json.encode(call))
    )
    calls = tuple(
        msgspec.structs.replace(
            call,
            tool=secrecy.hidden(call.tool),
            arguments=secrecy.hidden(call.arguments),
            provider_id=secrecy.hidden(call.provider_id) if call.provider_id else call.provider_id,
        )
        for call in answer.calls
    )
    return msgspec.structs.replace(
        answer, text=secrecy.hidden(answer.text), calls=calls, blob=None, blob_adapter=None
    ), refused
