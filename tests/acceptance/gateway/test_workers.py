"""Several workers behind one port keep every promise, also when one of them is killed."""

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from holdfast.gateway.server.serve_lock import served_at
from holdfast.gateway.workers.share import Share
from holdfast.ids import SessionId
from tests.acceptance.gateway.conftest import TAKEN, Gateway, until

TWO = "[serve]\nworkers = 2\n"
# One session of each worker's share.
OF_FIRST, OF_SECOND = (
    next(f"ops/s{n}" for n in range(100) if Share(worker, 2, 2).has(SessionId(f"ops/s{n}")))
    for worker in range(2)
)


def workers_of(gateway: Gateway) -> dict[int, int]:
    """Return the pids of the running workers by their number."""
    assert gateway.process is not None
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == gateway.process.pid and "--worker" in words:
                place = words[words.index("--worker") + 1]
                found[int(place.partition('"number":')[2].split(",")[0])] = int(folder.name)
    return found


def patiently(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """Ask again if the worker that had taken the connection was killed."""

    def answered() -> httpx.Response | None:
        with contextlib.suppress(httpx.TransportError):
            return ask()
        return None

    answer: httpx.Response = until(answered, "an answer")
    return answer


def samples(client: httpx.Client, name: str) -> dict[str, float]:
    """Return a metric's samples by their labels."""
    text = patiently(lambda: client.get("/metrics")).text
    found = re.findall(rf"^holdfast_{name}(?:{{(.*)}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def ask_for_shell(gateway: Gateway, client: httpx.Client, session: str, command: str) -> Any:
    sent = patiently(
        lambda: gateway.send(client, session, f"shell command='{command}'", key=f"k-{session}")
    )
    assert sent.is_success, sent.text
    return gateway.waiting(client, session)


def test_followers_in_every_worker_get_the_pieces_of_a_drive_in_one(gateway: Gateway) -> None:
    gateway.settings(TWO)
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    os.mkfifo(gateway.work / "hold")
    until(lambda: len(samples(alice, "streams")) == 2, "the counts of both workers")
    prompt = ask_for_shell(gateway, alice, OF_FIRST, "echo a piece; cat hold")
    with contextlib.ExitStack() as stack:
        streams = []
        while min(samples(alice, "streams").values()) == 0:
            client = gateway.client(str(alice.headers["authorization"]).removeprefix("Bearer "))
            streams.append(stack.enter_context(gateway.events(client, OF_FIRST)))
            assert len(streams) < 40, "one worker took all connections"
        assert gateway.answer(alice, prompt, "approve_once").json()["result"] in TAKEN
        for stream in streams:
            stream.until(lambda name, data: name == "delta" and "a piece" in data["text"])
        # Nothing of it is a record yet: the tool still runs.
        (gateway.work / "hold").write_text("")
        for stream in streams:
            stream.until_record("turn_ended")
    assert gateway.stop() == 0


def test_a_killed_worker_loses_nothing_and_comes_back(gateway: Gateway) -> None:
    gateway.settings(TWO)
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    sessions = (OF_FIRST, OF_SECOND)
    prompts = [
        ask_for_shell(gateway, alice, session, f"echo ran >> {number}")
        for number, session in enumerate(sessions)
    ]
    for number, (session, prompt) in enumerate(zip(sessions, prompts, strict=True)):
        until(lambda: len(samples(alice, "streams")) == 2, "both workers, ready")
        before = workers_of(gateway)
        os.kill(before[number], signal.SIGKILL)
        answered = patiently(
            lambda prompt=prompt: gateway.answer(alice, prompt, "approve_once", answer_id="once")
        )
        assert answered.json()["result"] in TAKEN, answered.text
        ran = gateway.work / str(number)
        until(ran.exists, "the approved command")
        until(
            lambda session=session: (
                patiently(lambda: alice.get(f"/v1/sessions/{session}")).json()["phase"] == "idle"
            ),
            "the end of the turn",
        )
        assert ran.read_text().split() == ["ran"]
        assert f"worker {number} ended with signal 9" in gateway.log.read_text()


def test_each_worker_logs_the_decisions_about_its_sessions_once(gateway: Gateway) -> None:
    gateway.settings(TWO)
    gateway.start()
    alice = gateway.client(gateway.token("alice"))
    until(lambda: len(samples(alice, "streams")) == 2, "both workers, ready")
    lines = []
    for number, session in enumerate((OF_FIRST, OF_SECOND)):
        prompt = ask_for_shell(gateway, alice, session, f"echo ran >> {number}")
        assert gateway.answer(alice, prompt, "approve_once").json()["result"] in TAKEN
        lines.append(f"approved it once: {prompt['id']}")
    for line in lines:
        until(lambda line=line: line in gateway.log.read_text(), "the line about the decision")
    assert [gateway.log.read_text().count(line) for line in lines] == [1, 1]


def test_workers_end_with_their_parent_and_free_the_home(gateway: Gateway) -> None:
    gateway.settings(TWO)
    gateway.start()
    workers = until(lambda: (w := workers_of(gateway)) and len(w) == 2 and w, "both workers")
    assert served_at(gateway.home) == gateway.url
    gateway.kill()
    until(lambda: served_at(gateway.home) is None, "the workers to let go of the home")
    until(
        lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in workers.values()),
        "the workers to end",
    )
    gateway.start()
    assert gateway.stop() == 0


def test_the_counts_of_all_workers_add_up(gateway: Gateway) -> None:
    gateway.settings(TWO)
    gateway.start()
    token = gateway.token("alice")
    alice = gateway.client(token)
    until(lambda: len(samples(alice, "messages_total")) == 2, "the counts of both workers")
    for number in range(12):
        assert gateway.send(gateway.client(token), f"ops/m{number}", "hello").is_success
    counted = samples(alice, "messages_total")
    assert set(counted) == {'worker="0"', 'worker="1"'}
    assert sum(counted.values()) == 12
    assert set(samples(alice, "prompts_waiting")) == {""}
