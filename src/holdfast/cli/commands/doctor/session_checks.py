"""Checks of the home's journals and of the data beside them."""

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.doctor.finding import Finding
from holdfast.cli.output.result import error_from_os
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.assembly.store import OpenStore
    from holdfast.settings import Settings


async def check_sessions(home: Path, settings: "Settings") -> list[Finding]:
    from holdfast.assembly.store import existing_store

    try:
        store = await existing_store(home, settings)
    except HoldfastError as exc:
        return [Finding("store", "problem", exc.message, exc.hint)]
    except OSError as exc:
        return [
            Finding("store", "problem", error_from_os(exc).message, "`holdfast verify` says more")
        ]
    if store is None:
        return []
    try:
        return [
            *await _home_journal(store),
            *await _clock(store),
            *await _sealed(store),
            *await _index(home, store),
            *_memory(home, store),
        ]
    except (HoldfastError, OSError) as exc:
        return [Finding("store", "problem", str(exc), "`holdfast verify` says more")]
    finally:
        await store.close()


async def _home_journal(store: "OpenStore") -> list[Finding]:
    from holdfast.ids import SessionId

    verdict = await store.verify_session(SessionId("_home"))
    if verdict.verdict in {"holds", "torn_tail"} and not verdict.sealed:
        return [Finding("home journal", "ok", f"{verdict.records} records")]
    return [
        Finding(
            "home journal",
            "problem",
            f"{verdict.verdict}: {verdict.detail}",
            "restore the home from a backup; reading and export still work",
        )
    ]


async def _clock(store: "OpenStore") -> list[Finding]:
    from holdfast.runtime.ledger.home_ledger import HomeLedger
    from holdfast.runtime.reports.types import iso
    from holdfast.session.authority.expiry import Moment

    home = HomeLedger(store)
    try:
        moment = Moment(store.now_ms(), (await home.refresh()).time)
    except HoldfastError:
        return []  # the finding about the home's journal or its keys gives the reason
    finally:
        await home.close()
    way_out = "set the clock; or, if it is right, `holdfast doctor --accept-clock`"
    said = (
        f"the clock says {iso(moment.clock)}, the newest time in the home's journal is"
        f" {iso(moment.journal)}"
    )
    if moment.is_disputed:
        return [
            Finding(
                "clock",
                "problem",
                f"{said}: the journal is ahead, and until that is settled nothing with an end "
                "counts",
                way_out,
            )
        ]
    if moment.is_ahead:
        return [
            Finding(
                "clock",
                "problem",
                f"{said}: the clock is more than a year ahead, and nothing is written by it",
                way_out,
            )
        ]
    return [Finding("clock", "ok", said)]


async def _sealed(store: "OpenStore") -> list[Finding]:
    sessions = await store.sessions()
    found = []
    for session in sessions:
        instance = await store.current(session)
        mark = store.seal_mark(session, instance) if instance is not None else None
        if mark is not None:
            hint = (
                f"`holdfast verify {session}` says where; `holdfast sessions unseal {session}"
                " --reason R` goes on from the last record that verifies"
            )
            found.append(
                Finding(
                    "sessions", "problem", f"{session} is sealed ({mark.code}: {mark.detail})", hint
                )
            )
        elif (trouble := await store.trouble_with(session)) is not None:
            found.append(
                Finding(
                    "sessions",
                    "problem",
                    f"{session}: {trouble}",
                    f"look who changed it; `holdfast verify {session}` says more",
                )
            )
    return found or [
        Finding(
            "sessions", "ok", f"{len(sessions)}, none sealed; `holdfast verify` walks every record"
        )
    ]


async def _index(home: Path, store: "OpenStore") -> list[Finding]:
    from holdfast.assembly.store import is_file_store, lists_of

    if is_file_store(store) and not (home / "index.db").exists():
        return [Finding("index", "ok", "not made yet; the next list makes it")]
    index = lists_of(home, store).index
    try:
        behind = await index.stale(await store.heads())
        owing = len([row async for row in index.rows() if row.owes])
    finally:
        index.close()
    findings = [
        Finding(
            "index", "ok", f"{len(behind)} sessions to catch up with" if behind else "up to date"
        )
    ]
    if owing:
        findings.append(
            Finding(
                "owed",
                "warning",
                f"{owing} sessions have work to go on with",
                "`holdfast resume` does it",
            )
        )
    return findings


def _memory(home: Path, store: "OpenStore") -> list[Finding]:
    from holdfast.assembly.store import lists_of
    from holdfast.ports.memory import CannotRecall

    memory = lists_of(home, store).memory
    if memory.is_empty():
        return [Finding("memory", "ok", "nothing was remembered yet")]
    try:
        rows = memory.rows()
    except CannotRecall as exc:
        return [
            Finding(
                "memory",
                "problem",
                str(exc),
                "restore the home from a backup; turns go on without their memory meanwhile",
            )
        ]
    finally:
        memory.close()
    foreign = [row.id for row in rows if row.item is None]
    if foreign:
        hint = (
            "`holdfast memory list` names them, `holdfast memory forget ID` removes them; look who"
            " wrote them"
        )
        return [
            Finding(
                "memory",
                "problem",
                f"{len(foreign)} of {len(rows)} rows do not verify, and are never recalled",
                hint,
            )
        ]
    return [Finding("memory", "ok", f"{len(rows)} remembered")]
