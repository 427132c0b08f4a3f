"""
`verify` over many sessions that somebody keeps locked: what is waited for one is not waited for the
next.
"""

import asyncio

from holdfast.adapters.files.session.verification import unreadable
from holdfast.cli.commands.verify import _walked
from holdfast.ids import SessionId
from holdfast.journal.verify import Verdict
from holdfast.limits import LOCK_WAIT_SECONDS


class StuckStore:
    def __init__(self) -> None:
        self.waits: list[float] = []

    async def verify_session(self, session: SessionId, *, wait_seconds: float) -> Verdict:
        self.waits.append(wait_seconds)
        return unreadable(session, "is being written")


def test_verify_waits_for_all_together_as_long_as_for_one() -> None:
    store = StuckStore()
    found = asyncio.run(_walked(store, [SessionId(f"ops/{number}") for number in range(3)]))  # type: ignore[arg-type]  # all that it asks of a store
    first, second, third = store.waits
    assert first == LOCK_WAIT_SECONDS
    assert first > second > third
    assert [each.session for each in found] == ["ops/0", "ops/1", "ops/2"]
