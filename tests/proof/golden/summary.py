"""
The part of the state that a golden line remembers: enough to notice any change of
meaning, in plain JSON.
"""

from typing import Any

import msgspec

from holdfast.session.authority.context import TurnContext
from holdfast.session.react import react
from holdfast.session.state import SessionState
from holdfast.session.view.build import shared_messages, view_of
from holdfast.session.view.messages import Message


def summary(state: SessionState) -> dict[str, Any]:
    return {
        "seq": state.seq,
        "running": state.running,
        "queued": [each.input for each in state.queued],
        "owes": [str(effect) for effect in react(state)],
        "turns": {
            name: {
                "phase": turn.phase.value,
                "requester": turn.context.requester
                if isinstance(turn.context, TurnContext)
                else turn.context.reason,
                "calls": [
                    [call.tool, call.status.value, call.arguments, call.allowed_by, call.outcome]
                    for call in turn.calls
                ],
                "view": _messages(view_of(turn)),
            }
            for name, turn in state.turns.items()
        },
        "view": _messages(shared_messages(state.view)),
        "prompts": sorted(state.approvals),
        "in_doubt": sorted(key for key, _ in state.in_doubt.items()),
        "dedup": sorted(key for key, _ in state.dedup.items()),
        "ended": state.turns_ended,
        "model": state.model,
        "deliveries": sorted(state.deliveries),
        **({"shown": sorted(state.shown)} if state.shown else {}),
        "usage": msgspec.to_builtins(state.usage),
        **({"title": state.title} if state.given_title else {}),
        **(
            {"reminders": _reminders(state)}
            if state.reminders or list(state.reminders_over.items())
            else {}
        ),
    }


def _messages(view: tuple[Message, ...]) -> Any:
    """
    Without the codes of results, which lines of before did not repeat in the view: a record of its
    own holds each.
    """
    return [
        {name: value for name, value in each.items() if name != "code"}
        for each in msgspec.to_builtins(view)
    ]


def _reminders(state: SessionState) -> dict[str, Any]:
    """Left out where there were none, so that older lines need not know of them."""
    standing = {
        name: [
            each.text,
            msgspec.to_builtins(each.schedule),
            each.next_at,
            each.fired,
            each.may_prompt,
            isinstance(each.context, TurnContext),
        ]
        for name, each in state.reminders.items()
    }
    return {
        "standing": standing,
        "over": {name: msgspec.to_builtins(each) for name, each in state.reminders_over.items()},
    }


def facts(event: msgspec.Struct) -> dict[str, Any]:
    """Every field with its value, defaults included."""
    return {name: _plain(getattr(event, name)) for name in event.__struct_fields__}


def _plain(value: object) -> Any:
    return msgspec.json.decode(
        value if isinstance(value, msgspec.Raw) else msgspec.json.encode(value)
    )
