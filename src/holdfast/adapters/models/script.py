"""
`script:FILE`: a model that answers from JSON Lines, for tests and simulations.

Each call takes the first line that this session has not used yet. The journal knows the used lines,
so the model keeps no position. A crash before the answer was journalled uses up no line. A script
is identified by its absolute path. An unreadable line is an error that names the file and the line,
both when the name is resolved and at each call, because the file may change in between.
"""

import asyncio
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.adapters.models.providers import SCRIPT_OBJECT_PREFIX, SCRIPT_PREFIX
from holdfast.adapters.models.speech import speak
from holdfast.errors import Refused, Unusable
from holdfast.ids import short_digest
from holdfast.journal.strict import check_depth
from holdfast.limits import MIB
from holdfast.ports.model import ModelFailed, ModelRequest, OnText
from holdfast.session.view.messages import ModelAnswer, ProposedCall, ResultMessage

END_OF_SCRIPT = "(end of script)"
SCRIPT_BYTES_MAX = 16 * MIB  # a year of a chatty simulation; read whole and kept in memory

# Waiting helps against all failures but an overflow, which needs a smaller view.
MAY_PASS = {"rate_limit": True, "timeout": True, "server": True, "overflow": False}

Line = dict[str, object]


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    last_tool_result_contains: str


class ScriptedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    args: msgspec.Raw = msgspec.Raw(
        b"{}"
    )  # passed on as written, so that a script can also be wrong
    id: str | None = None


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One line. `say` and `call` may stand together. `fail` stands alone. `sleep` and `expect` come
    before either.
    """

    say: str | None = None
    call: tuple[ScriptedCall, ...] | None = None
    fail: Literal["rate_limit", "timeout", "overflow", "server"] | None = None
    sleep: float = 0.0
    expect: Expectation | None = None

    def __post_init__(self) -> None:
        answers = self.say is not None or self.call is not None
        if answers == (self.fail is not None):
            raise ValueError(
                "a line says, calls or fails: give `say`, `call` or both, or `fail` alone"
            )
        if self.call is not None and not self.call:
            raise ValueError("`call` names no tool")
        if not 0 <= self.sleep < float("inf"):
            raise ValueError("`sleep` is a number of seconds, 0 or more")


Script = dict[
    int, Step
]  # by line number, counted from 1 as editors do; blank lines have a number but no step


class ScriptFile:
    summarises = False  # summaries use up no line

    def __init__(self, path: str) -> None:
        # Without `..`, so that one file is one script under every spelling. An unknown user in
        # `~user` stays in the path and leads to a missing file.
        self._path = Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  # no links are followed
        # The last script read, with the file's state at that time. Only a cache: a changed file is
        # read again.
        self._read: tuple[tuple[int, int, int], Script] | None = None

    @property
    def name(self) -> str:
        return f"{SCRIPT_PREFIX}{self._path}"

    @property
    def context_tokens(self) -> int | None:
        return None

    def load(self) -> Script:
        """Read the file. Raise `Unusable` with the problem and its line."""
        try:
            fd = os.open(
                self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            )  # a FIFO in its place must not block the driver
            with os.fdopen(fd, "rb") as file:
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    raise self._unreadable("it is not a plain file")
                if status.st_size > SCRIPT_BYTES_MAX:
                    raise self._unreadable(
                        f"it has {status.st_size} bytes, and {SCRIPT_BYTES_MAX} are the most"
                    )
                state = (status.st_ino, status.st_size, status.st_mtime_ns)
                if self._read is None or self._read[0] != state:
                    self._read = (
                        state,
                        script_from_text(file.read(SCRIPT_BYTES_MAX), where=str(self._path)),
                    )
        except OSError as exc:
            raise self._unreadable(exc.strerror or str(exc)) from exc
        return self._read[1]

    def _unreadable(self, why: str) -> Unusable:
        hint = "name a readable file of JSON Lines, as script:FILE"
        return Unusable(
            f"the script {self._path} can't be read: {why}", code="unknown_model", hint=hint
        )

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        try:
            script = self.load()
        except Unusable as exc:
            raise ModelFailed("malformed", exc.message, may_pass=False) from exc
        return await play(script, request, on_text=on_text)


class ScriptModel:
    """
    A script from Python objects, for tests: each item is a line, and a plain string is a `say`.

    >>> model = ScriptModel([{"call": [{"tool": "now"}]}, "It is noon."])
    >>> model.name
    'script-object:z35qns7vg7wj3iytwputn7xkra'
    """

    summarises = False  # summaries use up no line

    def __init__(self, lines: Iterable[Line | str]) -> None:
        if isinstance(lines, str | bytes | Mapping):
            raise Unusable(
                "a ScriptModel takes a list of lines, and this is one",
                code="malformed_script",
                hint='write ScriptModel([{"say": TEXT}, ...])',
            )
        objects = [{"say": line} if isinstance(line, str) else line for line in lines]
        text = b"\n".join(msgspec.json.encode(line) for line in objects)
        self._script = script_from_text(text, where="ScriptModel")
        self._name = SCRIPT_OBJECT_PREFIX + short_digest(text)

    @property
    def name(self) -> str:
        return self._name

    @property
    def context_tokens(self) -> int | None:
        return None

    async def call(self, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
        return await play(self._script, request, on_text=on_text)


def script_from_text(text: bytes, *, where: str) -> Script:
    """Read and check every line. Raise `Unusable` for the first wrong one."""
    return {
        number: step_from_line(line, place=f"{where}, line {number}")
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip()
    }


def step_from_line(line: bytes, *, place: str) -> Step:
    try:
        check_depth(line, what="the line's contents")
        return msgspec.json.decode(line, type=Step)
    except (msgspec.DecodeError, UnicodeDecodeError, Refused) as exc:
        raise Unusable(
            f"{place}: {exc}",
            code="malformed_script",
            hint='a line is {"say": TEXT}, {"call": [{"tool": NAME, "args": {...}, "id": ID}]} or '
            '{"fail": KIND}, '
            'with "sleep": SECONDS or "expect": {"last_tool_result_contains": TEXT} beside it',
        ) from exc


async def play(script: Script, request: ModelRequest, *, on_text: OnText) -> ModelAnswer:
    """Answer from the first unused line."""
    number = next((number for number in script if number not in request.script_lines_used), None)
    if number is None:
        await speak(END_OF_SCRIPT, on_text=on_text)
        return ModelAnswer(text=END_OF_SCRIPT)
    step = script[number]
    if step.sleep:
        await asyncio.sleep(step.sleep)
    if step.expect is not None:
        check(step.expect, request, line=number)
    if step.fail is not None:
        message = f"script line {number} fails with {step.fail}"
        raise ModelFailed(step.fail, message, may_pass=MAY_PASS[step.fail], line=number)
    text = step.say or ""
    await speak(text, on_text=on_text)
    calls = tuple(
        ProposedCall(call.tool, bytes(call.args).decode(), call.id) for call in step.call or ()
    )
    return ModelAnswer(text=text, calls=calls, line=number)


def check(expectation: Expectation, request: ModelRequest, *, line: int) -> None:
    results = [
        message.model_text for message in request.messages if isinstance(message, ResultMessage)
    ]
    wanted = expectation.last_tool_result_contains
    if not results:
        found = "no tool result"
    elif wanted not in results[-1]:
        found = f"the last tool result is {results[-1][:200]!r}"
    else:
        return
    message = f"script line {line} expects a tool result with {wanted!r}, but {found}"
    raise ModelFailed("script_expectation", message, may_pass=False, line=line)
