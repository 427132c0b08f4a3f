"""A server of one test's own, beside the private server of the run."""

from collections.abc import Generator

import pytest
from proof.rigs.postgres_cluster import Cluster


@pytest.fixture
def cluster(postgres: Cluster) -> Generator[Cluster, None, None]:
    """A server of this test's own, which it may kill and replace."""
    own = Cluster(postgres.bin).create().start()
    yield own
    own.remove()
