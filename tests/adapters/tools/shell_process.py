"""
A process of its own that prepares one shell call, for tests that kill it or run it as another user.

`python shell_process.py WAIT|GO HOME WORKSPACE MECHANISMS COMMAND [network]`: prints one line of
JSON when it is ready (and, after GO, one with the result). With WAIT it stays, ready, until it is
killed. HOLDFAST_PID in the command is its own number.
"""

import asyncio
import json
import os
import sys
import zlib

from holdfast.adapters.tools.shell.shell import Shell
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import Scene


async def main(
    what: str, home: str, workspace: str, mechanisms: str, command: str, network: str = ""
) -> None:
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
    arguments = shell.validate(json.dumps({"command": command, "network": bool(network)}).encode())
    binding = shell.bind(arguments, scene)
    prepared = await shell.prepare(arguments, binding, scene, idempotency_key="k")
    assert prepared.process is not None
    print(  # noqa: T201
        json.dumps(
            {"group": prepared.process.group, "level": binding.level, "display": binding.display}
        ),
        flush=True,
    )
    if what == "WAIT":
        await asyncio.Event().wait()
    returned = await prepared.go(timeout_seconds=60, on_output=lambda _: None)
    print(json.dumps({"outcome": returned.outcome, "text": returned.text}), flush=True)  # noqa: T201


asyncio.run(main(*sys.argv[1:]))
