"""
A turn with one tool call that needs no approval, on short and long sessions, against the syncs that
its promises require.

The syncs are counted as they happen and priced at what a bare write+fdatasync costs on this disk in
this run. The model is a stand-in that answers at once, so all that is left is ours. The bare steps
that the promises ask for are measured beside it, as a plain program takes them.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import holdfast
from bench.bare import BareTurns
from bench.ground import Ground, RawFile, Row, Times, compared, counting_syncs, timed, told
from bench.journals import LINE_BYTES
from holdfast.assembly.service import open_service
from holdfast.home import specs_from_agents
from holdfast.ports.model import ModelRequest, OnText
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.view.messages import ModelAnswer, ProposedCall, ResultMessage, Usage

PART = "turn"
SHORT, LONG = 10, 1_000
CALLS_MAX = 2_000
CALLS_NOTE = "in the event loop's thread, asyncio included"
CPU_NOTE = "of all threads; a busy machine changes it less than it changes the time"
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
            return ModelAnswer(
                text="It is up, and has been up since the night before.",
                usage=Usage(input_tokens=40 * len(request.messages)),
            )
        self.asked += 1  # equal calls again and again would be stopped, and rightly
        usage = Usage(input_tokens=40 * len(request.messages), output_tokens=12)
        return ModelAnswer(
            text="",
            calls=(ProposedCall("service_status", f'{{"service":"api-{self.asked}"}}', None),),
            usage=usage,
        )


@asynccontextmanager
async def instant_service(home: Path) -> AsyncIterator[Service]:
    specs, tools, _ = specs_from_agents(
        [holdfast.Agent("ops", model="instant", tools=[service_status])]
    )
    async with open_service(home, agents=specs, tools=tools, models=Instant()) as service:
        yield service


def measure(ground: Ground) -> list[Row]:
    return asyncio.run(_measure(ground))


async def _measure(ground: Ground) -> list[Row]:
    home = ground.fresh("turn") / "home"
    async with instant_service(home) as service:
        await _talk(service, f"bench/turn{LONG}", LONG)
        raw = RawFile(ground.folder, LINE_BYTES, "raw-turn")
        steps = BareTurns(ground.fresh("bare"), already=SHORT * LINE_BYTES)
        bare: list[float] = []
        least: list[float] = []
        least_cpu: list[float] = []
        cpu: list[float] = []
        ours: dict[int, list[float]] = {SHORT: [], LONG: []}
        made: dict[int, list[int]] = {SHORT: [], LONG: []}
        with counting_syncs() as counted:
            for number in range(ground.count(120)):
                await _talk(service, f"bench/short{number}", SHORT)
                bare += [timed(raw.append) for _ in range(6)]
                used = time.process_time()
                least.append(await steps.turn())
                least_cpu.append(time.process_time() - used)
                for length, session in (
                    (SHORT, f"bench/short{number}"),
                    (LONG, f"bench/turn{LONG}"),
                ):
                    before, started = counted().count, time.perf_counter()
                    used = time.process_time()
                    turn = await service.send(session, Incoming(text="look", source=SOURCE))
                    ours[length].append(time.perf_counter() - started)
                    if length == SHORT:
                        cpu.append(time.process_time() - used)
                    made[length].append(counted().count - before)
                    assert turn.outcome == "completed", turn
        calls = await _python_calls(service)
        steps.close()
        raw.close()
    syncs = {
        length: round(statistics.median(each)) for length, each in made.items()
    }  # a rotation now and then makes some more
    times = {length: Times(each) for length, each in ours.items()}
    return [
        *_rows(Times(bare), Times(least), times, syncs),
        compared(
            PART,
            "CPU of one tool call, against its bare steps, p50",
            Times(cpu).p50,
            Times(least_cpu).p50,
            note=CPU_NOTE,
        ),
        Row(
            PART,
            "Python calls of one turn with one tool call",
            f"{calls:,}",
            goal=f"<= {CALLS_MAX:,}",
            reached=calls <= CALLS_MAX,
            note=CALLS_NOTE,
        ),
    ]


async def _python_calls(service: Service) -> int:
    """Count the calls of one turn, coroutines that go on included, in the event loop's thread."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await service.send("bench/short0", Incoming(text="look", source=SOURCE))
    finally:
        sys.setprofile(None)
    return calls


async def _talk(service: Service, session: str, messages: int) -> None:
    for _ in range(messages // 2):
        await service.send(session, Incoming(text="say something", source=SOURCE))


def _rows(bare: Times, least: Times, ours: dict[int, Times], syncs: dict[int, int]) -> list[Row]:
    short, long = ours[SHORT], ours[LONG]
    limit = syncs[SHORT] * bare.p50
    quiet = f"at p10 {told(short.p10)}, {short.p10 / (syncs[SHORT] * bare.p10):.2f} x"
    note = f"limit: the {syncs[SHORT]} syncs it makes, at {told(bare.p50)} each; {quiet}"
    nothing = "four commits and the anchor's sync, by a plain program that decides, folds, runs and lists nothing"
    return [
        compared(
            PART,
            f"one tool call, session of {SHORT} messages, p50",
            short.p50,
            limit,
            at_most=3,
            note=note,
        ),
        compared(PART, "the bare steps of its commits, p50", least.p50, 5 * bare.p50, note=nothing),
        compared(PART, "one tool call against its bare steps", short.p50, least.p50, at_most=1.5),
        compared(
            PART,
            f"one tool call, session of {LONG:,} messages, p50",
            long.p50,
            syncs[LONG] * bare.p50,
        ),
        compared(PART, f"{LONG:,} messages against {SHORT}", long.p50, short.p50, at_most=1.5),
        compared(PART, f"one tool call, session of {SHORT} messages, p99", short.p99, limit),
    ]
