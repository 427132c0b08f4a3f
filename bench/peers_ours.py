"""
The peers' work, done by us: `python -m bench.peers_ours work|resume FOLDER`, as in
bench/peer/work.py.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from bench.peer.work import (
    APPENDS,
    LENGTHS,
    LOADS,
    PARKED,
    SCALE,
    SESSIONS,
    TURN_LENGTHS,
    TURNS,
    imported,
    main,
    many,
    median_us,
    on_disk,
    ran,
    timed,
)


def _imports() -> None:
    import holdfast

    _ = holdfast.open, holdfast.Agent, holdfast.tool, holdfast.MessageSource


imported(_imports)

import holdfast  # noqa: E402
from bench.append import append_soon  # noqa: E402
from bench.ground import RawFile  # noqa: E402
from bench.journals import LINE_BYTES, long_journal, new_journal, one, open_store  # noqa: E402
from bench.turns import SOURCE, Instant, instant_service  # noqa: E402
from holdfast.adapters.files.session.journal import FileJournal  # noqa: E402
from holdfast.assembly.service import open_service  # noqa: E402
from holdfast.home import specs_from_agents  # noqa: E402
from holdfast.ids import ApprovalId, SessionId  # noqa: E402
from holdfast.ports.model import ModelRequest, OnText  # noqa: E402
from holdfast.runtime.ledger.ledger import Ledger  # noqa: E402
from holdfast.runtime.verbs.accept import Incoming  # noqa: E402
from holdfast.session.view.build import shared_messages  # noqa: E402
from holdfast.session.view.messages import ModelAnswer, ProposedCall, ResultMessage  # noqa: E402

BLOCK = 5
LONGER = (
    (100_000,) if SCALE >= 0.1 else ()
)  # for the picture only: there it does not end where the peers' lines do


@holdfast.tool
async def service_status(service: str) -> str:
    """Tell how one service is doing."""
    ran()
    return f"{service} is up"


class Asking(Instant):
    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:  # noqa: ARG002
        if isinstance(request.messages[-1], ResultMessage):
            return ModelAnswer(text="done")
        return ModelAnswer(
            text="", calls=(ProposedCall("service_status", '{"service":"api"}', None),)
        )


def _asking(folder: Path):
    specs, tools, _ = specs_from_agents(
        [holdfast.Agent("ops", model="instant", tools=[service_status])]
    )
    return open_service(folder / "parked", agents=specs, tools=tools, models=Asking())


async def _work(folder: Path) -> dict[str, object]:
    durability = "a journal of its own, fdatasync before every acknowledgement; its anchor is synced at each turn's end"
    found: dict[str, object] = {"durability": durability}
    async with open_store(folder / "append") as store:
        journals = {
            length: await long_journal(store, f"a{length}", length)
            for length in (*LENGTHS, *LONGER)
        }
        found["append"], found["bare"] = await _appends(journals, folder)
        found["many"] = await _crowd(
            [await new_journal(store, f"m{number}") for number in range(SESSIONS)]
        )
    found["turn"], found["load"] = await _turns(folder)
    found["pause"], found["list"] = await _pauses(folder)
    fixed = sum(path.lstat().st_blocks * 512 for path in [folder / "parked" / "reserve"])
    found["parked_bytes"] = (on_disk(folder / "parked") - fixed) / PARKED
    return found


async def _appends(
    journals: dict[int, FileJournal], folder: Path
) -> tuple[dict[int, float], float]:
    """
    All lengths and the disk itself in turns, so that whatever else the machine does falls on all of
    them alike.
    """
    found: dict[int, list[float]] = {length: [] for length in journals}
    bare: list[float] = []
    raw = RawFile(folder, LINE_BYTES)
    for _ in range(APPENDS // BLOCK):
        bare += [timed(raw.append) for _ in range(BLOCK)]
        for length, journal in journals.items():
            found[length] += await append_soon(journal, BLOCK)
    raw.close()
    return {length: median_us(each) for length, each in found.items()}, median_us(bare)


async def _crowd(journals: list[FileJournal]) -> float | str:
    return await many(lambda number: journals[number].append(one, since=journals[number].head))


async def _turns(folder: Path) -> tuple[dict[int, float], float]:
    found = {}
    async with instant_service(folder / "turn") as service:
        for length in TURN_LENGTHS:
            for _ in range(length // 2):
                await service.send(
                    f"bench/t{length}", Incoming(text="say something", source=SOURCE)
                )
            seconds = []
            for _ in range(TURNS):
                started = time.perf_counter()
                await service.send(f"bench/t{length}", Incoming(text="look", source=SOURCE))
                seconds.append(time.perf_counter() - started)
            found[length] = median_us(seconds)
        loads = []
        for _ in range(LOADS):
            started = time.perf_counter()
            ledger = await Ledger.open(
                await service.runtime.world.store.open(SessionId("bench/t1000"))
            )
            assert len(shared_messages(ledger.state.view)) >= max(TURN_LENGTHS)
            loads.append(time.perf_counter() - started)
            await ledger.close()
    return found, median_us(loads)


async def _pauses(folder: Path) -> tuple[float, float]:
    seconds = []
    async with _asking(folder) as service:
        for number in range(PARKED):
            started = time.perf_counter()
            turn = await service.send(f"bench/p{number}", Incoming(text="look", source=SOURCE))
            seconds.append(time.perf_counter() - started)
            assert turn.outcome == "waiting", turn
            if number == 0:
                (folder / "approval.json").write_text(
                    json.dumps([turn.approvals[0].id, turn.approvals[0].digest])
                )
        started = time.perf_counter()
        assert len(await service.approvals()) == PARKED
        return median_us(seconds), (time.perf_counter() - started) * 1e6


async def _resume(folder: Path) -> None:
    name, digest = json.loads((folder / "approval.json").read_text())
    async with _asking(folder) as service:
        await service.answer(ApprovalId(name), "approve_once", by="alice", digest=digest)


if __name__ == "__main__":
    main(lambda folder: asyncio.run(_work(folder)), lambda folder: asyncio.run(_resume(folder)))
    sys.exit(0)
