"""A home in a folder of its own for every test."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "home"
