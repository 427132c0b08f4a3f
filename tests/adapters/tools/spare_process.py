"""
A process of its own that keeps a spare launcher, for tests that kill it, fork it or run it as
another user.

`python spare_process.py WHAT HOME WORKSPACE MECHANISM COMMAND`: runs one command, which leaves a
spare, and prints one line of JSON that names it. Then WAIT stays until it is killed; RUN runs
COMMAND in the spare; FORK stays with a forked child that stays, too; LOOK says whether it can open
what its own spare has open.
"""

import asyncio
import json
import os
import select
import signal
import sys
import zlib
from typing import Any

from holdfast.adapters.tools.shell.shell import Shell
from holdfast.adapters.tools.shell.spare import SpareLauncher
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import Scene


class PromptSpare(SpareLauncher):
    """Made when it is asked for, and not a moment later: a test need not wait for it."""

    def make_soon(self, prefix: tuple[str, ...]) -> None:
        self.make(prefix)

    @property
    def leader(self) -> int:
        assert self._kept is not None
        return self._kept.waiting.process.pid

    def wait_until_up(self) -> None:
        """Until it waits for its call."""
        assert self._kept is not None
        assert select.select([self._kept.waiting.status_read], [], [], 60)[0]


def call_at(workspace: object) -> CallId:
    """Of one test alone: who ends what carries a name ends it on the whole machine."""
    return CallId(f"c-{zlib.crc32(str(workspace).encode()):08x}")


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201


async def run(shell: Shell, scene: Scene, command: str) -> None:
    arguments = shell.validate(json.dumps({"command": command}).encode())
    binding = shell.bind(arguments, scene)
    prepared = await shell.prepare(arguments, binding, scene, idempotency_key="k")
    assert prepared.process is not None
    say(group=prepared.process.group, start_time=prepared.process.start_time, level=binding.level)
    returned = await prepared.go(timeout_seconds=60, on_output=lambda _: None)
    say(outcome=returned.outcome, text=returned.text)


def opened(leader: int) -> list[str]:
    """What of a process can be opened from here, by anybody of this user."""
    found = []
    for name in map(str, range(3, 20)):
        try:
            os.close(os.open(f"/proc/{leader}/fd/{name}", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
        found.append(name)
    return found


async def main(what: str, home: str, workspace: str, mechanism: str, command: str) -> None:
    scene = Scene(
        session=SessionId("local/x"),
        instance=InstanceId("i"),
        turn=TurnId("t1"),
        call=call_at(workspace),
        workspace=workspace,
        requester="alice",
        audience="personal",
        boundary="personal:alice",
        home=home,
    )
    spare = PromptSpare()
    shell = Shell(
        mechanisms=[each for each in ("landlock", "bubblewrap") if each == mechanism], spare=spare
    )
    await run(shell, scene, "true")
    say(spare=spare.leader)
    if what == "RUN":
        await run(shell, scene, command.replace("HOLDFAST_PID", str(os.getpid())))
    if what == "LOOK":
        spare.wait_until_up()
        say(opened=opened(spare.leader))
    if what == "FORK" and (child := os.fork()):
        say(child=child)
    signal.pause()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
