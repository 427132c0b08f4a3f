"""kill -9 while a turn waits for a model that does not answer (T7)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FAILURES = 4  # the fourth wait is long enough to be killed in: 4 s


def holdfast(home: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", "--home", str(home), "--json", *arguments]


def types(home: Path) -> list[str]:
    found = (home / "sessions/ops/api").glob("*.jsonl")
    lines = [line for path in sorted(found) for line in path.read_text().splitlines()]
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    return [each["type"] for each in whole if "type" in each]


def test_a_kill_in_the_wait_loses_neither_the_turn_nor_a_try(tmp_path: Path) -> None:
    home, script = tmp_path / "home", tmp_path / "script.jsonl"
    lines = [*[{"fail": "server"}] * FAILURES, {"say": "at last"}]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "work").mkdir()
    sending = subprocess.Popen(
        holdfast(home, "send", "ops/api", "hello", "--model", f"script:{script}"),
        cwd=tmp_path / "work",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ends_at = time.monotonic() + 60
        while types(home).count("model_call_failed") < FAILURES:
            assert sending.poll() is None
            assert time.monotonic() < ends_at
            time.sleep(0.02)
    finally:
        os.kill(sending.pid, signal.SIGKILL)
        sending.wait()
    assert types(home)[-1] == "model_call_failed"
    shown = subprocess.run(
        holdfast(home, "sessions", "show", "ops/api"), capture_output=True, check=True
    )
    report = json.loads(shown.stdout)
    assert (report["phase"], report["retry"]["tries"]) == ("retrying", FAILURES)
    resumed = subprocess.run(
        holdfast(home, "resume"), cwd=tmp_path / "work", capture_output=True, check=True, timeout=60
    )
    assert b"at last" in resumed.stdout
    assert types(home).count("model_call_failed") == FAILURES
