"""
Python functions as tools. They are code of the embedding program: trusted, not confined.

`@tool` turns a function into a tool object that is still callable like the function. The defaults
are the safe ones: ask first, never run twice. A tool's own exception is a known outcome. The model
sees its type and message, never a traceback.
"""

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from holdfast.adapters.tools.display import bound_by_arguments
from holdfast.adapters.tools.output import returned_text
from holdfast.adapters.tools.python.arguments import ArgumentTypes
from holdfast.adapters.tools.python.pydantic_values import dumped_model
from holdfast.adapters.tools.python.signature import code_digest, parameters_of
from holdfast.errors import InvariantBroken, Unusable, describe_error
from holdfast.ports.tools import (
    CannotBind,
    InvalidArguments,
    OnOutput,
    Prepared,
    ProcessFacts,
    Scene,
    ToolCall,
    ToolReturned,
)
from holdfast.secrecy import Secret
from holdfast.session.authority.plan import (
    AudienceName,
    Binding,
    Contract,
    Mode,
    ToolDefinition,
    require_tool_options,
)
from holdfast.threads import ThreadPool

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}\Z")

# Apart from the threads of the built-in tools: functions that never return must not keep a command
# from being ended.
_FUNCTIONS = ThreadPool(16, "holdfast-tool")  # synchronous tools; further ones wait

_IN_BACKGROUND = "in the background, as a job that outlives this turn"


class PythonTool(Generic[_P, _R]):
    """A function with a contract. Call it like the function, or pass it to an Agent."""

    __wrapped__: Callable[_P, _R]

    def __init__(
        self,
        function: Callable[_P, _R],
        *,
        contract: Contract,
        mode: Mode,
        audience: AudienceName,
        free: Sequence[str],
        name: str | None,
        timeout_seconds: float | None,
        background: bool = False,
    ) -> None:
        if not callable(function):
            raise Unusable(
                f"{function!r} is not a function",
                hint="write @holdfast.tool above a function, or @holdfast.tool(name=...)",
            )
        require_tool_options(contract, mode, audience)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise Unusable(
                f"{function.__name__} yields, and a tool returns its result once",
                hint="return a list, or the text",
            )
        _refuse_mistaken(function, free=free, timeout_seconds=timeout_seconds)
        functools.update_wrapper(self, function)
        self._function = function
        self._timeout_seconds = timeout_seconds
        self._background = background
        self._name = function.__name__ if name is None else name
        if not isinstance(self._name, str) or not _NAME.match(self._name):
            raise Unusable(
                f"{self._name!r} is not a tool name",
                hint="give one with @tool(name=...): letters, digits, '_' and '-'",
            )
        fields, self._injected = parameters_of(function, self._name)
        self._types = ArgumentTypes(self._name, fields)
        unknown = sorted(set(free) - set(fields))
        if unknown:
            raise Unusable(
                f"{self._name} has no parameter {', '.join(unknown)}",
                hint="free= names parameters that a grant need not bind",
            )
        self.definition = ToolDefinition(
            name=self._name,
            description=inspect.cleandoc(function.__doc__ or ""),
            parameters=self._types.schema,
            contract=contract,
            default_mode=mode,
            audience=audience,
            free_fields=tuple(sorted(free)),
            code=code_digest(function) + ("+background" if background else ""),
        )

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._name}>"

    def validate(self, arguments: bytes) -> bytes:
        return self._types.normal(arguments)

    def is_background(self, arguments: bytes) -> bool:
        del arguments  # the tool decides, for all arguments
        return self._background

    def bind(self, arguments: bytes, scene: Scene) -> Binding:
        return bound_by_arguments(
            self._name, arguments, scene, note=_IN_BACKGROUND if self._background else ""
        )

    async def prepare(
        self, arguments: bytes, binding: Binding, scene: Scene, *, idempotency_key: str
    ) -> Prepared:
        # The runtime has compared it with a fresh binding. A function is bound by its arguments
        # alone.
        del binding
        try:
            values = self._types.read(arguments)
        except (
            InvalidArguments
        ) as exc:  # a check of the author that depends on more than the arguments
            raise CannotBind(str(exc)) from exc
        if self._injected:
            call = ToolCall(
                session=scene.session,
                instance=scene.instance,
                turn=scene.turn,
                call=scene.call,
                idempotency_key=idempotency_key,
                workspace=scene.workspace,
                requester=scene.requester,
                audience=scene.audience,
                boundary=scene.boundary,
            )
            values.update(dict.fromkeys(self._injected, call))
        return _PreparedFunction(
            self._function, values, secrets=scene.secrets, timeout_seconds=self._timeout_seconds
        )


class _PreparedFunction:
    process: ProcessFacts | None = None

    def __init__(
        self,
        function: Callable[..., Any],
        values: dict[str, Any],
        *,
        secrets: tuple[Secret, ...],
        timeout_seconds: float | None,
    ) -> None:
        self._function = function
        self._values = values
        self._secrets = secrets
        self._timeout_seconds = timeout_seconds
        self._spent = False  # set by the first `go` or `abandon`: a prepared call runs at most once
        # Acquired once: by the thread that begins the call, or by the waiter when it gives up. A
        # call that has not begun by then never begins.
        self._beginning = threading.Lock()

    async def go(self, *, timeout_seconds: float, on_output: OnOutput) -> ToolReturned:
        if self._spent:
            raise InvariantBroken("a prepared call was started twice, or after it was abandoned")
        self._spent = True
        allowed = timeout_seconds if self._timeout_seconds is None else self._timeout_seconds
        try:
            value = await _within(self._run(), allowed)
        except _OutOfTime:
            return ToolReturned(
                outcome="timed_out", text=f"no result within {allowed:g} s{self._left_behind()}"
            )
        except KeyboardInterrupt:
            raise  # the program is being stopped, which the tool cannot decide
        except asyncio.CancelledError as exc:
            if _is_being_stopped():
                self._left_behind()
                raise
            return returned_text(
                describe_error(exc), outcome="error", secrets=self._secrets
            )  # the tool cancelled itself
        except BaseException as exc:  # noqa: BLE001  any exception is a known failure of the tool; its `sys.exit` ends no other turn
            # GeneratorExit too: when the coroutine is closed from outside, its awaiters receive the
            # exception as well, and the returned value is ignored.
            return returned_text(describe_error(exc), outcome="error", secrets=self._secrets)
        try:
            text = _result_text(value)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:  # noqa: BLE001  the tool ran: its result is only not text
            return returned_text(
                f"it ran, but its result can't be written as JSON ({describe_error(exc)})",
                outcome="error",
                secrets=self._secrets,
            )
        returned = returned_text(text, outcome="ok", secrets=self._secrets)
        on_output(returned.text.encode())
        return returned

    async def abandon(self) -> None:
        self._spent = True

    async def _run(self) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**self._values)
        value = await _FUNCTIONS.call(self._call)
        return await value if inspect.isawaitable(value) else value

    def _call(self) -> Any:
        """
        Run in a thread, where nothing interrupts or cancels. Such an exception comes from the
        function itself.
        """
        if not self._beginning.acquire(blocking=False):
            return None  # the waiter has given up
        try:
            return self._function(**self._values)
        except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError) as exc:
            raise RuntimeError(describe_error(exc)) from exc

    def _left_behind(self) -> str:
        """Describe the fate of a function after its waiter gave up."""
        if inspect.iscoroutinefunction(self._function):
            return ""
        if self._beginning.acquire(blocking=False):
            return (
                "; it never began: functions that do not end have taken all the threads there are"
            )
        return "; it could not be stopped and may still take effect"


def _refuse_mistaken(
    function: Callable[..., Any], *, free: Sequence[str], timeout_seconds: float | None
) -> None:
    if not hasattr(function, "__name__") or not hasattr(function, "__qualname__"):
        # A partial, or an object with `__call__`: an approval would not bind the values that it
        # holds besides its code.
        raise Unusable(
            f"{function!r} has no name and no code of its own",
            hint="write a function that calls it, and decorate that",
        )
    if isinstance(free, str):
        raise Unusable(
            f"free={free!r} is one text, and would be read letter by letter",
            hint=f"write free=[{free!r}]",
        )
    if timeout_seconds is not None and not (
        isinstance(timeout_seconds, int | float) and timeout_seconds > 0
    ):
        raise Unusable(
            f"timeout_seconds={timeout_seconds!r} is not a possible time limit for a call",
            hint="use a number of seconds above 0",
        )


def _is_being_stopped() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class _OutOfTime(Exception):
    """A private type, because a tool may raise a TimeoutError of its own."""


async def _within(run: Awaitable[Any], seconds: float) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await run
    except TimeoutError:
        if limit.expired():
            raise _OutOfTime from None
        raise


@overload
def tool(function: Callable[_P, _R], /) -> PythonTool[_P, _R]: ...


@overload
def tool(
    *,
    contract: Contract = "once",
    mode: Mode = "ask",
    audience: AudienceName = "personal",
    free: Sequence[str] = (),
    name: str | None = None,
    timeout_seconds: float | None = None,
    background: bool = False,
) -> Callable[[Callable[_P, _R]], PythonTool[_P, _R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    contract: Contract = "once",
    mode: Mode = "ask",
    audience: AudienceName = "personal",
    free: Sequence[str] = (),
    name: str | None = None,
    timeout_seconds: float | None = None,
    background: bool = False,
) -> Any:
    """
    Make a function a tool. By default it asks first and never runs twice.

    `contract` says what may happen after a crash: `once` (in doubt), `idempotent` (run again with
    the same key), `pure` (run again freely). `mode="auto"` runs without asking. `audience` is the
    widest audience whose turns may use the tool: `personal`, `team` or `public`. `free` names
    parameters that a remembered approval need not bind. With `background=True`, every call becomes
    a job, which is a task of this program. The turn continues at once, and the result arrives as a
    message of its own.

    >>> @tool(contract="pure", mode="auto")
    ... def service_status(service: str, region: str = "eu-1") -> str:
    ...     '''Tell how one service is doing.'''
    ...     return f"{service} in {region} is up"
    >>> service_status("api")
    'api in eu-1 is up'
    >>> service_status.validate(b'{"service": "api"}')
    b'{"service":"api","region":"eu-1"}'
    """

    def made(function: Callable[..., Any]) -> PythonTool[..., Any]:
        return PythonTool(
            function,
            contract=contract,
            mode=mode,
            audience=audience,
            free=free,
            name=name,
            timeout_seconds=timeout_seconds,
            background=background,
        )

    return made if function is None else made(function)


def _result_text(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # the plain text: a subclass may override `__str__`
    pydantic_dump = getattr(value, "model_dump_json", None)
    if callable(pydantic_dump):
        return str(pydantic_dump())
    return msgspec.json.encode(value, enc_hook=dumped_model).decode()
