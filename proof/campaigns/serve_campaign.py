"""
The Nth-syscall campaign through the gateway: one system call fails in a real `holdfast serve` while
a client talks HTTP to it.

The client sends a message under a key, waits for the prompt, answers it under an id, and waits for
the end. It may rely on every answer that it received. Then the server is killed if it still runs,
and a new one starts on the same home without faults. The client repeats everything with the same
key and id. At the end every acknowledged record is there, the tool ran at most once and after its
durable consent, authority is unchanged, no crash is reported as tampering, and the turn is
finished.

`python -m proof.campaigns.serve_campaign` sweeps everything; see `sweep.py`.
"""

import asyncio
import http.client
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any

from holdfast.assembly.service import open_service
from holdfast.errors import HoldfastError
from holdfast.gateway.server.tokens import TokenBook
from proof.campaigns.campaign import (
    BOT,
    authority_problems,
    ended_problems,
    environment_for,
    harms_for,
    is_sealed,
    write_script,
)
from proof.campaigns.fork_server import Started, Warm
from proof.campaigns.sweep import CaseVerdict, SweepCase, sweep
from proof.campaigns.syscalls import LIES, SyscallFault, attached, busiest, together
from proof.checkers.history import History, read_history
from proof.checkers.states import PromiseBroken

SESSION = "ops/api"
CALLS = (
    "pwrite64",
    "fdatasync",
    "fsync",
    "write",
    "rename,renameat,renameat2",
    "ftruncate",
    "openat",
    "unlink,unlinkat,rmdir",
    "flock",
)
KEY, ANSWER = "the-one-message", "the-one-answer"
DISTURBED_SECONDS_MAX = (
    8.0  # for one step of a disturbed server; one that reports its own failure is not awaited
)
REFUSALS_MAX = (
    10  # in a row, from a disturbed server: a disk that stays broken is not awaited either
)
CALM_SECONDS_MAX = 90.0
_CONTRACT = frozenset({0, 1, 2, 4, 5, 6})
_KILLED = -signal.SIGKILL
_PLACES = (
    "", "keys", "anchors", "anchors/_home", "anchors/0000.anchors", "home", "sessions",
    "sessions/ops", "sessions/ops/api", "sessions/ops/api/driver",
    "quarantine", "run", "reserve", "index.db", "index.db-journal", "holdfast.toml",
)  # fmt: skip


class ClientReplies:
    """Answers that the client received and may rely on."""

    def __init__(self) -> None:
        self.accepted = self.answered = self.ended = False
        self.prompt: dict[str, Any] | None = None


class Served:
    """One `holdfast serve`, with or without a fault."""

    def __init__(
        self,
        process: Started,
        tracer: AbstractContextManager[None],
        out: IO[str],
        log: Path,
        token: str,
    ) -> None:
        self.process, self._log, self._token = process, log, token
        self._held = ExitStack()
        self._held.enter_context(out)
        self._held.enter_context(tracer)
        process.go()
        self.out = out.readline()  # the address, or nothing if it has ended
        self.port = (
            int(json.loads(self.out)["url"].rpartition(":")[2])
            if self.out.startswith('{"url"') and self.out.endswith("\n")
            else None
        )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def can_not_go_on(self) -> bool:
        return "was not driven on" in self.log()

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> tuple[int, Any]:
        """Return a status and an object. Status 0 means that no answer came."""
        if self.port is None:
            return 0, None
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=DISTURBED_SECONDS_MAX
        )
        try:
            headers = {
                "authorization": f"Bearer {self._token}",
                "content-type": "application/json",
                **({"idempotency-key": key} if key else {}),
            }
            connection.request(
                method, path, json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError):
            return 0, None
        finally:
            connection.close()

    def stop(self) -> int | None:
        """Stop in order, as an operator does. Return None if the server does not stop."""
        self.process.signal_all(signal.SIGTERM)
        return self.process.wait(CALM_SECONDS_MAX)

    def kill(self) -> None:
        """Kill the server and its tracer."""
        self.process.signal_all(signal.SIGKILL)
        self.process.wait(CALM_SECONDS_MAX)
        self._held.close()


class ServeRig:
    """
    A folder in which cases run one after the other: a workspace, and a home with an agent and a
    token but no messages.
    """

    def __init__(self, folder: Path, strace: str) -> None:
        self._strace = strace
        self.folder, self.home, self.workspace = folder, folder / "home", folder / "workspace"
        self.workspace.mkdir(parents=True)
        (self.workspace / "bot.py").write_text(BOT)
        script = self.workspace / "act.jsonl"
        write_script(script, "act")
        self.env = environment_for(self.home)
        self.token = asyncio.run(self._make_home(script))
        shutil.copytree(self.home, folder / "before")
        self._warm = Warm(env=self.env, cwd=self.workspace)
        self._traced: dict[str, Path] = {}

    def close(self) -> None:
        self._warm.close()

    async def _make_home(self, script: Path) -> str:
        self.home.mkdir(mode=0o700)
        settings = self.home / "holdfast.toml"
        settings.write_text(f'[agents.assistant]\nmodel = "script:{script}"\ntools = ["bot:act"]\n')
        settings.chmod(0o600)
        async with open_service(self.home) as service:
            now = service.runtime.world.clock.now_ms()
            token, _ = await TokenBook(service.home).add(
                "client",
                person="alice",
                scopes=["read", "send", "approve"],
                audience="personal",
                expires_at=None,
                by="campaign",
                now=now,
            )
        return token

    def begin(self) -> None:
        (self.workspace / "ran.txt").unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self.folder / "before", self.home)

    def serve(
        self, fault: SyscallFault | None = None, *, trace: tuple[str, Path] | None = None
    ) -> Served:
        log, (inside, out) = self.folder / "serve.log", os.pipe()
        with log.open("w") as err:
            process = self._warm.start(
                ["--json", "serve", "--port", "0"],
                out=out,
                err=err.fileno(),
                limit=None,
                disturbed=fault is not None or trace is not None,
            )
        os.close(out)
        paths = [self.home / each for each in _PLACES]
        tracer = attached(
            self._strace, process.pid, fault, paths, seconds_max=CALM_SECONDS_MAX, trace=trace
        )
        return Served(process, tracer, os.fdopen(inside), log, self.token)

    def ran(self) -> int:
        path = self.workspace / "ran.txt"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def history(self) -> History | None:
        """
        Read the history from a copy. Opening a home repairs it after a crash, and that is the next
        server's task.
        """
        copy = self.folder / "looked at"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(
            self.home, copy, symlinks=True, ignore=shutil.ignore_patterns("reserve", "run")
        )
        return asyncio.run(read_history(copy, SESSION))

    def places(self, call: str) -> int:
        """Return how many calls of this kind the busiest thread of an undisturbed server makes."""
        counted = together(call, CALLS)
        if counted not in self._traced:
            trace = self._traced[counted] = self.folder / f"trace-{len(self._traced)}"
            self._trace(counted, trace)
        return busiest(self._traced[counted], call)

    def _trace(self, calls: str, trace: Path) -> None:
        self.begin()
        served = self.serve(trace=(calls, trace))
        try:
            Client(served, CALM_SECONDS_MAX).go_through()
            served.stop()
        finally:
            served.kill()

    # --- one case

    def judge(self, case: SweepCase) -> CaseVerdict:
        self.begin()
        lied = case.fault.harm in LIES
        problems: list[str] = []
        history: History | None = None
        try:
            told, hit = self._disturbed(case.fault, problems, lied=lied)
            history = self.history()
            problems += _problems_of_reports(history, told, self.ran(), lied=lied)
            if not is_sealed(history):
                problems += self._finished(lied=lied)
                history = self.history()
                problems += ended_problems(history, self.ran(), lied=lied)
        except (PromiseBroken, HoldfastError) as exc:
            hit = True
            if not (lied and isinstance(exc, HoldfastError)):
                problems.append(f"{type(exc).__name__}: {exc}")
        if self.ran() > 1:
            problems.append(f"the tool ran {self.ran()} times")
        doubt = history is not None and "in_doubt" in history.outcomes()
        return CaseVerdict(case, tuple(problems), hit, doubt, is_sealed(history))

    def _disturbed(
        self, fault: SyscallFault, problems: list[str], *, lied: bool
    ) -> tuple[ClientReplies, bool]:
        served = self.serve(fault)
        try:
            client = Client(served, DISTURBED_SECONDS_MAX)
            through = client.go_through()
            ended = served.process.poll()
        finally:
            served.kill()
        if (
            ended is not None
            and ended != _KILLED
            and (ended not in _CONTRACT or not (served.out or served.log()))
        ):
            problems.append(f"it ends by itself with {ended}: {served.log()[-500:]}")
        if "Traceback" in served.log() and not lied:
            problems.append(f"a traceback: {served.log()[-1500:]}")
        return client.told, not through

    def _finished(self, *, lied: bool) -> Iterator[str]:
        """
        Start a new server without faults. The same client finishes, and the server stops in order.
        """
        served = self.serve()
        try:
            client = Client(served, CALM_SECONDS_MAX)
            if not client.go_through() and not lied:
                yield (
                    f"a restarted server does not finish it: {vars(client.told)}, {client.last},"
                    f" {served.log()[-800:]}"
                )
            code = served.stop()
            if code != 0:
                yield f"a restarted server stops with {code}: {served.log()[-800:]}"
        finally:
            served.kill()


class Client:
    """Makes one request sequence with its key and id, and remembers the answers."""

    def __init__(self, served: Served, seconds_max: float) -> None:
        self._served = served
        self._seconds_max = seconds_max
        self.told = ClientReplies()
        self.last: tuple[int, Any] = (0, None)
        self._refusals = 0

    def go_through(self) -> bool:
        """Run to the end of the turn. Return False if the client got stuck."""
        return (
            self._until(self._send)
            and self._until(self._see_prompt_or_end)
            and self._until(self._answer)
            and self._until(self._see_end)
        )

    def _until(self, step: Callable[[], bool]) -> bool:
        ends = time.monotonic() + self._seconds_max
        while not step():
            stuck = self._refusals >= REFUSALS_MAX or self._served.can_not_go_on()
            hopeless = not self._served.is_alive() or (
                self._seconds_max < CALM_SECONDS_MAX and stuck
            )
            if hopeless or time.monotonic() > ends:
                return step()  # it may have happened meanwhile
            time.sleep(0.02)
        return True

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> tuple[int, Any]:
        self.last = self._served.ask(method, path, body, key=key)
        self._refusals = (
            self._refusals + 1 if self.last[0] >= http.HTTPStatus.INTERNAL_SERVER_ERROR else 0
        )
        return self.last

    def _send(self) -> bool:
        status, _ = self._ask("POST", f"/v1/sessions/{SESSION}/messages", {"text": "go"}, key=KEY)
        self.told.accepted |= status == http.HTTPStatus.ACCEPTED
        return self.told.accepted

    def _see_prompt_or_end(self) -> bool:
        status, found = self._ask("GET", "/v1/approvals")
        if status == http.HTTPStatus.OK and found["approvals"]:
            self.told.prompt = found["approvals"][0]
        return self.told.prompt is not None or self._see_end()

    def _answer(self) -> bool:
        prompt = self.told.prompt
        if prompt is None:
            return True  # answered before, and closed
        body = {"option": "approve_once", "answer_id": ANSWER, "digest": prompt["digest"]}
        status, _ = self._ask("POST", f"/v1/approvals/{prompt['id']}/answer", body)
        self.told.answered |= status == http.HTTPStatus.OK
        return self.told.answered or self._see_end()

    def _see_end(self) -> bool:
        status, found = self._ask("GET", f"/v1/sessions/{SESSION}")
        self.told.ended |= status == http.HTTPStatus.OK and (
            found["phase"],
            found["turns"],
            found["queued"],
        ) == ("idle", 1, 0)
        return self.told.ended


def _problems_of_reports(
    history: History | None, told: ClientReplies, ran: int, *, lied: bool
) -> Iterator[str]:
    """Check that every acknowledged record is there."""
    if history is None:
        if (told.accepted and not lied) or ran:
            yield f"no session, and this was told: {vars(told)}"
        return
    if is_sealed(history):
        if not lied:
            yield f"a false accusation: {history.verdict}"
        return
    keys = [each.body.get("dedup") for each in history.of("input_accepted")]
    if keys not in ([KEY], [] if not told.accepted else [KEY]):
        yield (
            f"the message was {'acknowledged' if told.accepted else 'not acknowledged'}, and these"
            f" are there: {keys}"
        )
    asked = {each.body["approval"] for each in history.of("approval_requested")}
    if told.prompt is not None and told.prompt["id"] not in asked:
        yield "a prompt was shown that is not there"
    answers = [each.body["answer_id"] for each in history.of("approval_answered")]
    if told.answered and answers != [ANSWER]:
        yield f"an answer was acknowledged, and these are there: {answers}"
    if told.ended and not history.of("turn_ended"):
        yield "an end was told that is not there"
    answered, started = history.of("approval_answered"), history.of("tool_started")
    if ran and not (answered and started and answered[0].seq < started[0].seq):
        yield "the tool ran without a durable consent and start"
    yield from authority_problems(history)


# --- the plan


def plan(rig: ServeRig, *, calls: Iterable[str] = CALLS) -> Iterator[SweepCase]:
    """Plan every place of every call with every harm."""
    for call in calls:
        for when in range(1, rig.places(call) + 1):
            yield from (
                SweepCase("act", "serve", SyscallFault(call, harm, when))
                for harm in harms_for(call)
            )


def main(arguments: list[str] | None = None) -> int:
    return sweep(
        arguments,
        name="serve_campaign",
        rig=ServeRig,
        plan=lambda rig, calls, _: plan(rig, calls=calls),
        calls=CALLS,
    )


if __name__ == "__main__":
    logging.disable()  # the campaign creates torn tails and similar damage on purpose
    sys.exit(main())
