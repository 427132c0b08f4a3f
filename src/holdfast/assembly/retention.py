"""Find and remove the items that `[retention]` no longer keeps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.assembly.store import is_file_store
from holdfast.ids import SessionId
from holdfast.settings import SettingsSource
from holdfast.threads import BLOCKING

if TYPE_CHECKING:
    from holdfast.adapters.postgres.home.retention import OldRows
    from holdfast.adapters.postgres.server import Wire
    from holdfast.runtime.lifecycle.prune import Old
    from holdfast.runtime.service import Service

    OldItems = Sequence[Path] | OldRows


class Prunable(NamedTuple):
    """The items that `[retention]` no longer keeps: files, or rows of a database."""

    sessions: "Sequence[Old]"
    outputs: "OldItems"
    quarantine: "OldItems"


async def prunable(service: "Service", home: Path, *, most: int | None = None) -> Prunable:
    """
    Find prunable items by the current settings, at most `most` of each kind. Without a
    `[retention]` section there are none.
    """
    from holdfast.adapters.files.home import retention as files
    from holdfast.adapters.postgres.home import retention as rows

    settings, now = SettingsSource(home).now(), service.live.clock_ms() / 1000
    sessions, outputs, quarantine = (
        settings.retain_sessions_seconds,
        settings.retain_outputs_seconds,
        settings.retain_quarantine_seconds,
    )
    return Prunable(
        []
        if sessions is None
        else await service.lifecycle.old_sessions(
            before_ms=int((now - sessions) * 1000), most=most
        ),
        []
        if outputs is None
        else await _old(
            service,
            lambda wire: rows.old_outputs(wire, now - outputs, most),
            lambda: files.old_outputs(home, before_seconds=now - outputs),
            most,
        ),
        []
        if quarantine is None
        else await _old(
            service,
            lambda wire: rows.old_quarantine(wire, now - quarantine, most),
            lambda: files.old_quarantine(home, before_seconds=now - quarantine),
            most,
        ),
    )


async def _old(
    service: "Service",
    in_rows: "Callable[[Wire], OldRows]",
    in_files: Callable[[], Sequence[Path]],
    most: int | None,
) -> "OldItems":
    store: Any = service.runtime.world.store
    if is_file_store(store):
        return (await BLOCKING.call(in_files))[:most]
    found: OldRows = await store.in_thread(in_rows)
    return found


async def prune(service: "Service", found: Prunable, *, by: str) -> Sequence[SessionId]:
    """Remove the items. Return the deleted sessions: one that was written to meanwhile stays."""
    gone = await service.lifecycle.prune(found.sessions, by=by)
    for items in (found.outputs, found.quarantine):
        await _remove(service, items)
    return gone


async def _remove(service: "Service", items: "OldItems") -> None:
    if not items:
        return
    store: Any = service.runtime.world.store
    if not is_file_store(store):
        from holdfast.adapters.postgres.home import retention as rows

        old = cast("OldRows", items)
        await store.in_thread(lambda wire: rows.remove(wire, old))
        return
    from holdfast.adapters.files.home.retention import remove

    paths = cast("Sequence[Path]", items)
    await BLOCKING.call(lambda: remove(paths))
