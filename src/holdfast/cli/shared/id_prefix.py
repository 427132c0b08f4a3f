"""Find the one id that begins with the given text, for every command that takes an id."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import Refused

if TYPE_CHECKING:
    from holdfast.runtime.jobs.verbs import Viewer
    from holdfast.runtime.service import Service

_WHOLE_CHARS = 28  # "a-" and 26 characters; a whole id needs no search
_NAMED_MAX = 5  # ids named in an error
_PREFIX_CHARS_MIN = 3  # "a-" alone would choose the only prompt by accident


def whole(given: str, ids: Iterable[str], *, hint: str) -> str:
    """
    Return the only id that begins with the text. An exact id wins. Without a match, the text is
    returned as it is, and the command reports that there is no such id.

    >>> whole("a-12", ["a-123", "a-234"], hint="")
    'a-123'
    """
    found = sorted({each for each in ids if each.startswith(given)})
    if given in found or not found:
        return given
    if len(given) < _PREFIX_CHARS_MIN:
        raise Refused(
            f"{given!r} is too short to name one: {_PREFIX_CHARS_MIN} characters are needed",
            code="ambiguous",
            hint=hint,
        )
    if len(found) == 1:
        return found[0]
    named = ", ".join(found[:_NAMED_MAX]) + (", ..." if len(found) > _NAMED_MAX else "")
    raise Refused(
        f"{len(found)} ids begin with {given!r}: {named}",
        code="ambiguous",
        hint=f"type more of it; {hint}",
    )


async def whole_approval(service: "Service", given: str) -> str:
    """Open prompts come first: they need no journal. Closed ones are searched only if needed."""
    if len(given) >= _WHOLE_CHARS:
        return given
    hint = "`holdfast approvals list` shows the prompts that wait"
    found = whole(given, [each.id for each in await service.approvals()], hint=hint)
    if len(found) >= _WHOLE_CHARS:
        return found
    everything = await service.approvals(everything=True)
    return whole(given, [each.id for each in everything], hint=hint)


async def whole_grant(service: "Service", given: str) -> str:
    if len(given) >= _WHOLE_CHARS:
        return given
    ids = [each.id for each in await service.grants()]
    return whole(given, ids, hint="`holdfast grants list` shows them")


async def whole_reminder(service: "Service", given: str) -> str:
    if len(given) >= _WHOLE_CHARS:
        return given
    ids = [each.id for each in await service.reminders.list()]
    return whole(given, ids, hint="`holdfast reminders list` shows them")


async def whole_job(service: "Service", given: str, viewer: "Viewer") -> str:
    """Running jobs come first: the index has them. Ended ones are searched only if needed."""
    if len(given) >= _WHOLE_CHARS:
        return given
    hint = "`holdfast jobs list --all` shows them"
    found = whole(given, [job for job, _ in await service.jobs.running()], hint=hint)
    if len(found) >= _WHOLE_CHARS:
        return found
    everything = await service.jobs.list(viewer, everything=True)
    return whole(given, [each.id for each in everything], hint=hint)


async def whole_memory(service: "Service", given: str, *, person: str | None) -> str:
    """Only what the person may see is searched."""
    if len(given) >= _WHOLE_CHARS:
        return given
    ids = [str(item.id) async for item in service.memory.items(person=person)]
    return whole(given, ids, hint="`holdfast memory list` shows them")


async def whole_session(service: "Service", given: str) -> str:
    """
    Return the session's id, for commands that need an existing one. `send` and `chat` create
    sessions, so they take names exactly as they are typed.
    """
    from holdfast.ids import session_id

    name = session_id(given)
    if await service.live.current(name) is not None:
        return name
    ids = [str(each.session) for each in await service.sessions()]
    found = whole(given, ids, hint="`holdfast sessions list` shows them")
    return found if found in ids else name


async def existing_session(service: "Service | None", given: str) -> str:
    """Return the session's id, or refuse: a mistyped name must not look like an empty list."""
    from holdfast.ids import session_id

    found = session_id(given) if service is None else await whole_session(service, given)
    if service is None or await service.live.current(session_id(found)) is None:
        hint = "`holdfast sessions list` shows them"
        raise Refused(f"no session {found}", code="unknown", hint=hint)
    return found
