"""
Fixtures of every test: Hypothesis' profiles, compiled sources, and a plain word when the system lacks
a program.

A missing program skips the test with the reason, so that a plain user can run `make test` anywhere.
Where CI=true it fails the test: there a skip would hide that a promise went untested.
"""

import compileall
import os
import re
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.warm import WarmStart

if TYPE_CHECKING:
    from proof.rigs.postgres_cluster import Cluster
    from proof.rigs.postgres_world import PostgresWorld

    from holdfast.ports.clock import Clock

# The same examples in every run: a red `make test` is red for everybody.
settings.register_profile(
    "quick",
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
# New examples in every run; what fails is printed as a line that repeats it.
settings.register_profile(
    "long",
    deadline=None,
    max_examples=2000,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


SOURCES = Path(__file__).resolve().parents[1] / "src"


def pytest_configure(config: pytest.Config) -> None:
    # Started in the background or by nohup, a process ignores some signals, and so would all that
    # it starts: tests send them, and programs expect them.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name in ("SIGHUP", "SIGQUIT"):
            signal.signal(signal.Signals[name], signal.SIG_DFL)
    # Tests start a thousand commands. Where Python may keep nothing of what it compiled
    # (PYTHONDONTWRITEBYTECODE, common in containers), each would
    # compile all of our modules again, which is half of its time; so it is done here, once, as pip
    # does it for an installed package.
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(SOURCES, quiet=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the scenario files anew; the diff is what gets reviewed",
    )
    parser.addoption(
        "--cold",
        action="store_true",
        help="start every command as people do, and none by a fork of one that has imported all",
    )


@pytest.fixture(scope="session")
def warm(request: pytest.FixtureRequest) -> Iterator[WarmStart | None]:
    """
    Where commands are started from; None with `--cold`, and where Python can't watch a process.
    """
    if request.config.getoption("--cold") or not hasattr(os, "pidfd_open"):
        yield None
        return
    made = WarmStart()
    yield made
    made.close()


# A plain user's PATH often lacks the folders where Debian keeps mkfs.ext4 and losetup.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find_or_give_up(program: str) -> str:
    """Path of a system program; skips the test without it, fails it where CI=true."""
    found = shutil.which(program, path=SEARCH_PATH)
    if found is not None:
        return found
    reason = f"needs the program {program}, which is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def needs() -> Callable[[str], str]:
    """`strace = needs("strace")`: its path, or the test ends here."""
    return find_or_give_up


def pytest_runtest_setup(item: pytest.Item) -> None:
    """`@pytest.mark.needs_system("strace", "bwrap")`: checked before any fixture is made."""
    for mark in item.iter_markers("needs_system"):
        for program in mark.args:
            find_or_give_up(program)


# A run of CI must not be green without them: nothing else tests what they test.
_NEVER_SKIPPED = re.compile(
    r"postgres|pgbouncer|openssl|chromium|browser|bubblewrap|bwrap", re.IGNORECASE
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI=true, a test of PostgreSQL, the browser or bubblewrap that was skipped has failed."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        reason = str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
        if _NEVER_SKIPPED.search(f"{item.nodeid} {reason}"):
            report.outcome = "failed"
            report.longrepr = f"skipped, and CI=true does not let it: {reason}"
    return report


@pytest.fixture(scope="session")
def postgres() -> Generator["Cluster", None, None]:
    """One private PostgreSQL cluster for each worker, on a socket and on loopback."""
    from proof.rigs.postgres_cluster import Cluster, find_server

    programs = find_server()
    if programs is None:
        reason = "needs a PostgreSQL server (on Debian: postgresql), which is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    cluster = Cluster(programs).create().start()
    yield cluster
    cluster.remove()


@pytest.fixture
def postgres_world(postgres: "Cluster", tmp_path: Path) -> "Callable[..., PostgresWorld]":
    """Make a home in a schema of its own; the caller closes it."""
    from proof.rigs.postgres_world import PostgresWorld

    def made(*, clock: "Clock | None" = None) -> PostgresWorld:
        schema = f"hf_{uuid.uuid4().hex[:12]}"
        return PostgresWorld(postgres.url(), schema, tmp_path / "node", clock=clock)

    return made
