"""One home, one server: who holds it, what a restart takes up again, how it stops."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast.assembly.service import open_service
from holdfast.errors import Busy, Unusable
from holdfast.gateway.http.context import GatewaySettings
from holdfast.gateway.server import drive_scheduler as driving
from holdfast.gateway.server import serve as serving_module
from holdfast.gateway.server.serve import check_host, open_serving
from holdfast.home import specs_from_agents
from holdfast.ids import session_id
from holdfast.ports.journal_store import Record
from holdfast.runtime.service import Service
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.codec import decode
from holdfast.session.events import CallFinished, TurnEnded
from holdfast.testing import Disk, ScriptModel, open_in_memory
from holdfast.testing.loop import in_loop
from holdfast.token_form import token_of
from tests.acceptance.gateway.conftest import COMMAND, WAIT_SECONDS, Gateway, until


def test_a_second_server_on_the_same_home_says_who_holds_it(gateway: Gateway) -> None:
    gateway.start()
    assert gateway.process is not None
    told = gateway.run("serve", "--port", "0", check=False)
    assert told["error"]["code"] == "busy"
    assert (
        f"pid {gateway.process.pid}, {gateway.url}" in told["error"]["message"]
    )  # the port that it was given, though it asked for any
    gateway.kill()
    gateway.start()  # the lock died with its owner


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "10.0.0.1", "example.com"])  # noqa: S104  # refused, which is the point
def test_an_address_that_others_can_reach_needs_a_setting(host: str) -> None:
    with pytest.raises(Unusable, match="other machines"):
        check_host(GatewaySettings(host=host))
    check_host(GatewaySettings(host=host, allow_remote=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_none(host: str) -> None:
    check_host(GatewaySettings(host=host))


def test_a_taken_port_is_reported_before_anything_else(gateway: Gateway) -> None:
    gateway.start()
    other = Gateway(gateway.home.parent / "other", gateway.warm)
    told = other.run("serve", "--port", str(gateway.port), check=False)
    assert told["error"]["code"] == "address"


def test_a_restart_takes_up_what_was_owed(gateway: Gateway) -> None:
    gateway.run("send", "ops/api", "run: echo once >> ran.txt", "--no-wait")
    gateway.start()
    client = gateway.client(gateway.token(gateway.said["person"]))
    prompt = gateway.waiting(client)
    gateway.stop()
    gateway.run("approvals", "answer", prompt["id"], "approve_once", "--no-wait", check=False)
    gateway.start(gateway.port)
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_ended", outcome="completed")
    assert (gateway.work / "ran.txt").read_text() == "once\n"


def test_stopping_with_only_prompts_pending_ends_at_once_and_tells_followers(
    gateway: Gateway,
) -> None:
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/api", "run: echo hello > x.txt")
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("turn_parked")
        assert gateway.stop() == 0
        assert stream.until(lambda name, _: name == "end")["reason"] == "stopping"
        assert stream.next() is None
    gateway.start(gateway.port)
    assert gateway.said["prompts_standing"] == 1
    assert gateway.waiting(client)["tool"] == "shell"


def test_stopping_in_mid_tool_lets_it_end_and_keeps_its_outcome(gateway: Gateway) -> None:
    fifo = gateway.work / "fifo"
    os.mkfifo(fifo)
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/api", "run: cat fifo")
    gateway.answer(client, gateway.waiting(client), "approve_once")
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("tool_started")
        assert gateway.process is not None
        pipe = os.open(fifo, os.O_WRONLY)  # returns once the tool reads
        gateway.process.send_signal(signal.SIGTERM)
        stream.until(lambda name, _: name == "end")
        os.write(pipe, b"the real outcome")
        os.close(pipe)
        assert gateway.process.wait(WAIT_SECONDS) == 0
    gateway.start(gateway.port)
    with gateway.events(client, "ops/api") as stream:
        finished = stream.until_record("call_finished")
        assert (finished["body"]["outcome"], "the real outcome" in finished["body"]["text"]) == (
            "ok",
            True,
        )
        stream.until_record("turn_ended", outcome="completed")


def test_a_second_signal_does_not_wait_for_a_tool_and_it_is_in_doubt(gateway: Gateway) -> None:
    """
    Case 48: the first one would wait its time out. The tool is gone with the server, its outcome is
    nobody's, and it never runs again.
    """
    os.mkfifo(gateway.work / "fifo")
    gateway.settings('[serve]\nstop_after = "1h"\n')
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/api", "run: echo once >> ran.txt; cat fifo")
    gateway.answer(client, gateway.waiting(client), "approve_once")
    with gateway.events(client, "ops/api") as stream:
        stream.until_record("tool_started")
        until((gateway.work / "ran.txt").exists, "the tool")
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGTERM)
        stream.until(lambda name, _: name == "end")
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(WAIT_SECONDS) == 0
    gateway.start(gateway.port)
    with gateway.events(client, "ops/api") as stream:
        assert stream.until_record("call_finished")["body"]["outcome"] == "in_doubt"
        stream.until_record("turn_ended")
    assert (gateway.work / "ran.txt").read_text() == "once\n"


class Endless:
    """
    A home in this process with a tool that never ends, and a server on it that stops within a
    fraction of a second.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun = asyncio.Event()

        @holdfast.tool(mode="auto")
        async def endless() -> str:
            """Never ends."""
            self.begun.set()
            await asyncio.Event().wait()
            return "never"

        self.agent = holdfast.Agent(
            "ops",
            model=ScriptModel([{"call": [{"tool": "endless", "args": {}}]}, {"say": "too bad"}]),
            tools=[endless],
        )

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Service]:
        specs, tools, models = specs_from_agents([self.agent])
        async with open_service(self.folder, agents=specs, tools=tools, models=models) as service:
            yield service


@in_loop
async def test_stopping_waits_a_bounded_time_for_a_tool_that_never_ends(tmp_path: Path) -> None:
    """Case 48: then it is in doubt, and said to be."""
    endless = Endless(tmp_path / "home")
    alice = holdfast.MessageSource.local("alice")
    async with (
        endless.service() as service,
        open_serving(service, GatewaySettings(port=0, stop_seconds=0.1)) as serving,
        asyncio.timeout(WAIT_SECONDS),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(serving.run())
        await serving.started.wait()
        await service.send("ops/a", Incoming(text="go", source=alice), wait=False)
        service.runtime.world.notifier.notify(session_id("ops/a"))
        await endless.begun.wait()
        serving.stop()
    async with endless.service() as service:
        report = await service.resume("ops/a", by="alice")
        assert (report.outcome, report.reply) == ("completed", "too bad")
        outcomes = [event.outcome async for event in _finished(service)]
        assert outcomes == ["in_doubt"]


async def _finished(service: Service) -> AsyncIterator[CallFinished]:
    journal = await service.runtime.world.store.open(session_id("ops/a"))
    found: list[Record] = []
    await journal.load(found.append)
    await journal.close()
    for record in found:
        event = decode(record.type, record.version, record.body)
        if isinstance(event, CallFinished):
            yield event


@pytest.mark.parametrize(
    "error", [Busy("the first time it can't be done"), OSError(errno.EIO, "Input/output error")]
)
@in_loop
async def test_house_is_kept_at_the_start_and_again_and_a_failure_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(serving_module, "_HOUSE_SECONDS", 0.01)
    kept = 0
    thrice = asyncio.Event()

    async def keep_house() -> bool:
        nonlocal kept
        kept += 1
        if kept == 1:
            raise error
        if kept == 3:
            thrice.set()
        return False

    async with (
        Endless(tmp_path / "home").service() as service,
        open_serving(service, GatewaySettings(port=0), keep_house=keep_house) as serving,
        asyncio.timeout(WAIT_SECONDS),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(serving.run())
        await thrice.wait()
        serving.stop()


@pytest.mark.parametrize("verb", ["owing", "drive_all"])
@in_loop
async def test_a_disk_that_refuses_to_be_read_ends_no_server(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """One look, or one session, fails and is tried again; everybody else's turns go on."""
    monkeypatch.setattr(driving, "RESCAN_SECONDS", 0.01)
    agent = holdfast.Agent("ops", model=ScriptModel(["done"]))
    async with open_in_memory(agents=[agent]) as home, asyncio.timeout(WAIT_SECONDS):
        await home.service.send(
            "ops/a",
            Incoming(text="go", source=holdfast.MessageSource.local("alice")),
            wait=False,
        )
        asked, tries = getattr(home.service, verb), list[str]()

        async def refuses_once(*given: Any, **named: Any) -> Any:
            tries.append(verb)
            if len(tries) == 1:
                raise OSError(errno.EIO, "Input/output error")
            return await asked(*given, **named)

        monkeypatch.setattr(home.service, verb, refuses_once)
        running = asyncio.ensure_future(driving.DriveScheduler(home.service).run())
        ended = asyncio.ensure_future(_ended(home))
        await asyncio.wait([running, ended], return_when=asyncio.FIRST_COMPLETED)
        assert (running.done(), await ended, len(tries) > 1) == (False, "completed", True)
        running.cancel()


@in_loop
async def test_a_turn_that_waits_for_what_is_not_here_is_said_to_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    Nobody else would tell whoever runs the server why nothing happens; and nobody reads what comes
    every half minute.
    """
    disk = Disk()
    async with open_in_memory(
        agents=[holdfast.Agent("ops", model=ScriptModel(["done"]))], disk=disk
    ) as home:
        await home.service.send(
            "ops/a",
            Incoming(text="go", source=holdfast.MessageSource.local("alice")),
            wait=False,
        )
    async with open_in_memory(disk=disk) as home, asyncio.timeout(WAIT_SECONDS):
        drives = driving.DriveScheduler(home.service)
        running = asyncio.ensure_future(drives.run())
        for _ in range(3):
            while drives.rescans == 0 or drives.running:  # noqa: ASYNC110  # a turn of the loop each
                await asyncio.sleep(0)
            drives.wake(session_id("ops/a"))
        running.cancel()
    assert [each.getMessage() for each in caplog.records] == [
        "ops/a can't run here: no agent 'ops'"
    ]


async def _ended(home: holdfast.Home) -> str:
    async for record in home.follow("ops/a", after=0):
        if isinstance(record, Record) and isinstance(
            event := decode(record.type, record.version, record.body), TurnEnded
        ):
            return event.outcome
    raise AssertionError("it goes on for ever")


def test_a_server_whose_settings_can_not_be_used_is_not_ready_and_says_where_to_look(
    gateway: Gateway,
) -> None:
    """
    Messages would be refused, so no balancer should send any. Anybody may ask: neither what stands
    there nor where it lies is told.
    """
    gateway.settings('[serve]\nstop_after = "5s"\n')
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    broken = "holdfast.toml, line 3: can't be used, so nothing is decided"
    gone = "holdfast.toml: can't be used, so nothing is decided"
    for text, detail in (
        ('[serve]\nstop_after = "5s"\nhunter2 = "hunter2"\n', broken),
        ('# 1\n# 2\nhunter2 = "\n', broken),
        (None, gone),
    ):
        gateway.settings(text) if text is not None else (gateway.home / "holdfast.toml").unlink()
        told = httpx.get(f"{gateway.url}/readyz")
        assert (told.status_code, told.headers["content-type"]) == (503, "application/problem+json")
        assert (told.json()["code"], told.json()["detail"]) == ("settings", detail)
        assert "hunter2" not in told.text
        assert str(gateway.home) not in told.text
        assert httpx.get(f"{gateway.url}/healthz").status_code == 204
        assert gateway.send(client, "ops/api", "hello").status_code == 503
    gateway.settings("")
    assert httpx.get(f"{gateway.url}/readyz").status_code == 204


@pytest.mark.about_files
def test_a_server_whose_home_is_sealed_lets_nobody_in_is_not_ready_and_tells_nobody_what_is_wrong(
    gateway: Gateway,
) -> None:
    """Who asks can't be known then, so neither a file nor a byte is named; the log has both."""
    token = gateway.token("alice")
    path = next((gateway.home / "home").glob("*.jsonl"))
    path.write_bytes(path.read_bytes().replace(b'"alice"', b'"ALICE"'))
    gateway.run("tokens", "list", check=False)
    gateway.start(ready=False)
    for who in (token, token_of(bytes(32))):
        told = gateway.client(who).get("/v1/me")
        assert (told.status_code, told.json()["code"]) == (423, "sealed")
        assert ".jsonl" not in told.text
        assert "byte" not in told.text
    assert ".jsonl" in gateway.log.read_text()
    assert (
        httpx.get(f"{gateway.url}/readyz").status_code,
        httpx.get(f"{gateway.url}/healthz").status_code,
    ) == (503, 204)


def test_the_server_lets_go_of_what_retention_no_longer_keeps(gateway: Gateway) -> None:
    gateway.run("send", "ops/old", "hello")
    gateway.run("send", "ops/waits", "run: echo hello")
    gateway.settings('[retention]\nsessions = "1s"\n')
    until(lambda: gateway.run("sessions", "prune", "--dry-run")["sessions"], "it to be old")
    gateway.start()
    client = gateway.client(gateway.token("alice", scopes="read,admin"))
    until(
        lambda: (
            [each["session"] for each in client.get("/v1/sessions").json()["sessions"]]
            == ["ops/waits"]
        ),
        "it to go",
    )
    assert "let go of 1 sessions" in gateway.log.read_text()


def test_a_prompt_past_its_time_is_closed_while_everybody_waits(gateway: Gateway) -> None:
    """P5: the server journals the closing by itself, and whoever saw the prompt is told."""
    gateway.settings('[approvals]\nexpires_after = "2s"\n')
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    gateway.send(client, "ops/api", "run: echo never > never.txt")
    with gateway.events(client, "ops/api") as stream:
        asked = stream.until_record("approval_requested")[
            "body"
        ]  # from the record: a list might be looked at too late
        prompt = {"id": asked["approval"], "digest": asked["digest"]}
        assert stream.until_record("approval_closed")["body"]["closed_as"] == "expired"
        stream.until_record("turn_ended")
    answer = gateway.answer(client, prompt, "approve_once")
    assert (answer.status_code, answer.json()["code"]) == (410, "expired")
    assert not (gateway.work / "never.txt").exists()


def test_tools_can_neither_serve_nor_make_tokens(gateway: Gateway) -> None:
    for words in (
        ["serve", "--port", "0"],
        ["tokens", "add", "x", "--as", "alice", "--scopes", "admin"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "--home", str(gateway.home), "--json", *words],
            capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "HOLDFAST_TOOL": "c-1"},
        )  # fmt: skip
        assert done.returncode == 6
        assert "started_by_tool" in done.stdout


def test_the_log_says_what_was_asked_and_nothing_of_what_was_said(gateway: Gateway) -> None:
    gateway.start()
    token = gateway.token("alice")
    client = gateway.client(token)
    gateway.send(client, "ops/secretname", "help me with CANARY-WORDS")
    client.get("/v1/sessions?after=CANARY-QUERY/x")
    until(lambda: "/v1/sessions " in gateway.log.read_text(), "the log")
    log = gateway.log.read_text()
    assert "POST /v1/sessions/{channel}/{thread}/messages 202" in log
    assert "CANARY" not in log
    assert "secretname" not in log
    assert token not in log
    assert gateway.code not in log


def test_an_answer_that_this_process_cannot_run_promises_nothing_of_the_server(
    gateway: Gateway,
) -> None:
    """The server of the home may lack the same: here the folder is missing for both."""
    asked = gateway.ask("ops/away", "run: echo x")
    gateway.start()
    gateway.work.rename(gateway.work.with_name("away"))
    ran = subprocess.run(
        [
            *COMMAND,
            "--home",
            str(gateway.home),
            "approvals",
            "answer",
            asked.id,
            "1",
            "--as",
            "alice",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout == (
        f"Your answer is saved. It runs when another process goes on, such as the server at "
        f"{gateway.url} if nothing is missing there; this process can't run ops/away: its "
        f"workspace {gateway.work} is not here (put the folder back; `holdfast resume ops/away` "
        "goes on then, or `holdfast sessions cancel ops/away` gives the turn up).\n"
    )


def test_every_decision_is_in_the_log_once_wherever_it_was_made(gateway: Gateway) -> None:
    """Over HTTP, by another process, and by the clock or a message that took its place."""
    gateway.start()
    client = gateway.client(gateway.token("alice"))
    here, there, instead = (
        gateway.ask(f"ops/{name}", "run: echo x") for name in ("here", "there", "instead")
    )
    gateway.answer(client, {"id": here.id, "digest": here.digest}, "approve_once")
    gateway.run("approvals", "answer", there.id, "deny", "--as", "alice")
    gateway.run("send", "ops/instead", "what time is it", "--as", "alice")
    wanted = [
        f"alice approved it once: {here.id} in ops/here, by a script",
        f"alice denied it: {there.id} in ops/there, by a script",
        f"{instead.id} in ops/instead: Not run: another message was sent instead.",
    ]
    until(lambda: all(each in gateway.log.read_text() for each in wanted), "the decisions")
    gateway.stop()
    gateway.start()  # older decisions are not logged again
    late = gateway.ask("ops/there", "run: echo y")
    gateway.answer(
        gateway.client(gateway.token("alice")), {"id": late.id, "digest": late.digest}, "deny"
    )
    until(lambda: f"denied it: {late.id}" in gateway.log.read_text(), "the last decision")
    for each in wanted:
        assert gateway.log.read_text().count(each) == 1


def test_a_log_that_nobody_reads_stops_no_server(gateway: Gateway) -> None:
    """The pipe of its log is full. It serves, answers, and ends when it is asked to."""
    os.mkfifo(gateway.log)
    unread = os.open(gateway.log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        size = fcntl.fcntl(unread, fcntl.F_SETPIPE_SZ, 4096)
        gateway.start()
        client = gateway.client(gateway.token("alice"))
        for _ in range(size // 40):  # each leaves a line of more than 40 bytes
            assert client.get("/v1/sessions").status_code == 200
        assert gateway.stop() == 0
        assert len(os.read(unread, 2 * size)) > size - 1024  # it was full
    finally:
        os.close(unread)
