"""Go on with a sealed session in a new instance, from its last record that verifies."""

import msgspec

from holdfast import limits
from holdfast.errors import BrokenChain, Refused
from holdfast.ids import session_id
from holdfast.ports.journal_store import Journal
from holdfast.runtime.delegates.delegation import stop_orphaned_delegates
from holdfast.runtime.jobs.orphans import end_jobs_and_keep_results
from holdfast.runtime.lifecycle.carried import begin_instance, carried_from
from holdfast.runtime.lifecycle.lost_calls import lost_calls
from holdfast.runtime.redaction import refuse_secrets
from holdfast.runtime.reports.types import SessionReport
from holdfast.runtime.runtime import Runtime
from holdfast.session.events import (
    LifeCarried,
)

# For one reply or outcome: the part that the model would have seen.
_ATTACHED_CHARS_MAX = limits.TOOL_OUTPUT_VIEW_BYTES


# For all of them together: they are one record of the new instance.
_ATTACHED_BYTES_MAX = limits.RECORD_BYTES_MAX // 2


async def unseal(runtime: Runtime, session: str, *, by: str, reason: str) -> SessionReport:
    """
    Continue from the last record that verifies, in a new instance. Refused if the session is not
    sealed.
    """
    name = session_id(session)
    refuse_secrets(runtime.world, reason, by, what="reason")
    journal = await runtime.world.store.open(name)
    try:
        if journal.sealed is None:
            raise Refused(
                f"{name} is not sealed", code="not_sealed", hint="there is nothing to unseal"
            )
        carried = await carried_from(journal)
        await end_jobs_and_keep_results(runtime.world, journal, carried.running_jobs)
        known = {
            each
            for event in carried.events
            if isinstance(event, LifeCarried)
            for each in event.attached
        }
        described = (*await _attached(journal), *await lost_calls(journal, after=carried.last_seq))
        attached = _bounded([each for each in described if each not in known])
    finally:
        await journal.close()
    why = f"unsealed by {by}: {reason}"
    report = await begin_instance(
        runtime,
        name,
        carried,
        origin="unseal",
        by=by,
        reason=why,
        from_session=name,
        from_instance=journal.instance,
        attached=attached,
    )
    await stop_orphaned_delegates(runtime, carried.delegates)
    return report


async def begun_past_damage(runtime: Runtime, session: str) -> tuple[str, ...]:
    """The calls past the damage that `unseal` would report, for the person who decides."""
    journal = await runtime.world.store.open(session_id(session))
    try:
        return await lost_calls(journal, after=(await carried_from(journal)).last_seq)
    finally:
        await journal.close()


class _Kept(msgspec.Struct):
    """The fields of a quarantined reply or outcome that are reported."""

    text: str = ""
    outcome: str | None = None


async def _attached(journal: Journal) -> tuple[str, ...]:
    """Describe the outcomes that could not be journalled when the session was sealed."""
    described: list[str] = []
    for where in await journal.quarantined():
        try:
            kind, data = await journal.read_quarantined(where)
            kept = (
                msgspec.json.decode(data, type=_Kept) if kind in ("reply", "tool_outcome") else None
            )
        except BrokenChain:
            described.append(f"something that is not ours, or was changed ({where})")
        except (Refused, ValueError, RecursionError) as exc:
            if not isinstance(exc, Refused) or exc.code != "unknown":
                described.append(f"something unreadable ({where})")
        else:
            described += [_kept_in_words(kept, where)] if kept is not None else []
    return tuple(described)


def _bounded(described: list[str]) -> tuple[str, ...]:
    """As many items as one record holds, and the number of the rest."""
    room, fits = _ATTACHED_BYTES_MAX, 0
    for each in described:
        room -= len(msgspec.json.encode(each))
        if room < 0:
            break
        fits += 1
    more = len(described) - fits
    return (
        *described[:fits],
        *([f"{more} more; `holdfast sessions show` says where they are kept"] if more else []),
    )


def _kept_in_words(kept: _Kept, where: str) -> str:
    """
    Describe one item, with no more of its text than a model sees of any result: all attached items
    are one record.
    """
    text = (
        kept.text
        if len(kept.text) <= _ATTACHED_CHARS_MAX
        else f"{kept.text[:_ATTACHED_CHARS_MAX]}... (the rest is in {where})"
    )
    return (
        f"a reply: {text}" if kept.outcome is None else f"a tool's outcome ({kept.outcome}): {text}"
    )
