"""The parent of the workers, and the lines between them."""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing

import pytest

from holdfast.errors import Unusable
from holdfast.gateway.server.metrics import Counts, Metrics
from holdfast.gateway.workers.group import DEATHS_MAX, WorkerGroup
from holdfast.gateway.workers.peers import Peers
from holdfast.gateway.workers.share import Share
from holdfast.ids import SessionId, TurnId
from holdfast.runtime.streams.feed import Delta, Feed, Gap, Reply, Subscription
from holdfast.testing.loop import in_loop

OPS, TURN = SessionId("ops/a"), TurnId("t1")


@in_loop
async def test_a_worker_that_dies_again_and_again_ends_the_server() -> None:
    starts: list[str] = []

    def command(place: str) -> Sequence[str]:
        starts.append(place)
        return [sys.executable, "-S", "-c", "raise SystemExit(3)"]

    with socket.socket() as sock:
        group = WorkerGroup(1, sock, None, command)
        with pytest.raises(Unusable, match=r"worker 0 ended 6 times .* exit code 3"):
            await asyncio.wait_for(group.run(), 60)
    assert len(starts) == DEATHS_MAX + 1


def no_counts() -> Counts:
    return Metrics().counts({})


@asynccontextmanager
async def two_workers() -> AsyncGenerator[tuple[Feed, Feed, list[asyncio.Task[None]]], None]:
    """Two workers in this process, with real lines between them."""
    lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    feeds = (Feed(), Feed())
    running = []
    for number, feed in enumerate(feeds):
        other = 1 - number
        peers = Peers(
            Share(number, 2, 2), lines[number][0], {other: lines[other][1]}, feed, no_counts
        )
        running.append(asyncio.create_task(peers.run()))
    await asyncio.sleep(0)
    try:
        yield (*feeds, running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        for pair in lines:
            for end in pair:
                end.close()


async def heard(subscription: Subscription, wake: asyncio.Event) -> list[Delta | Gap]:
    async with asyncio.timeout(60):
        while not (pieces := subscription.take()):
            wake.clear()
            await wake.wait()
    return pieces


@in_loop
async def test_a_late_follower_in_another_worker_gets_the_reply_from_its_beginning() -> None:
    wake = asyncio.Event()
    async with two_workers() as (driving, following, _):
        with Reply(driving, OPS, TURN, 7) as reply:
            reply.hear("from the ")
            reply.hear("beginning")
            with following.listen(OPS, wake) as subscription:
                first = await heard(subscription, wake)
                assert first == [Delta(OPS, TURN, "text", "from the beginning", after=7)]
                reply.hear(" on")
                second = await heard(subscription, wake)
                assert second == [Delta(OPS, TURN, "text", " on", after=7, offset=18)]


@in_loop
async def test_a_long_piece_arrives_in_parts() -> None:
    wake, text = asyncio.Event(), "\x01" * 100_000
    async with two_workers() as (driving, following, _):
        with following.listen(OPS, wake) as subscription, Reply(driving, OPS, TURN, 7) as reply:
            await asyncio.sleep(0)
            reply.hear(text)
            pieces: list[Delta | Gap] = []
            while sum(len(each.text) for each in pieces if isinstance(each, Delta)) < len(text):
                pieces += await heard(subscription, wake)
    assert not any(isinstance(each, Gap) for each in pieces)


@in_loop
async def test_a_full_inbox_costs_pieces_and_shows_the_gap() -> None:
    wake = asyncio.Event()
    async with two_workers() as (driving, following, _):
        with following.listen(OPS, wake) as subscription:
            with Reply(driving, OPS, TURN, 7) as begun:
                begun.hear("begun")
                await heard(subscription, wake)  # the driving worker knows its follower now
            for number in range(20_000):  # nobody reads meanwhile: this loop does not wait
                driving.say(Delta(OPS, TURN, "output", "x" * 200, offset=number * 200))
            pieces = await heard(subscription, wake)
            while not any(isinstance(each, Gap) for each in pieces):
                driving.say(Delta(OPS, TURN, "output", "later", offset=0))
                pieces += await heard(subscription, wake)
    assert 1 < len(pieces) < 20_000


@in_loop
async def test_a_worker_that_begins_again_learns_who_follows() -> None:
    wake = asyncio.Event()
    lines = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    first = Feed()
    peers = Peers(Share(0, 2, 2), lines[0][0], {1: lines[1][1]}, first, no_counts)
    following = asyncio.create_task(peers.run())
    try:
        with first.listen(OPS, wake) as subscription:
            for _ in range(2):  # the second worker, and the one that takes its place
                feed = Feed()
                again = Peers(Share(1, 2, 2), lines[1][0], {0: lines[0][1]}, feed, no_counts)
                driving = asyncio.create_task(again.run())
                with Reply(feed, OPS, TURN, 7) as reply:
                    reply.hear("still heard")
                    assert await heard(subscription, wake)
                driving.cancel()
                await asyncio.wait([driving])
    finally:
        following.cancel()
        await asyncio.wait([following])
        for pair in lines:
            for end in pair:
                end.close()


@in_loop
async def test_a_worker_that_does_not_answer_is_left_out_of_the_counts() -> None:
    inbox, own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    silent, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(inbox), closing(own), closing(silent), closing(outbox):
        peers = Peers(Share(0, 2, 2), inbox, {1: outbox}, Feed(), no_counts)
        assert set(await asyncio.wait_for(peers.counts(), 60)) == {0}
