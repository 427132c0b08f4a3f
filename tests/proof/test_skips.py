"""A run of CI is not green while a test of PostgreSQL, the browser or bubblewrap was skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = """
import pytest

@pytest.mark.parametrize("what", ["PostgreSQL server", "chromium", "bubblewrap that works"])
def test_without_its_server(what):
    pytest.skip(f"needs a {what}")

def test_for_another_system():
    pytest.skip("needs another kernel")
"""
_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("ci", "failed"), [("true", 1), ("", 0)])
def test_a_skipped_test_of_a_promise_fails_where_ci_is_true(
    tmp_path: Path, ci: str, failed: int
) -> None:
    place = tmp_path / "test_sample.py"
    place.write_text(_TESTS)
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c", os.devnull]
    options += ["--rootdir", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(place)],
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
        timeout=120,
        env={**os.environ, "CI": ci, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])},
    )
    assert ran.returncode == failed, ran.stdout + ran.stderr
    assert ("3 failed, 1 skipped" in ran.stdout) == bool(failed)
