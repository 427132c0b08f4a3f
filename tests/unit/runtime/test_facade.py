"""
The commands, the gateway and the library use the verbs of `Service` and nothing behind them; the
ledger announces, and no other part of the runtime does.
"""

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.runtime import service

SOURCE = Path(holdfast.__file__).parent
OUTSIDE = sorted(
    path
    for place in ("cli/**/*.py", "gateway/**/*.py", "integrations/**/*.py", "*.py")
    for path in SOURCE.glob(place)
)
# Types that verbs take or return. Everything else of the runtime lies behind the facade.
TYPES = (
    "service",
    "context",
    "cancellation",
    "external_loop",
    "reminders",
    "reports.builder",
    "reports.types",
    "reports.decisions",
    "reports.explain",
    "reports.grants",
    "reports.session_list",
    "reports.lock_budget",
    "reports.search",
    "reports.open_prompts",
    "jobs.reports",
    "jobs.verbs",
    "memory.admin",
    "ledger.home_authority",
    "ledger.home_ledger",
    "ledger.ledger",
    "lifecycle.import_file",
    "lifecycle.prune",
    "streams.feed",
    "streams.in_flight",
    "tool_servers.reports",
    "verbs.accept",
)
BEHIND = re.compile(r"service\s*\.\s*(runtime|_\w+)\b")
IMPORTED = re.compile(r"from holdfast\.runtime\.([\w.]+) import ([^\n(]+|\([^)]*\))")
# Functions that take a Runtime, a World or the open sessions: a verb of the facade calls them.
TAKES = re.compile(r"def (\w+)\(\s*(?:runtime|world|opened)\s*:")


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_outside_reaches_behind_the_facade(path: Path) -> None:
    text = path.read_text()
    assert not BEHIND.findall(text)
    for module, names in IMPORTED.findall(text):
        assert module in TYPES or module.startswith("external_loop"), module
        inside = SOURCE / "runtime" / (module.replace(".", "/") + ".py")
        hidden = set(TAKES.findall(inside.read_text())) if inside.is_file() else set()
        assert not hidden & set(re.findall(r"\w+", names)), module


def test_every_room_and_verb_is_listed_at_the_top_of_the_facade() -> None:
    listed = service.__doc__ or ""
    for verb in vars(service.Service):
        assert verb.startswith("_") or re.search(rf"\b{verb}\b", listed), verb
    for room in ("jobs", "memory", "lifecycle", "decisions", "live", "home"):
        assert f"Service.{room}" in listed


def test_only_the_announcer_notifies_of_commits() -> None:
    """
    There are two other notices. A driver that gives up wakes whoever could go on, and a new session
    of a delegate has no ledger yet.
    """
    runtime = SOURCE / "runtime"
    notifying = {
        str(path.relative_to(runtime))
        for path in runtime.rglob("*.py")
        if "notifier.notify(" in path.read_text()
    }
    assert notifying == {"reports/announcer.py", "drive/turn.py", "delegates/start.py"}
