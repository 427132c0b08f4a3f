"""`@ag-ui/client` from npm over a real server: it accepts every stream, and drives an approval."""

import json
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.gateway.agui.test_runs import records
from tests.acceptance.gateway.conftest import Gateway

PLACE = Path(__file__).resolve().parents[4] / ".venv-agui"
SCRIPT = Path(__file__).with_name("real_client.mjs")
pytestmark = pytest.mark.skipif(
    not (PLACE / ".made").exists(), reason="`make test-agui` makes the environment"
)
Step = Callable[..., dict[str, Any]]


@contextmanager
def client(gateway: Gateway, token: str, thread: str) -> Generator[Step, None, None]:
    node = shutil.which("node")
    assert node is not None
    words = [node, str(SCRIPT), str(PLACE), f"{gateway.url}/v1/agui", token, thread]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        hear, say = process.stdout, process.stdin
        assert hear is not None
        assert say is not None

        def step(**run: Any) -> dict[str, Any]:
            say.write(json.dumps(run) + "\n")
            say.flush()
            told: dict[str, Any] = json.loads(hear.readline())
            return told

        try:
            yield step
        finally:
            say.close()


def answer(interrupt: dict[str, Any], option: str) -> dict[str, Any]:
    schema = interrupt["responseSchema"]["properties"]
    payload = {"option": option, "digest": schema["digest"]["const"], "answer_id": "r1"}
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def test_the_real_client_asks_reloads_and_approves_over_a_kill(gateway: Gateway) -> None:
    gateway.start()
    token = gateway.token("alice")
    with client(gateway, token, "th-1") as step:
        told = step(say="what time is it", id="m1", runId="run-1")
        assert told["ok"], told
        assert [each["role"] for each in told["newMessages"]] == ["assistant", "tool", "assistant"]
        repeated = step(runId="run-1")
        assert repeated["ok"], repeated
        assert repeated["messages"] == told["messages"]

        asked = step(say="run: echo once >> ran.txt", id="m2", runId="run-2")
        (interrupt,) = asked["interrupts"]
        assert "echo once >> ran.txt" in interrupt["message"]
        # The library itself refuses to go on without a word about the open interrupt.
        assert "not addressed by resume" in step(say="hello", id="m3", runId="run-3")["error"]
        gateway.kill()
        gateway.start(gateway.port)
    assert len(records(gateway, "agui/th-1", "input_accepted")) == 2
    with client(gateway, token, "th-1") as step:  # another process: nothing is remembered there
        again = step(say="run: echo once >> ran.txt", id="m2", runId="run-4")
        assert again["interrupts"] == [interrupt]
        refused = step(
            runId="run-5",
            resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": True}],
        )
        assert "HTTP 400" in refused["error"]
        done = step(runId="run-6", resume=[answer(interrupt, "approve_once")])
        assert done["ok"], done
        assert done["interrupts"] == []
        assert [each["role"] for each in done["messages"]] == [
            "user", "assistant", "tool", "assistant",
        ]  # fmt: skip
        twice = step(runId="run-6", resume=[answer(interrupt, "approve_once")])
        assert twice["ok"], twice
        assert twice["messages"] == done["messages"]
    assert (gateway.work / "ran.txt").read_text() == "once\n"
    assert len(records(gateway, "agui/th-1", "tool_started")) == 2


def test_the_real_client_hears_of_failures_and_stops(gateway: Gateway) -> None:
    """A failed turn is an error, and a stopped one is not a success."""
    lines: list[dict[str, Any]] = [
        {"say": "half a "},
        {"expect": {"last_tool_result_contains": "never"}, "say": "x"},
        {"sleep": 600, "say": "never"},
    ]
    gateway.settings(f'[agents.assistant]\nmodel = "{gateway.script(*lines)}"\ntools = []\n')
    gateway.start()
    token = gateway.token("alice")
    alice = gateway.client(token)
    with client(gateway, token, "th-1") as step:
        assert step(say="one", id="m1", runId="run-1")["newMessages"][0]["content"] == "half a "
        failed = step(say="two", id="m2", runId="run-2")
        assert failed["events"][-1] == "RUN_ERROR"
        gateway.send(alice, "agui/th-1", "three", key="agui:message:m3")
        assert alice.post("/v1/sessions/agui/th-1/cancel").is_success
        stopped = step(say="three", id="m3", runId="run-3")
        assert stopped["ok"], stopped
        assert stopped["events"][-1] == "RUN_FINISHED"
        assert stopped.get("result") is None
