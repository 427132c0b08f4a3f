"""
The process of a stdio server: confined like a command of the shell, in a group of its own.

It sees the system read-only, the paths of its settings and nothing else of the user. The home does
not exist in its view. Its group is written down with boot id and start time before it runs, so a
later process of this home ends a server that outlived its owner, and never another process.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

import msgspec

from holdfast.adapters.mcp.program import ServerProgram
from holdfast.adapters.tools.home_guard import GuardedHome, guard_of
from holdfast.adapters.tools.paths import open_folder
from holdfast.adapters.tools.shell.bound_files import allowed_paths, identified
from holdfast.adapters.tools.shell.confinement.isolation import Obstacle, isolation_words
from holdfast.adapters.tools.shell.confinement.levels import (
    Confinement,
    bare_scene,
    choose_quickly,
)
from holdfast.adapters.tools.shell.confinement.mounts import within
from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import (
    FileView,
    interpreter_paths,
    is_seen,
    user_folder,
)
from holdfast.adapters.tools.shell.environment import environment_of
from holdfast.adapters.tools.shell.launcher_pipes import LaunchPlan, StandardStreams, spawn, tell
from holdfast.adapters.tools.shell.processes import end_survivors, facts_of, is_alive, signal_group
from holdfast.adapters.tools.shell.shell import MODES, Confine
from holdfast.ids import CallId
from holdfast.ports.tool_servers import ToolServer
from holdfast.ports.tools import CannotBind, ProcessFacts

_SYSTEM_FOLDER = "/usr"  # the working folder of a server that may change no folder
_OF_INSTALLATIONS = ("bin", "dist", "sbin")  # folders of one that needs its neighbours too
_GRACE_SECONDS = 2.0  # between closing its input, asking it to end, and killing it


class OwnedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A started server and the process that started it, as written below the home."""

    name: CallId  # in HOLDFAST_TOOL of all its processes
    server: ProcessFacts
    owner: ProcessFacts


class ServerProcess:
    """A running server. `reads` and `writes` belong to the connection, `errors` to its reader."""

    def __init__(self, process: "subprocess.Popen[bytes]", note: Path, owned: OwnedServer) -> None:
        assert process.stdin is not None  # noqa: S101  for the type checker: all were asked for
        assert process.stdout is not None  # noqa: S101
        assert process.stderr is not None  # noqa: S101
        self._process, self._note = process, note
        self.facts = owned.server
        self._name = owned.name
        # The connection closes its own copies, whatever becomes of these objects.
        self.writes = os.dup(process.stdin.fileno())
        self.reads = os.dup(process.stdout.fileno())
        self.errors = os.dup(process.stderr.fileno())
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()

    def end(self) -> None:
        """
        End the whole group. Its input is closed already, so a well-behaved server ends by itself.
        Blocking.
        """
        if not self._is_gone_within(_GRACE_SECONDS):
            signal_group(self._process.pid, signal.SIGTERM)
            self._is_gone_within(_GRACE_SECONDS)
        # Not reaped yet, so its number is still its own.
        signal_group(self._process.pid, signal.SIGKILL)
        self._process.wait()
        end_survivors(self._name, None)
        with contextlib.suppress(OSError):
            self._note.unlink()

    def _is_gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # Left unreaped, so that the group's number cannot be taken by another.
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
                return True
            time.sleep(0.02)
        return False


def confinement_of(settings: ToolServer, home: str, confine: Confine) -> Confinement:
    """Choose the level of a server, as for a command. Raise CannotBind if it may not run."""
    if confine == "off":
        off = Obstacle(
            cause="switched off by tools.shell.confine", remedy='set tools.shell.confine = "auto"'
        )
        return Confinement(level="unconfined", obstacle=off)
    chosen = choose_quickly(lambda: _guard(home), _folders(settings))
    if confine == "require" and chosen.obstacle is not None:
        raise CannotBind(
            "tools.shell.confine is 'require', but this server can't be isolated: "
            f"{chosen.obstacle.cause}; {chosen.obstacle.remedy}",
            code="unconfined",
        )
    return chosen


def what_lacks(settings: ToolServer) -> str:
    """Say what of the settings is not there: the likely cause of a start that failed."""
    unset = [f"the variable {name} is not set" for name in settings.env if name not in os.environ]
    gone = [f"{path} of read is not there" for path in settings.read if not os.path.exists(path)]  # noqa: PTH110
    return "".join(f"{each}; " for each in (*unset, *gone))


def start_server(
    name: str, settings: ToolServer, program: ServerProgram, *, home: str, confine: Confine
) -> ServerProcess:
    """Start the server, confined. Raise CannotBind if it cannot get ready. Blocking."""
    folder = Path(home) / "run" / "mcp"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    end_abandoned(folder)
    call = CallId(f"mcp-{name}-{secrets.token_hex(8)}")
    plan = _plan(call, settings, program, home=home, confine=confine)
    pipes = StandardStreams(input=subprocess.PIPE, output=subprocess.PIPE, errors=subprocess.PIPE)
    waiting = spawn(plan.prefix, plan.environment, plan.files, pipes)
    owned = OwnedServer(
        name=call, server=facts_of(waiting.process.pid), owner=facts_of(os.getpid())
    )
    note = folder / f"{call}.json"
    try:
        said = tell(waiting, plan)
        if said == "r":
            _write_note(note, owned)
            os.write(waiting.go_write, b"g")
    except OSError as exc:
        said = f"n{exc.strerror}"
    os.close(waiting.go_write)
    os.close(waiting.status_read)
    process = ServerProcess(waiting.process, note, owned)
    if said == "r":
        return process
    for descriptor in (process.reads, process.writes, process.errors):
        os.close(descriptor)
    process.end()
    raise CannotBind(f"the server {name} can't be started: {said[1:] or 'the launcher died'}")


def end_abandoned(folder: Path) -> int:
    """End the servers whose owner died, found by boot id and start time. Return how many."""
    ended = 0
    for note in sorted(folder.glob("mcp-*.json")):
        try:
            owned = msgspec.json.decode(note.read_bytes(), type=OwnedServer)
        except (OSError, msgspec.MsgspecError):
            continue  # another process is writing or removing it
        if is_alive(owned.owner):
            continue
        ended += end_survivors(owned.name, owned.server)
        with contextlib.suppress(OSError):
            note.unlink()
    return ended


def _write_note(note: Path, owned: OwnedServer) -> None:
    """Write the note whole or not at all: under another name, then renamed."""
    temporary = note.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(owned))
    temporary.replace(note)


def _guard(home: str) -> GuardedHome | None:
    return guard_of(bare_scene(home, None))


def _folders(settings: ToolServer) -> tuple[str, ...]:
    return tuple(os.path.realpath(path) for path in settings.write)


def _plan(
    call: CallId,
    settings: ToolServer,
    program: ServerProgram,
    *,
    home: str,
    confine: Confine,
) -> LaunchPlan:
    level = confinement_of(settings, home, confine).level
    folders = _folders(settings)
    guard = _guard(home)
    read = tuple(os.path.realpath(path) for path in settings.read if os.path.exists(path))  # noqa: PTH110
    view = FileView(guard=guard, folders=folders, read=read, network=settings.network)
    if level != "unconfined":
        _refuse_unseen(program, (*read, *folders, *interpreter_paths()))
    cwd = folders[0] if folders else _SYSTEM_FOLDER
    return LaunchPlan(
        call=call,
        mode=MODES[level],
        prefix=(*isolation_words(view), "--") if level == "isolated" else (),
        allowed=allowed_paths(view) if level == "limited" else (),
        filter=filter_of("limited", network=settings.network) if level == "limited" else b"",
        folders=identified(folders) if level != "unconfined" else (),
        cwd=cwd,
        cwd_identity=_identity(cwd),
        program=program.program,
        words=program.words,
        environment=_environment(call, settings),
    )


def _environment(call: CallId, settings: ToolServer) -> dict[str, str]:
    """Build the environment anew. Only variables that settings name come from this process."""
    named = {name: os.environ[name] for name in settings.env if name in os.environ}
    own = environment_of(call, home=user_folder() or "/tmp")  # noqa: S108  private there
    return {**named, **own}


def _refuse_unseen(program: ServerProgram, seen: tuple[str, ...]) -> None:
    """Say which setting is missing. Inside the view, the file would only be missing."""
    for file in program.files:
        if not is_seen(file.path, seen):
            path = msgspec.json.encode(_readable(file.found)).decode()
            raise CannotBind(
                f"{file.found} is outside of what a confined server sees; add it to the server's "
                f"settings, such as read = [{path}]"
            )


def _readable(file: str) -> str:
    """
    Return what to let a server read: an installation, the folder of a script, or the file alone
    where that folder would be the user's own or the root.
    """
    folder = os.path.dirname(file)  # noqa: PTH120  text
    if os.path.basename(folder) in _OF_INSTALLATIONS:  # noqa: PTH119  text
        folder = os.path.dirname(folder)  # noqa: PTH120  text
    return file if within(user_folder() or "/", folder) else folder


def _identity(folder: str) -> str:
    fd = open_folder(folder, None)
    try:
        facts = os.fstat(fd)
    finally:
        os.close(fd)
    return f"{facts.st_dev}:{facts.st_ino}"
