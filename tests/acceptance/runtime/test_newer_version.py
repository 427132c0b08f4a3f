"""
D8: a genuine record from the future makes a session read-only for this program. It is never
skipped, and is not tampering.
"""

import pytest

import holdfast
from holdfast.ports.journal_store import Draft
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice


@in_loop
async def test_a_record_of_a_newer_version_is_read_around_but_never_written_past(
    stage: Stage,
) -> None:
    ops = stage.agent([{"say": "hello"}, {"say": "never"}])
    async with stage.open(ops) as home:
        turn = await home.send("ops/api", "hi", source=alice)
        journal = await home.service.runtime.world.store.open(turn.session)
        await journal.append(
            lambda _: [Draft("dream_recorded", 7, b'{"of":"sheep"}')], since=journal.head
        )
        await journal.close()
    async with stage.open(ops) as home:
        with pytest.raises(holdfast.NewerVersion) as newer:
            await home.send("ops/api", "again", source=alice)
        assert "upgrade" in newer.value.hint
        report = await home.session("ops/api")
        assert (report.sealed, report.turns, report.phase) == (None, 1, "idle")
