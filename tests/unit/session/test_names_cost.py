"""
A message can't make the summary's search for names cost its square: the server would stand still
for everybody.
"""

import time

import pytest

from holdfast.session.view.compaction import names_in


@pytest.mark.parametrize(
    "run", ["y", "a-", "/", "a/", "a.", "ab-", "a b-c.", "A1-", "0-", "~", "@"]
)
def test_a_long_run_costs_its_length_and_not_its_square(run: str) -> None:
    started = time.process_time()
    names_in(run * (250_000 // len(run)))
    assert time.process_time() - started < 5  # measured: a tenth of a second; squared: minutes
