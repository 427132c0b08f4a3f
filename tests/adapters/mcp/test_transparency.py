"""
The official conformance suite gives the everything server of the MCP library the same verdict
behind the proxy as without it, check by check: over `/mcp` and through `holdfast mcp proxy`, in
both versions of the protocol. Its tools are pinned and allowed, its resources and prompts relayed.

Differences on purpose stand in DECLARED, each with its reason. Any other difference fails, and so
does a declaration that no check needs.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.adapters.mcp.real import NODE, NPM, PLACE, PYTHON, ROOT, home_with, needs_environment
from tests.adapters.mcp.served import ServedHome, serving, with_token
from tests.adapters.mcp.stdio_bridge import bridged

pytestmark = [needs_environment, pytest.mark.needs_system("bwrap"), pytest.mark.timeout(1200)]

LAUNCHER = Path(__file__).with_name("everything_server.py")
COMMAND = [str(PYTHON), "-I", str(LAUNCHER), str(PLACE / "everything-server")]
SCENARIOS_MIN = 30  # of the suite, in each version
_SUITE_SECONDS = 500
_SCENARIO_SECONDS = 120
_AGAIN_MAX = 3  # judgements of one scenario

_ASKS = (
    "a server's request reaches no client: an answer of a client is not a person's, and no person "
    "is there to answer in this test"
)
_PROGRESS = "the progress of a server is not passed on; a client hears of its call's own wait"
_LOGS = "logs of a server are not passed on: its level would be one for all clients"
_PUSH = "nothing is pushed: a client sees a changed list or resource when it asks"
_SESSIONS = "there is no session to end: its id repeats a client's name, and opens nothing"
_ONE_BODY = (
    "an answer is one body, unless its call waits; a broken stream is not resumed, and the same "
    "call again gets its result"
)
_PIPE = (
    "a request without a version begins an older connection on the server's pipe, which ends with "
    "another error; the proxy has no connections of two kinds"
)

DECLARED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("2025-11-25", "both"): {
        "tools-call-sampling": _ASKS,
        "tools-call-elicitation": _ASKS,
        "elicitation-sep1034-defaults": _ASKS,
        "elicitation-sep1330-enums": _ASKS,
        "tools-call-with-progress": _PROGRESS,
        "tools-call-with-logging": _LOGS,
        "logging-set-level": _LOGS,
        "resources-subscribe": _PUSH,
        "resources-unsubscribe": _PUSH,
    },
    ("2025-11-25", "http"): {
        "server-session-lifecycle": _SESSIONS,
        "server-sse-polling": _ONE_BODY,
        "server-sse-multiple-streams": _ONE_BODY,
    },
    ("2026-07-28", "both"): {
        "input-required-result-basic-elicitation": _ASKS,
        "input-required-result-basic-list-roots": _ASKS,
        "input-required-result-basic-sampling": _ASKS,
        "input-required-result-capability-check": _ASKS,
        "input-required-result-missing-input-response": _ASKS,
        "input-required-result-multi-round": _ASKS,
        "input-required-result-multiple-input-requests": _ASKS,
        "input-required-result-non-tool-request": _ASKS,
        "input-required-result-request-state": _ASKS,
        "input-required-result-result-type": _ASKS,
        "input-required-result-tampered-state": _ASKS,
        "server-stateless/sep-2575-http-server-no-independent-requests-on-stream": _ASKS,
        "server-stateless/sep-2575-server-honors-notification-filter": _PUSH,
        "server-stateless/sep-2575-server-sends-prompts-list-changed-on-subscription": _PUSH,
        "server-stateless/sep-2575-server-sends-subscription-ack": _PUSH,
        "server-stateless/sep-2575-server-sends-tools-list-changed-on-subscription": _PUSH,
        "server-stateless/sep-2575-server-tags-subscription-id": _PUSH,
        "tools-call-with-progress": _PROGRESS,
    },
    ("2026-07-28", "stdio"): {
        "server-stateless/sep-2575-request-meta-invalid-missing-meta": _PIPE,
        "server-stateless/sep-2575-request-meta-invalid-missing-protocol-version": _PIPE,
    },
}

Verdict = Mapping[tuple[str, str], Counter[str]]
"""How often each status was given, by scenario and check."""

Differences = Mapping[tuple[str, str], tuple[dict[str, int], dict[str, int]]]
"""Both verdicts of each check that differs: directly, and behind the proxy."""


@pytest.mark.parametrize("wire", ["http", "stdio"])
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_everything_server_behaves_behind_the_proxy_as_without_it(
    tmp_path: Path, version: str, wire: str
) -> None:
    declared = {**DECLARED[version, "both"], **DECLARED.get((version, wire), {})}
    more = 'relay = ["resources", "prompts"]\n[mcp]\nwait = "1s"'
    home = home_with(tmp_path, [*COMMAND, "stdio"], write=[], more=more, read=[str(LAUNCHER)])
    with (
        bare_server(wire) as bare,
        serving(home) as served,
        front(served, wire) as proxied,
    ):

        def differences(*only: str) -> Differences:
            places = [Path(tempfile.mkdtemp(dir=tmp_path)) for _ in range(2)]
            one, other = (
                verdict(url, version, place, only)
                for url, place in zip((bare, proxied), places, strict=True)
            )
            return {
                name: (dict(one.get(name, {})), dict(other.get(name, {})))
                for name in {*one, *other}
                if one.get(name) != other.get(name)
            }

        found = differences()
        odd = _undeclared(found, declared)
        for _ in range(_AGAIN_MAX - 1):
            again = [differences(each) for each in sorted({scenario for scenario, _ in odd})]
            odd = _undeclared({key: each[key] for each in again for key in each}, declared)
    assert odd == {}
    assert {_declared_name(name, declared) for name in found} - {None} == set(declared)


def _undeclared(found: Differences, declared: Mapping[str, str]) -> Differences:
    return {name: each for name, each in found.items() if not _declared_name(name, declared)}


def _declared_name(name: tuple[str, str], declared: Mapping[str, str]) -> str | None:
    scenario, check = name
    return next((each for each in (scenario, f"{scenario}/{check}") if each in declared), None)


def verdict(url: str, version: str, folder: Path, only: tuple[str, ...] = ()) -> Verdict:
    """
    Run all scenarios of this version, or one. Notes (INFO) are not part of the verdict.
    """
    suite = [str(NODE), str(NPM / "conformance" / "dist" / "index.js"), "server", "--url", url]
    which = ["--scenario", only[0]] if only else ["--suite", "all"]
    limit = ["--timeout", str(_SCENARIO_SECONDS * 1000)]
    ran = subprocess.run(
        [*suite, "--spec-version", version, *which, *limit, "--output-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=_SUITE_SECONDS,
        check=False,
    )
    results = list(folder.glob("*/checks.json"))
    assert len(results) > (0 if only else SCENARIOS_MIN), ran.stdout[-2000:] + ran.stderr[-1000:]
    found: dict[tuple[str, str], Counter[str]] = {}
    for each in results:
        for check in json.loads(each.read_text()):
            if check["status"] != "INFO":
                name = _scenario(each), check["id"]
                found.setdefault(name, Counter())[check["status"]] += 1
    return found


def _scenario(result: Path) -> str:
    """Return NAME of `server-NAME-TIME`."""
    return re.sub(r"-\d{4}-\d\d-\d\dT.*", "", result.parent.name.removeprefix("server-"))


@contextmanager
def front(served: ServedHome, wire: str) -> Generator[str, None, None]:
    """The way of a client to Holdfast, as an address."""
    with ExitStack() as stack:
        if wire == "http":
            yield stack.enter_context(with_token(served))
        else:
            relay = [sys.executable, "-m", "holdfast", "--home", str(served.home)]
            command = [*relay, "mcp", "proxy", "--server", "peer"]
            yield stack.enter_context(bridged(command, served.environment))


@contextmanager
def bare_server(wire: str) -> Generator[str, None, None]:
    if wire == "stdio":
        with bridged([*COMMAND, "stdio"]) as url:
            yield url
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*COMMAND, str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            ends = time.monotonic() + 60
            while time.monotonic() < ends:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
