"""
A process of its own that makes one job ready, for tests that kill it or run it as another user.

`python job_process.py WAIT|GO HOME WORKSPACE MECHANISMS COMMAND`: prints one line of JSON when it
is ready, and, after GO, another once it is let go. Then it stays until it is killed.
"""

import asyncio
import json
import os
import sys
import zlib

from holdfast.adapters.tools.shell.shell import Shell
from holdfast.ids import CallId, InstanceId, JobId, SessionId, TurnId
from holdfast.journal.chain import subkey
from holdfast.ports.jobs import JobKey
from holdfast.ports.tools import Scene

JOB = JobId("j-" + "a" * 26)


async def main(what: str, home: str, workspace: str, mechanisms: str, command: str) -> None:
    scene = Scene(
        session=SessionId("local/x"),
        instance=InstanceId("i"),
        turn=TurnId("t1"),
        call=CallId(f"c-{zlib.crc32(workspace.encode()):08x}"),
        workspace=workspace,
        requester="alice",
        audience="personal",
        boundary="personal:alice",
        home=home,
    )
    shell = Shell(mechanisms=[one for one in ("landlock", "bubblewrap") if one in mechanisms])
    command = command.replace("HOLDFAST_PID", str(os.getpid()))
    arguments = shell.validate(json.dumps({"command": command, "background": True}).encode())
    binding = shell.bind(arguments, scene)
    prepared = await shell.prepare_job(
        arguments,
        binding,
        scene,
        job=JOB,
        key=JobKey(1, subkey(b"k" * 32, "job report", JOB, "i-1")),
        seconds=60,
    )
    facts = prepared.process
    print(  # noqa: T201
        json.dumps(
            {"boot_id": facts.boot_id, "group": facts.group, "start_time": facts.start_time}
        ),
        flush=True,
    )
    if what == "GO":
        await prepared.let_go()
        print(json.dumps({"level": binding.level}), flush=True)  # noqa: T201
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
