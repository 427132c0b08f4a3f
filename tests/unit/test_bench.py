"""Every part of the benchmarks can be loaded: they run rarely, and a moved name shows late."""

import importlib

import pytest
from bench.__main__ import PARTS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_benchmarks_can_be_loaded(part: str) -> None:
    assert callable(importlib.import_module(f"bench.{PARTS[part]}").measure)
