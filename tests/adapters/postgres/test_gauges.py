"""The numbers of a node that operators watch: appends, retries, the lease, claims, notices."""

from collections.abc import Callable, Generator

import pytest
from proof.rigs.postgres_world import PostgresWorld

from holdfast.adapters.postgres.store import PostgresStore
from holdfast.errors import Fenced
from holdfast.gateway.server.metrics import Metrics, metrics_text
from holdfast.testing.journal_notes import create_session, say
from holdfast.testing.loop import in_loop


@pytest.fixture
def world(
    postgres_world: Callable[[], PostgresWorld],
) -> Generator[PostgresWorld, None, None]:
    world = postgres_world()
    yield world
    world.close()


def _numbers(store: PostgresStore) -> dict[str, float]:
    return {name.removeprefix("storage_"): value for name, (_, value) in store.gauges().items()}


@in_loop
async def test_appends_retries_fences_and_the_lease_are_counted(world: PostgresWorld) -> None:
    """Each number moves with the thing that it counts, and with nothing else here."""
    here, there = await world.store(), await world.store()
    journal = await create_session(here)
    before = _numbers(here)
    assert before["claims"] == 0
    await say(journal, "one")
    await say(journal, "two")
    other = await there.open(journal.session)
    await say(journal, "three")
    behind = _numbers(there)
    await say(other, "four")  # decided on a head that has moved
    assert _numbers(here)["appends_total"] == before["appends_total"] + 3
    assert _numbers(here)["commits_total"] == before["commits_total"] + 3
    assert _numbers(here)["retries_total"] == before["retries_total"]
    assert _numbers(there)["retries_total"] == behind["retries_total"] + 1
    claim = await journal.claim()
    assert claim is not None
    held = _numbers(here)
    assert held["claims"] == 1
    assert 0 < held["lease_seconds"] <= here.lease_seconds
    assert held["connections"] >= 1
    await claim.release()
    with pytest.raises(Fenced):
        await journal.append(lambda _: [], since=journal.head, epoch=claim.epoch)
    assert _numbers(here)["claims"] == 0
    assert _numbers(here)["fenced_total"] == before["fenced_total"] + 1
    assert _numbers(here)["in_doubt_total"] == 0


@in_loop
async def test_the_numbers_are_metrics_with_a_sentence_each(world: PostgresWorld) -> None:
    store = await world.store()
    text = metrics_text({None: Metrics().counts(store.gauges())}, {})
    assert "# TYPE holdfast_storage_commits_total counter" in text
    assert "# TYPE holdfast_storage_lease_seconds gauge" in text
    for name, (about, _) in store.gauges().items():
        assert f"# HELP holdfast_{name} {about}" in text
        assert about.endswith(".")
