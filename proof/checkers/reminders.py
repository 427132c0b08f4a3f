"""The authority of a reminder: never more than that of the turn that set it (A4)."""

import msgspec

from holdfast.session.events import ReminderSet
from proof.checkers.states import hold


def check_reminder(event: ReminderSet, authority: bytes | None) -> None:
    """`authority` is the context of the turn whose tool set it; None: a command set it."""
    child = msgspec.json.decode(event.context)
    hold(
        "A4",
        child["interactive"] is event.may_prompt,
        "a reminder may ask whom nobody let it ask",
    )
    hold(
        "A4",
        child["requester"] == event.by and child["audience"] != "public",
        "a reminder that nobody may set",
    )
    if authority is None:
        return
    parent = msgspec.json.decode(authority)
    same = (
        "session",
        "instance",
        "audience",
        "boundary",
        "requester",
        "quoted_speakers",
        "workspace",
    )
    hold(
        "A4",
        all(child[name] == parent[name] for name in same),
        f"a reminder has another authority than its turn: {child}",
    )
    hold(
        "A4",
        parent["interactive"] or not child["interactive"],
        "a reminder may ask, and its turn may not",
    )
    hold(
        "A4",
        child["principal"] in ("verified_automation", parent["principal"]),
        "a reminder is somebody else",
    )
