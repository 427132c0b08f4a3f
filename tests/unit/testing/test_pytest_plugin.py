"""
The plugin that every project with Holdfast installed gets: it brings one fixture, under a name of
ours.
"""

import subprocess
import sys
from pathlib import Path

PROJECT = """
import asyncio
import holdfast
import pytest

@pytest.fixture
def home():
    return "the project's own"

def test_a_project_keeps_its_own(home):
    assert home == "the project's own"

def test_ours(holdfast_home):
    async def story():
        async with holdfast_home() as opened:
            return await opened.send("ops/api", "hello", source=holdfast.MessageSource.local("alice"))
    assert asyncio.run(story()).outcome == "completed"
"""


def test_the_fixture_shadows_no_fixture_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(PROJECT)
    words = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert "2 passed" in done.stdout, done.stdout
    listed = subprocess.run(
        [*words, "--fixtures", "-v"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    ).stdout
    assert [
        line.split()[0]
        for line in listed.splitlines()
        if "holdfast/testing/pytest_plugin.py" in line
    ] == ["holdfast_home"]
