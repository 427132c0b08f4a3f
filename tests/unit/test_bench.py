"""
Every part of the benchmarks can be loaded: they run rarely, and a moved name shows late. One that
fails does not cost what the others found.
"""

import importlib
import json
import sys
from pathlib import Path

import pytest
from bench import lengths
from bench.__main__ import PARTS, main
from bench.ground import Ground


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_the_benchmarks_can_be_loaded(part: str) -> None:
    assert callable(importlib.import_module(f"bench.{PARTS[part]}").measure)


def test_a_part_that_fails_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Ground) -> None:
        raise OSError("no room")

    found = tmp_path / "found.json"
    words = ["lengths", "fold", "--scale", "0.01", "--in", str(tmp_path), "--json", str(found)]
    monkeypatch.setattr(lengths, "measure", fails)
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # `main` removes it
    with pytest.raises(SystemExit, match="failed: lengths"):
        main()
    assert {row["part"] for row in json.loads(found.read_text())["rows"]} == {"fold"}
