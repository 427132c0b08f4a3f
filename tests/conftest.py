"""
What every test gets: Hypothesis' profiles, compiled sources, and a plain word when the system lacks
a program.

A missing program skips the test with the reason, so that a plain user can run `make test` anywhere.
Where CI=true it fails the test: there a skip would hide that a promise went untested.
"""

import compileall
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.warm import WarmStart

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
