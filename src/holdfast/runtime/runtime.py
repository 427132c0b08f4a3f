"""
The parts of one open home that the verbs and drives share. `Service` builds one; functions take it
as their first argument. It holds references and decides nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from holdfast.ids import SessionId
from holdfast.runtime.context import World
from holdfast.runtime.drive.outbox import owed_by
from holdfast.runtime.jobs.watcher import JobKeeper
from holdfast.runtime.ledger.home_ledger import HomeLedger
from holdfast.runtime.ledger.open_sessions import OpenSessions
from holdfast.runtime.ledger.rules import LedgerRules
from holdfast.runtime.reports.announcer import Announcer, write_sealed_row
from holdfast.runtime.streams.feed import Feed
from holdfast.runtime.tool_servers.pins import HomePins


@dataclass(frozen=True, kw_only=True)
class Runtime:
    world: World
    sessions: OpenSessions
    home: HomeLedger
    feed: Feed
    job_keeper: JobKeeper
    announcer: Announcer
    pins: HomePins


def runtime_of(world: World, drive: Callable[[SessionId], Awaitable[None]]) -> Runtime:
    """Build the parts over one world. `drive` drives a session on after one of its jobs ended."""
    home = HomeLedger(world.store, world.clock)
    world.check_clock = home.check_clock
    world.now_ms = home.now_ms
    announcer = Announcer(world)
    rules = LedgerRules(
        also=partial(owed_by, world),
        time=home,
        announcer=announcer,
        tuning=world.tuning,
    )
    sessions = OpenSessions(
        world.store,
        rules=rules,
        on_sealed=lambda session, instance: write_sealed_row(world, session, instance),
    )
    feed = Feed()
    pins = HomePins(world, home, sessions)
    if world.servers is not None:
        world.servers.attach(pins)
    return Runtime(
        world=world,
        sessions=sessions,
        home=home,
        feed=feed,
        job_keeper=JobKeeper(world, sessions, feed, drive),
        announcer=announcer,
        pins=pins,
    )
