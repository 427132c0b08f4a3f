"""
The shell. The command runs exactly as the prompt showed it: its text, its folder, its programs and
its level.

`bind` fixes the folder by identity, the interpreter and every program that it can name by digest,
and the environment by digest. It is called again right before the go byte. If anything has changed
since, the command does not run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from holdfast import limits
from holdfast.adapters.tools.builtin.base import definition_of
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.home_guard import guard_of
from holdfast.adapters.tools.output import refuse_secrets
from holdfast.adapters.tools.paths import PathTarget, check_path, locate, open_folder
from holdfast.adapters.tools.python.arguments import REQUIRED, ArgumentTypes
from holdfast.adapters.tools.shell.bound_files import allowed_paths, identified
from holdfast.adapters.tools.shell.confinement.isolation import Obstacle, isolation_words
from holdfast.adapters.tools.shell.confinement.level_text import level_lines
from holdfast.adapters.tools.shell.confinement.levels import (
    MECHANISMS,
    Confinement,
    Mechanism,
    choose,
)
from holdfast.adapters.tools.shell.confinement.network_need import network_line
from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import (
    FileView,
    is_seen,
    user_folder,
)
from holdfast.adapters.tools.shell.environment import (
    SEARCH_PATH,
    environment_digest,
    environment_of,
)
from holdfast.adapters.tools.shell.launcher import start
from holdfast.adapters.tools.shell.launcher_pipes import LaunchPlan, Mode
from holdfast.adapters.tools.shell.parse import Reading, read_command
from holdfast.adapters.tools.shell.prepared_command import PreparedCommand
from holdfast.adapters.tools.shell.programs import Program, find_program, fingerprint
from holdfast.adapters.tools.shell.remembered.commands import why_not_remembered
from holdfast.adapters.tools.shell.risks.classify import risks_of
from holdfast.adapters.tools.shell.risks.placed import OUTSIDE, outside_line, risks_shown
from holdfast.adapters.tools.shell.scripts.copy import copy_words
from holdfast.adapters.tools.shell.scripts.files import Runs, find_runs
from holdfast.adapters.tools.shell.scripts.interpreters import runs_text
from holdfast.adapters.tools.shell.scripts.text import run_lines
from holdfast.ids import JobId
from holdfast.ports.jobs import JobKey
from holdfast.ports.tools import (
    CannotBind,
    InvalidArguments,
    Prepared,
    PreparedJob,
    Scene,
)
from holdfast.session.authority.plan import Binding, Level, Risk
from holdfast.session.view.safe_text import framed, render, render_line
from holdfast.threads import BLOCKING

Confine = Literal["auto", "require", "off"]
Network = Literal["ask", "never", "always"]

_SHELLS = ("/bin/bash", "/bin/sh")
_TIMEOUT_SECONDS_MAX = 24 * 3600.0
_FILES_BOUND_MAX = 64
_NAMED_BYTES_MAX = 16 * limits.MIB
_SHELL_BUILTINS = frozenset(
    {
        ":",
        "[",
        "cd",
        "echo",
        "exit",
        "false",
        "kill",
        "printf",
        "pwd",
        "test",
        "true",
        "type",
        "umask",
        "wait",
    }
)
MODES: dict[Level, Mode] = {"isolated": "isolated", "limited": "limited", "unconfined": "plain"}
_NOWHERE = "/nonexistent"  # the user's folder, as a limited command sees it


class ShellSettings(NamedTuple):
    """`[tools.shell]` of holdfast.toml, as it is now."""

    confine: Confine = "auto"
    network: Network = "ask"
    read: tuple[str, ...] = ()


class Shell:
    """
    The tool `shell`. `mechanisms` lists the allowed confinement mechanisms; tests omit one to see
    the other. `network` is the setting for calls that request the network. `read` are further paths
    that a confined command may read.
    `settings` is asked at every check, in the place of these three: a process that runs on follows
    the settings of the moment.
    """

    def __init__(
        self,
        *,
        confine: Confine = "auto",
        network: Network = "ask",
        read: Sequence[str] = (),
        mechanisms: Sequence[Mechanism] = MECHANISMS,
        search_path: str = SEARCH_PATH,
        settings: Callable[[], ShellSettings] | None = None,
    ) -> None:
        fixed = ShellSettings(confine, network, tuple(read))
        self._settings = settings or (lambda: fixed)
        self._mechanisms = tuple(mechanisms)
        self._search_path = search_path
        self._types = ArgumentTypes(
            "shell",
            {
                "command": (str, REQUIRED),
                "cwd": (str, "."),
                "timeout_seconds": (float | None, None),
                "background": (bool, False),
                "network": (bool, False),
            },
        )
        self.definition = definition_of(
            "shell",
            "Run a command with bash in a folder of the workspace. It has no terminal and no "
            "input; what it leaves in its process group ends with it. "
            "With `background` it goes on as a job, and its result comes later as a message of its "
            "own. "
            "It sees the system read-only, the workspace, and no network unless `network` is true.",
            self._types,
            contract="once",
            mode="ask",
            kind="shell",
            audience="personal",
        )

    def validate(self, arguments: bytes) -> bytes:
        values = self._types.read(arguments)
        check_path(values["cwd"], "cwd")
        if not values["command"].strip() or "\0" in values["command"]:
            raise InvalidArguments("command is empty or has a NUL")
        seconds = values["timeout_seconds"]
        if seconds is not None and not 0 < seconds <= _TIMEOUT_SECONDS_MAX:
            raise InvalidArguments(
                f"timeout_seconds must be above 0 and at most {_TIMEOUT_SECONDS_MAX:g}"
            )
        return self._types.normal(arguments)

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        refuse_secrets(arguments, scene.secrets)
        values = self._types.read(arguments)
        place = locate(values["cwd"], scene)
        shown = render(values["command"])
        folder = render_line(place.path)
        confinement = self._confinement(place, scene)
        network = self._has_network(asked=values["network"])
        reading = read_command(values["command"])
        runs = self._runs(reading, place, confinement.level)
        found = risks_of(values["command"], cwd=place.path, roots=self._folders(place, scene))
        head = [
            *level_lines(
                confinement,
                network=network,
                folders=self._folders(place, scene),
                read=self._read_paths(),
            ),
            # With the network, `ssh` may write on another machine, where nothing confines it.
            *(() if network else _forecast(reading, found, confinement.level)),
            "run in" if place.reach == "workspace" else OUTSIDE,
            framed(folder.text),
            "in the background, as a job that outlives this turn" if values["background"] else "",
            ""
            if values["timeout_seconds"] is None
            else f"for at most {values['timeout_seconds']:g} s",
            "the command" if shown.lines == 1 else f"the command, {shown.lines} lines",
        ]
        display = display_of([*head, framed(shown.text), *run_lines(runs)])
        risks = risks_shown(values["command"], found, head="\n".join(part for part in head if part))
        programs = self._programs(reading, place.path)
        interpreter = _interpreter()
        return Binding(
            display=display,
            cwd=place.path,
            cwd_identity=_identity_of(place),
            interpreter=str(interpreter),
            scripts=tuple(sorted(_bound(programs) | _files(runs))),
            environment=environment_digest(self._environment(confinement.level, place, scene)),
            folders=(
                identified(self._folders(place, scene)) if confinement.level != "unconfined" else ()
            ),
            level=confinement.level,
            network=network and self._settings().network == "ask",
            reach=place.reach,
            readable=reading.unreadable is None and not runs_text(reading),
            # The network and a folder outside need a person's consent for each call.
            memorable=place.reach == "workspace"
            and not values["network"]
            and why_not_remembered(
                reading, programs, interpreter=interpreter.found, search_path=self._search_path
            )
            is None,
            runs_open_files=bool(runs.declared),
            path=place.path,
            warnings=(*folder.warnings, *shown.warnings),
            risks=risks,
        )

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        del idempotency_key  # a command cannot receive it
        values = self._types.read(arguments)
        launched = await start(lambda: self._plan(values, binding, scene))
        network = binding.level == "unconfined" or self._has_network(asked=values["network"])
        return PreparedCommand(
            self,
            launched,
            arguments,
            binding,
            scene,
            timeout_seconds=values["timeout_seconds"],
            network=network,
        )

    def is_background(self, arguments: bytes) -> bool:
        return bool(self._types.read(arguments)["background"])

    async def prepare_job(
        self,
        arguments: bytes,
        binding: Binding,
        scene: Scene,
        *,
        job: JobId,
        key: JobKey,
        seconds: float,
    ) -> PreparedJob:
        from holdfast.adapters.tools.jobs.start import start_job

        values = self._types.read(arguments)
        if scene.home is None:
            raise CannotBind("a job needs a home on disk, which keeps its output")
        plan = await BLOCKING.call(lambda: self._plan(values, binding, scene))
        return await start_job(
            plan,
            scene.home,
            job,
            key,
            seconds=values["timeout_seconds"] or seconds,
            is_unchanged=lambda: self.bind(arguments, scene) == binding,
        )

    def _confinement(self, place: PathTarget, scene: Scene) -> Confinement:
        confine = self._settings().confine
        if confine == "off":
            off = Obstacle(
                cause="switched off by tools.shell.confine",
                remedy='set tools.shell.confine = "auto"',
            )
            return Confinement(level="unconfined", obstacle=off)
        folders = self._folders(place, scene)
        chosen = choose(place.guard, folders, self._mechanisms)
        if place.path in folders[-1:] and place.reach != "workspace":
            # The model names the folder of a call. It does not choose the level that way.
            usual = choose(place.guard, folders[:-1], self._mechanisms)
            if usual.level != chosen.level:
                raise CannotBind(
                    f"a command that works in {place.path} can't be {usual.level}, as commands are "
                    "here; name a folder of the workspace",
                    code="unconfined",
                )
        if confine == "require" and chosen.obstacle is not None:
            said = (
                "tools.shell.confine is 'require', but commands can't be isolated:"
                f" {chosen.obstacle.cause}"
            )
            raise CannotBind(f"{said}; {chosen.obstacle.remedy}", code="unconfined")
        return chosen

    def _folders(self, place: PathTarget, scene: Scene) -> tuple[str, ...]:
        """
        Return the folders that the command may write: the workspace, and its own folder if a person
        lets it run outside.
        """
        workspace = () if scene.workspace is None else (os.path.realpath(scene.workspace),)
        if place.reach == "workspace" or is_seen(place.path, self._read_paths()):
            return workspace
        return (*workspace, place.path)

    def _read_paths(self) -> tuple[str, ...]:
        """
        Return the existing paths from the settings, canonical. A link into a folder that is private
        to each command is omitted.
        """
        found = (os.path.realpath(path) for path in self._settings().read if os.path.exists(path))  # noqa: PTH110
        return tuple(path for path in found if path.split("/")[1] not in ("", "proc", "sys", "dev"))

    def _has_network(self, *, asked: bool) -> bool:
        network = self._settings().network
        if asked and network == "never":
            raise CannotBind(
                "commands get no network here: tools.shell.network is 'never'", code="no_network"
            )
        return asked or network == "always"

    def _environment(self, level: Level, place: PathTarget, scene: Scene) -> dict[str, str]:
        """
        Return the environment. A limited command has no temporary folder of its own, so it gets its
        workspace.
        """
        if level == "isolated":
            return environment_of(scene.call, self._search_path, home=user_folder() or "/tmp")  # noqa: S108  private there
        if level == "limited":
            return environment_of(
                scene.call,
                self._search_path,
                home=_NOWHERE,
                temporary=self._folders(place, scene)[0],
            )
        return environment_of(scene.call, self._search_path)

    def _plan(self, values: Mapping[str, Any], binding: Binding, scene: Scene) -> LaunchPlan:
        program = _interpreter()
        if (
            binding.cwd is None
            or binding.cwd_identity is None
            or str(program) != binding.interpreter
        ):
            raise CannotBind("the shell has changed since this was approved")
        guard = guard_of(scene)
        place = PathTarget(path=binding.cwd, reach=binding.reach, guard=guard)
        level = self._confinement(place, scene).level
        if level != binding.level:
            raise CannotBind(f"commands run {level} now, and this was approved as {binding.level}")
        network = self._has_network(asked=values["network"])
        folders, limited = self._folders(place, scene), level == "limited"
        if level != "unconfined" and identified(folders) != binding.folders:
            raise CannotBind("the workspace has changed since this was approved")
        view = FileView(guard=guard, folders=folders, read=self._read_paths(), network=network)
        runs = self._runs(read_command(values["command"]), place, level)
        if not {str(copy) for copy in runs.copies} <= set(binding.scripts):
            raise CannotBind("a script changed after this was approved")
        words, files = copy_words(runs.copies)
        return LaunchPlan(
            call=scene.call,
            mode=MODES[level],
            prefix=(*isolation_words(view), *words, "--") if level == "isolated" else (),
            files=tuple(files),
            allowed=allowed_paths(view) if limited else (),
            filter=filter_of("limited", network=network) if limited else b"",
            folders=binding.folders,
            cwd=binding.cwd,
            cwd_identity=binding.cwd_identity,
            program=program,
            words=_words(program, runs.text_of(values["command"])),
            environment=self._environment(level, place, scene),
        )

    def _runs(self, reading: Reading, place: PathTarget, level: Level) -> Runs:
        """
        Find the scripts at every binding and once more for the run, so that the copied scripts are
        the approved ones.
        """
        return find_runs(
            reading,
            cwd=place.path,
            search_path=self._search_path,
            guard=place.guard,
            can_copy=level == "isolated",
        )

    def _programs(self, reading: Reading, cwd: str) -> dict[str, Program | None]:
        """
        Return every program that a literal first word names. Builtins of the shell are part of the
        interpreter.
        """
        found: dict[str, Program | None] = {}
        for command in reading.subcommands[:_FILES_BOUND_MAX]:
            word = command.words[0].text if command.words else None
            if word is None or word in _SHELL_BUILTINS or word in found:
                continue
            path = find_program(word, cwd=cwd, search_path=self._search_path)
            found[word] = None if path is None else fingerprint(path)
        return found


def _identity_of(place: PathTarget) -> str:
    """The device and inode of the folder that a command would run in."""
    fd = open_folder(place.path, place.guard)
    try:
        facts = os.fstat(fd)
    finally:
        os.close(fd)
    return f"{facts.st_dev}:{facts.st_ino}"


def _forecast(reading: Reading, found: Sequence[Risk], level: Level) -> tuple[str, ...]:
    """Return the lines about parts of the command that its level makes fail."""
    return () if level == "unconfined" else (network_line(reading), outside_line(found, level))


def _interpreter() -> Program:
    for path in _SHELLS:
        if os.path.exists(path):  # noqa: PTH110
            return fingerprint(path)
    raise CannotBind("no /bin/bash and no /bin/sh here")


def _words(program: Program, command: str) -> tuple[str, ...]:
    """Use `--` and no start-up files, so that only the text decides what runs."""
    if program.path.endswith("bash"):
        return ("bash", "--noprofile", "--norc", "-c", "--", command)
    return ("sh", "-c", "--", command)


def _bound(programs: dict[str, Program | None]) -> set[str]:
    return {
        f"missing {word}" if program is None else str(program) for word, program in programs.items()
    }


def _files(runs: Runs) -> set[str]:
    """
    Return private copies by their digest, and small files that the words name by content. Larger
    files are not code.
    """
    found = {str(copy) for copy in runs.copies}
    for path in runs.named[:_FILES_BOUND_MAX]:
        if os.path.isfile(path) and os.path.getsize(path) <= _NAMED_BYTES_MAX:  # noqa: PTH113, PTH202  text
            found.add(str(fingerprint(path)))
    return found
