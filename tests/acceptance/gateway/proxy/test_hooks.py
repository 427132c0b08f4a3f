"""Hooks of coding agents, with the JSON that the agents document, on stdin."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from tests.acceptance.gateway.conftest import WAIT_SECONDS, until
from tests.acceptance.gateway.proxy.conftest import Proxied

pytestmark = [pytest.mark.needs_system("bwrap"), pytest.mark.timeout(240)]


def hooked(
    proxied: Proxied, agent: str, event: dict[str, Any] | bytes, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    given = event if isinstance(event, bytes) else json.dumps(event).encode()
    home = ["--home", str(proxied.gateway.home)]
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *home, "hook", agent],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
        env={**proxied.environment("alice"), **env},
    )


def decision(done: "subprocess.CompletedProcess[bytes]") -> tuple[str, str]:
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["hookSpecificOutput"]
    assert told["hookEventName"] == "PreToolUse"
    return told["permissionDecision"], told["permissionDecisionReason"]


def event(tool: str, **given: Any) -> dict[str, Any]:
    return {
        "session_id": "s",
        "transcript_path": "/t",
        "cwd": "/w",
        "hook_event_name": "PreToolUse",
        "tool_name": tool,
        "tool_input": given,
        "tool_use_id": "u",
    }


def test_a_hook_asks_allows_denies_and_blocks_what_it_cannot_decide(proxied: Proxied) -> None:
    bash = event("Bash", command="make")
    said, why = decision(hooked(proxied, "claude-code", bash))
    prompt = proxied.waiting()
    assert (said, prompt["id"] in why) == ("deny", True)
    shown = {"command": "make", "in_folder": "/w"}
    assert (prompt["tool"], prompt["arguments"]) == ("claude-code.Bash", shown)
    # The agent runs its own call as it made it: an edit, or a grant, would be for something else.
    assert prompt["options"] == ["approve_once", "deny"]
    approver = proxied.gateway.client(proxied.approver("alice"))
    for option, more in (("edit", {"arguments": {"command": "ls"}}), ("approve_everywhere", {})):
        refused = proxied.gateway.answer(approver, prompt, option, **more)
        assert (refused.status_code, refused.json()["code"]) == (422, "option_unavailable")
    proxied.answer(prompt)
    # The same command in another folder is another call.
    elsewhere = {**bash, "cwd": "/other"}
    assert decision(hooked(proxied, "claude-code", elsewhere))[0] == "deny"
    assert decision(hooked(proxied, "claude-code", bash))[0] == "allow"
    # An approval counts once: the same call asks again.
    assert decision(hooked(proxied, "claude-code", bash))[0] == "deny"
    found = approver.get("/v1/approvals").json()["approvals"]
    again = next(each for each in found if each["arguments"] == shown)
    proxied.answer(again, "deny")
    said, why = decision(hooked(proxied, "claude-code", bash))
    assert (said, "waits" in why) == ("deny", False)
    settings = proxied.gateway.home / "holdfast.toml"
    settings.write_text(
        settings.read_text().replace("[policy.personal]", '[policy.personal]\n"codex.ls" = "auto"')
    )
    allowed = hooked(proxied, "codex", event("ls", path="/"))
    assert (allowed.returncode, json.loads(allowed.stdout)) == (0, {})
    for broken, more in (
        (b"{", {}),
        (b'{"tool_name":"ls","tool_name":"rm","tool_input":{}}', {}),
        (json.dumps(bash).encode(), {"HOLDFAST_TOKEN": ""}),
        (json.dumps(bash).encode(), {"HOLDFAST_URL": "http://127.0.0.1:1"}),
    ):
        blocked = hooked(proxied, "claude-code", broken, **more)
        assert (blocked.returncode, blocked.stdout) == (2, b"")
        assert blocked.stderr.startswith(b"Holdfast")
    proxied.tokens["alice"] = proxied.approver("alice")
    said, why = decision(hooked(proxied, "claude-code", bash))
    assert (said, "could answer itself" in why) == ("deny", True)


def gated(proxied: Proxied, command: str) -> str:
    answer = httpx2.post(
        f"{proxied.gateway.url}/v1/gates",
        json={"agent": "claude-code", "tool": "Bash", "arguments": {"command": command}},
        headers={"authorization": f"Bearer {proxied.tokens['alice']}"},
        timeout=WAIT_SECONDS,
    )
    decided: str = answer.json().get("decision", answer.text)
    return decided


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_one_approval_lets_one_of_several_equal_calls_go(proxied: Proxied, workers: int) -> None:
    settings = proxied.gateway.home / "holdfast.toml"
    settings.write_text(f"{settings.read_text()}[serve]\nworkers = {workers}\n")
    proxied.gateway.stop()
    proxied.gateway.start()
    # Nobody listens any more when the answer comes.
    assert gated(proxied, "late") == "wait"
    proxied.answer(proxied.waiting())
    with ThreadPoolExecutor(4) as pool:
        told = sorted(pool.map(lambda _: gated(proxied, "late"), range(4)))
    assert told == ["allow", "wait", "wait", "wait"]
    # All of them listen.
    approver = proxied.gateway.client(proxied.approver("alice"))
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(gated, proxied, "now") for _ in range(4)]

        def asked() -> dict[str, Any] | None:
            found = approver.get("/v1/approvals").json()["approvals"]
            return next((each for each in found if each["arguments"] == {"command": "now"}), None)

        proxied.answer(until(asked, "the prompt of all four"))
        told = sorted(each.result() for each in calls)
    assert told == ["allow", "wait", "wait", "wait"]
