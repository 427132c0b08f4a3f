"""
The shell: what is shown is what runs, where it was shown to run, with what was shown to run it, and without the Holdfast home.

`bind` fixes the folder by identity, the interpreter and every program it can name by digest, the environment by digest. It is
asked again right before the byte that lets the command go: whatever changed since, the command does not run.
"""

import os
from collections.abc import Sequence
from typing import Literal

from holdfast.adapters.tools.arguments import REQUIRED, ArgumentTypes
from holdfast.adapters.tools.builtin import definition_of
from holdfast.adapters.tools.confinement import MECHANISMS, Confinement, Mechanism, bubblewrap_words, choose, expected_folders
from holdfast.adapters.tools.display import display_of
from holdfast.adapters.tools.environment import SEARCH_PATH, environment_digest, environment_of
from holdfast.adapters.tools.home_guard import Guarded, guard_of
from holdfast.adapters.tools.launcher import Launched, LaunchPlan, Mode, start
from holdfast.adapters.tools.leaf_commands import why_not_remembered
from holdfast.adapters.tools.leaf_programs import why_not_leaf
from holdfast.adapters.tools.output import Output, refuse_secrets
from holdfast.adapters.tools.paths import Place, check_path, locate, open_folder
from holdfast.adapters.tools.programs import Program, find_program, fingerprint
from holdfast.adapters.tools.shell_reading import Reading, read_command
from holdfast.adapters.tools.spare import SpareLauncher
from holdfast.adapters.tools.threads import THREADS
from holdfast.ids import JobId
from holdfast.ports.tools import CannotBind, InvalidArguments, OnOutput, Prepared, PreparedJob, ProcessFacts, Scene, ToolReturned
from holdfast.session.plan import Binding
from holdfast.session.rendering import framed, render

Confine = Literal["auto", "require", "off"]

_SHELLS = ("/bin/bash", "/bin/sh")
_TIMEOUT_SECONDS_MAX = 24 * 3600.0
_FILES_BOUND_MAX = 64
_SHELL_BUILTINS = frozenset({":", "[", "cd", "echo", "exit", "false", "kill", "printf", "pwd", "test", "true", "type", "umask", "wait"})
_UNCONFINED = "UNCONFINED: this command can read Holdfast's keys and answer its own prompts"


class Shell:
    """
    The tool `shell`. `mechanisms` says what may confine it; tests leave one out to see the other.

    With `spare` a launcher is kept ready from the first call on. Whoever made it closes it.
    """

    def __init__(
        self,
        *,
        confine: Confine = "auto",
        mechanisms: Sequence[Mechanism] = MECHANISMS,
        search_path: str = SEARCH_PATH,
        spare: SpareLauncher | None = None,
    ) -> None:
        self._confine = confine
        self._spare = spare
        self._mechanisms = tuple(mechanisms) if confine != "off" else ()
        self._search_path = search_path
        self._types = ArgumentTypes(
            "shell", {"command": (str, REQUIRED), "cwd": (str, "."), "timeout_seconds": (float | None, None), "background": (bool, False)}
        )
        self.definition = definition_of(
            "shell",
            "Run a command with bash in a folder of the workspace. It has no terminal and no input; what it leaves in its process group ends with it. "
            "With `background` it goes on as a job, and its result comes later as a message of its own.",
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
            raise InvalidArguments(f"timeout_seconds must be above 0 and at most {_TIMEOUT_SECONDS_MAX:g}")
        return self._types.normal(arguments)

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        refuse_secrets(arguments, scene.secrets)
        values = self._types.read(arguments)
        place = locate(values["cwd"], scene)
        shown = render(values["command"])
        folder = render(place.path)
        confinement = self._confinement(place, scene)
        display = display_of(
            [
                "" if confinement.mechanism else f"{_UNCONFINED} ({confinement.reason})",
                "run in" if place.reach == "workspace" else "run outside the workspace, in",
                framed(folder.text),
                "in the background, as a job that outlives this turn" if values["background"] else "",
                "" if values["timeout_seconds"] is None else f"for at most {values['timeout_seconds']:g} s",
                "the command" if shown.lines == 1 else f"the command, {shown.lines} lines",
                framed(shown.text),
            ]
        )
        fd = open_folder(place.path, place.guard)
        facts = os.fstat(fd)
        os.close(fd)
        reading = read_command(values["command"])
        programs = self._programs(reading, place.path)
        interpreter = _interpreter()
        return Binding(
            display=display,
            cwd=place.path,
            cwd_identity=f"{facts.st_dev}:{facts.st_ino}",
            interpreter=str(interpreter),
            scripts=tuple(sorted(_bound(programs) | _files(reading, place.path))),
            environment=environment_digest(environment_of(scene.call, self._search_path)),
            confined=confinement.mechanism is not None,
            reach=place.reach,
            readable=why_not_remembered(reading, programs, interpreter=interpreter.found, search_path=self._search_path) is None,
            path=place.path,
            warnings=(*folder.warnings, *shown.warnings),
        )

    async def prepare(self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str) -> Prepared:
        del idempotency_key  # a command can't be told
        values = self._types.read(arguments)
        launched = await start(lambda: self._plan(values["command"], binding, scene), self._spare.take if self._spare is not None else None)
        return _PreparedCommand(self, launched, arguments, binding, scene, timeout_seconds=values["timeout_seconds"])

    def keep_spare(self, launched: Launched) -> None:
        """Off the way of the call that was just let go."""
        if self._spare is not None:
            self._spare.make_soon(launched.prefix)

    def is_background(self, arguments: bytes) -> bool:
        return bool(self._types.read(arguments)["background"])

    async def prepare_job(self, arguments: bytes, binding: Binding, scene: Scene, *, job: JobId, seconds: float) -> PreparedJob:
        from holdfast.adapters.tools.shell_jobs import start_job

        values = self._types.read(arguments)
        if scene.home is None:
            raise CannotBind("a job needs a home on disk, where what it says is kept")
        plan = await THREADS.run(lambda: self._plan(values["command"], binding, scene))
        return await start_job(
            plan, scene.home, job, seconds=values["timeout_seconds"] or seconds, is_unchanged=lambda: self.bind(arguments, scene) == binding
        )

    def _confinement(self, place: Place, scene: Scene) -> Confinement:
        if self._confine == "off":
            return Confinement(mechanism=None, reason="switched off by tools.shell.confine")
        folders = [place.path, *([os.path.realpath(scene.workspace)] if scene.workspace else [])]
        chosen = choose(place.guard, folders, self._mechanisms, expected=expected_folders())
        if chosen.mechanism is None and self._confine == "require":
            raise CannotBind(f"tools.shell.confine is 'require', but {chosen.reason}", code="unconfined")
        return chosen

    def _plan(self, command: str, binding: Binding, scene: Scene) -> LaunchPlan:
        program = _interpreter()
        if binding.cwd is None or binding.cwd_identity is None or str(program) != binding.interpreter:
            raise CannotBind("the shell is not what it was when this was approved")
        guard = guard_of(scene)
        place = Place(path=binding.cwd, reach=binding.reach, guard=guard)
        mechanism = self._confinement(place, scene).mechanism
        if (mechanism is not None) != binding.confined:
            raise CannotBind("whether commands run confined has changed since this was approved")
        inside = mechanism == "bubblewrap" and guard is not None
        return LaunchPlan(
            call=scene.call,
            mode=self._mode(mechanism, guard),
            prefix=tuple(bubblewrap_words(guard, self._mechanisms)) if inside and guard is not None else (),
            denied=guard.names if mechanism == "landlock" and guard is not None else (),
            cwd=binding.cwd,
            cwd_identity=binding.cwd_identity,
            program=program,
            words=_words(program, command),
            environment=environment_of(scene.call, self._search_path),
        )

    def _mode(self, mechanism: Mechanism | None, guard: Guarded | None) -> Mode:
        if mechanism is None:
            return "plain"
        if "landlock" not in self._mechanisms:
            return "capped"
        return "landlock" if mechanism == "landlock" and guard is not None else "scoped"

    def _programs(self, reading: Reading, cwd: str) -> dict[str, Program | None]:
        """Every program that a literal first word names. Builtins of the shell are part of the interpreter."""
        found: dict[str, Program | None] = {}
        for command in reading.subcommands[:_FILES_BOUND_MAX]:
            word = command.words[0].text if command.words else None
            if word is None or word in _SHELL_BUILTINS or word in found:
                continue
            path = find_program(word, cwd=cwd, search_path=self._search_path)
            found[word] = None if path is None else fingerprint(path)
        return found


class _PreparedCommand:
    def __init__(self, shell: Shell, launched: Launched, arguments: bytes, binding: Binding, scene: Scene, *, timeout_seconds: float | None) -> None:
        self._shell, self._launched = shell, launched
        self._arguments, self._binding, self._scene = arguments, binding, scene
        self._timeout_seconds = timeout_seconds
        self.process: ProcessFacts | None = launched.facts

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        try:
            now = await THREADS.run(lambda: self._shell.bind(self._arguments, self._scene))
            changed = now != self._binding
        except CannotBind as exc:
            await self.abandon()
            return ToolReturned(outcome="error", text=f"nothing was run: {exc}")
        except BaseException:
            await self.abandon()
            raise
        if changed:
            await self.abandon()
            return ToolReturned(outcome="error", text="nothing was run: the folder, a program or a script changed after this was approved")
        output = Output(secrets=self._scene.secrets, on_output=on_output)
        allowed = self._timeout_seconds or timeout_seconds
        self._shell.keep_spare(self._launched)
        ended, status = await self._launched.run(timeout_seconds=allowed, on_output=output.feed)
        output.close()
        if self._launched.failed_to_exec:
            return ToolReturned(outcome="error", text=f"nothing was run: {self._launched.failed_to_exec}")
        if ended == "timed_out":
            text, full = output.view(f"[ended after {allowed:g} s]")
            return ToolReturned(outcome="timed_out", text=text, full=full)
        how = "" if status == 0 else f"[exit {status}]" if status > 0 else f"[ended by signal {-status}]"
        left = f"[ended with it: {self._launched.left} that it had left behind]" if self._launched.left else ""
        text, full = output.view("\n".join(filter(None, (how, left))))
        return ToolReturned(outcome="ok" if status == 0 else "error", text=text, full=full)

    async def abandon(self) -> None:
        await self._launched.abandon()


def _interpreter() -> Program:
    for path in _SHELLS:
        if os.path.exists(path):  # noqa: PTH110
            return fingerprint(path)
    raise CannotBind("there is no /bin/bash and no /bin/sh here")


def _words(program: Program, command: str) -> tuple[str, ...]:
    """`--` and no start-up files: nothing but the text decides what runs."""
    if program.path.endswith("bash"):
        return ("bash", "--noprofile", "--norc", "-c", "--", command)
    return ("sh", "-c", "--", command)


def _bound(programs: dict[str, Program | None]) -> set[str]:
    return {f"missing {word}" if program is None else str(program) for word, program in programs.items()}


def _files(reading: Reading, cwd: str) -> set[str]:
    """Files handed to something that runs text: scripts, by content. Only what is named literally can be known."""
    found: set[str] = set()
    for command in reading.subcommands[:_FILES_BOUND_MAX]:
        words = tuple(word.text for word in command.words if word.text is not None)
        if not words or why_not_leaf(words) is None:
            continue
        for word in words[1:]:
            path = os.path.join(cwd, word)  # noqa: PTH118  relative to the command's folder
            if len(found) < _FILES_BOUND_MAX and os.path.isfile(path):  # noqa: PTH113
                found.add(str(fingerprint(path)))
    return found
