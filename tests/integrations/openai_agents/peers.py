"""
The SDK's own tests of sessions, over `HoldfastSession`; `make test-peers` prints their numbers.

They are not in the wheel, so the source distribution is taken at the version and with the hash that
the lock names. The tests that must fail are named, each with the reason.
"""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

HERE = Path(__file__).parent
LOCK = HERE.parents[2] / "requirements/integrations-openai-agents.lock"
SUITE = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
PASSED = 53
# These look into SQLite: its connections, its threads, its locks, its rows.
OF_SQLITE = {
    "test_sqlite_session_close_closes_worker_thread_connections",
    "test_sqlite_session_reaps_connections_from_exited_worker_threads",
    "test_sqlite_session_closes_retired_connections_before_the_next_allocation",
    "test_sqlite_session_keeps_connections_of_live_worker_threads",
    "test_sqlite_session_file_lock_is_shared_across_instances",
    "test_sqlite_session_failed_add_items_releases_write_lock",
    "test_sqlite_session_failed_clear_session_rolls_back",
    "test_sqlite_session_failed_pop_item_releases_write_lock",
    "test_sqlite_session_rollback_failure_evicts_connection",
    "test_sqlite_session_close_retries_quarantined_connection",
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[add]",
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[pop]",
    "test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome[clear]",
    # A home is closed, not a session of it.
    "test_sqlite_session_closed_rejects_empty_add_items",
    # A damaged row is skipped by SQLiteSession. Holdfast seals a journal that was changed.
    "test_sqlite_session_pop_item_skips_corrupt_most_recent",
    "test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows",
    "test_sqlite_session_get_items_limit_skips_corrupt_newest_rows",
    "test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows",
}


def source_of(name: str, folder: Path) -> Path:
    """Unpack the source distribution that the lock names. Its hash is checked."""
    found = re.search(
        rf"^{name}==\S+ \\\n(?: +--hash=\S+(?: \\)?\n)+", LOCK.read_text(), re.MULTILINE
    )
    assert found is not None, f"{LOCK.name} does not pin {name}"
    (folder / "wanted.txt").write_text(found[0])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    options = ["--no-deps", "--no-binary", name, "--require-hashes", "-r", "wanted.txt"]
    subprocess.run([*pip, *options], cwd=folder, check=True, timeout=600)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (root,) = (each for each in folder.iterdir() if each.is_dir())
    return root


@pytest.mark.timeout(1800)  # it downloads, and opens a home for each step
def test_the_session_passes_the_sdks_own_tests(tmp_path: Path) -> None:
    source = source_of("openai-agents", tmp_path)
    report = tmp_path / "report.xml"
    plugins = ["-p", "swapped_session", "-p", "no:cacheprovider"]
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, f"--junitxml={report}", *SUITE],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(HERE)},
        capture_output=True,
        timeout=1200,
        check=False,
    )
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314  # written by pytest just now
    failed = {each.get("name") for each in cases if len(each)}
    print(  # noqa: T201  # the numbers are the point
        f"OpenAI Agents, tests of sessions: {len(cases) - len(failed)} passed, "
        f"{len(failed)} not passed, {len(OF_SQLITE)} of them look into SQLite"
    )
    assert (failed, len(cases) - len(failed)) == (OF_SQLITE, PASSED)
