"""
A turn with one tool call that needs no approval, on short and long sessions, against the syncs that its promises require.

The syncs are counted as they happen and priced at what a bare write+fdatasync costs on this disk in this run. The model is a stand-in that
answers at once, so all that is left is ours.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import holdfast
from bench.ground import Ground, RawFile, Row, Times, compared, counting_syncs, timed, told
from bench.journals import LINE_BYTES
from holdfast.home import specs_from_agents
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.service import Service
from holdfast.session.messages import ModelAnswer, ProposedCall, ResultMessage, Usage
from holdfast.wiring import open_service

PART = "turn"
LENGTHS = (10, 1_000)
SOURCE = holdfast.MessageSource.local("alice")


@holdfast.tool(contract="pure", mode="auto")
async def service_status(service: str) -> str:
    """Tell how one service is doing."""
    return f"{service} is up"


class Instant:
    """Calls the tool when it is asked to look, says a sentence otherwise."""

    name = "instant"
    context_tokens = 200_000
    asked = 0

    def resolve(self, _: str) -> "Instant":
        return self

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:  # noqa: ARG002
        last = request.messages[-1]
        if isinstance(last, ResultMessage) or last.text != "look":
            return ModelAnswer(text="It is up, and has been up since the night before.", usage=Usage(input_tokens=40 * len(request.messages)))
        self.asked += 1  # equal calls again and again would be stopped, and rightly
        usage = Usage(input_tokens=40 * len(request.messages), output_tokens=12)
        return ModelAnswer(text="", calls=(ProposedCall("service_status", f'{{"service":"api-{self.asked}"}}', None),), usage=usage)


@asynccontextmanager
async def instant_service(home: Path) -> AsyncIterator[Service]:
    specs, tools, _ = specs_from_agents([holdfast.Agent("ops", model="instant", tools=[service_status])])
    async with open_service(home, agents=specs, tools=tools, models=Instant()) as service:
        yield service


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> list[Row]:
    home = ground.fresh("turn") / "home"
    async with instant_service(home) as service:
        for length in LENGTHS:
            for _ in range(length // 2):
                await service.send(f"bench/turn{length}", "say something", source=SOURCE)
        raw = RawFile(ground.folder, LINE_BYTES, "raw-turn")
        bare: list[float] = []
        ours: dict[int, list[float]] = {length: [] for length in LENGTHS}
        made: dict[int, list[int]] = {length: [] for length in LENGTHS}
        with counting_syncs() as counted:
            for _ in range(ground.count(120)):
                before = counted().count
                bare += [timed(raw.append) for _ in range(6)]
                assert counted().count == before + 6
                for length in LENGTHS:
                    before, started = counted().count, time.perf_counter()
                    turn = await service.send(f"bench/turn{length}", "look", source=SOURCE)
                    ours[length].append(time.perf_counter() - started)
                    made[length].append(counted().count - before)
                    assert turn.outcome == "completed", turn
        raw.close()
    syncs = {length: round(statistics.median(each)) for length, each in made.items()}  # a rotation now and then makes some more
    return _rows(Times(bare), {length: Times(each) for length, each in ours.items()}, syncs)


def _rows(bare: Times, ours: dict[int, Times], syncs: dict[int, int]) -> list[Row]:
    short, long = LENGTHS
    limit = syncs[short] * bare.p50
    quiet = f"at p10 {told(ours[short].p10)}, {ours[short].p10 / (syncs[short] * bare.p10):.2f} x"
    note = f"limit: the {syncs[short]} syncs it makes, at {told(bare.p50)} each; {quiet}"
    return [
        compared(PART, f"one tool call, session of {short} messages, p50", ours[short].p50, limit, at_most=3, note=note),
        compared(PART, f"one tool call, session of {long:,} messages, p50", ours[long].p50, syncs[long] * bare.p50),
        compared(PART, f"{long:,} messages against {short}", ours[long].p50, ours[short].p50, at_most=1.5),
        compared(PART, f"one tool call, session of {short} messages, p99", ours[short].p99, limit),
    ]
