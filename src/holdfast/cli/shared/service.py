"""
From a command to the service and back: opening the home, running the work, and turning what went
wrong into an exit code.
"""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.shared.options import Options
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.cli.shared.app_option import Given
    from holdfast.runtime.service import Service

Work = Callable[[], Coroutine[Any, Any, int]]


def run(work: Work) -> None:
    """
    Run to the end and exit with its code. SIGTERM and a terminal that is closed, like Ctrl-C, give
    up what is driven before the process goes.
    """
    raise typer.Exit(asyncio.run(_until_stopped(work)))


async def _until_stopped(work: Work) -> int:
    task = asyncio.current_task()
    with contextlib.suppress(NotImplementedError, RuntimeError):
        if task is not None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup` means that it goes on
                loop.add_signal_handler(signal.SIGHUP, task.cancel)
    return await work()


def home_of(options: Options) -> Path:
    """
    Where the home is, or will be. Somebody else's is said to be theirs before anything of it is
    looked at.
    """
    from holdfast.wiring import home_path

    home = home_path(options.home)
    try:
        owner = home.stat().st_uid
    except (FileNotFoundError, NotADirectoryError):
        return home
    except PermissionError:
        raise _anothers(
            home, "is in a folder that you may not enter", "OWNER", code="not_permitted"
        ) from None
    if owner != os.geteuid():
        raise _anothers(
            home,
            f"belongs to {_login(owner)}, and you are {_login(os.geteuid())}",
            _login(owner),
            code="unsafe_path",
        )
    return home


def _anothers(home: Path, why: str, owner: str, *, code: str) -> Refused:
    """
    A home that is served by a user of its own is used over HTTP: there a person proves who they
    are, and here they could not.
    """
    command = f"sudo -u {owner} holdfast --home {quote(str(home))} serve code --as YOU"
    return Refused(
        f"{home} {why}",
        code=code,
        hint=f"if it is served for you, answer on its page: `{command}`, run by whoever looks after it, gives the way in; else name a home of yours with --home",
    )


def _login(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def no_home(home: Path) -> Unusable:
    return Unusable(
        f"there is no home at {home}", code="no_home", hint="`holdfast send SESSION TEXT` makes one"
    )


@asynccontextmanager
async def making_service(
    options: Options, *, lasting: bool = False
) -> "AsyncGenerator[Service, None]":
    """
    With the program's own agents and tools; the home is made if it is not there. `lasting` is for a
    command that stays.
    """
    from holdfast.cli.shared.app_option import agents_of
    from holdfast.secrecy import learn
    from holdfast.wiring import open_service

    options.drives = True
    given = agents_of(options.app, home_of(options), here=os.getcwd())  # noqa: PTH109
    _warn_of_unknown_tools(options, given)
    async with open_service(home_of(options), **_wired(given), lasting=lasting) as service:
        learn(
            options, service.world.secrets
        )  # to the end of the process: errors that come later hold none of them either
        yield service


@asynccontextmanager
async def driving_service(options: Options) -> "AsyncGenerator[Service | None, None]":
    """As above, on a home that is there; None where there is none, and nothing is made."""
    from holdfast.cli.shared.app_option import agents_of

    options.drives = True
    given = agents_of(options.app, home_of(options))
    _warn_of_unknown_tools(options, given)
    async with _existing(options, **_wired(given)) as service:
        yield service


def _wired(given: "Given") -> dict[str, Any]:
    return {
        "agents": given.specs,
        "tools": given.tools,
        "models": given.models,
        "program": given.program,
    }


def _warn_of_unknown_tools(options: Options, given: "Given") -> None:
    """
    A misspelt tool is one that the model is never given, and a misspelt "deny" denies nothing.
    Beside the result, which is what it would be without.
    """
    from holdfast.ports.tools import BUILTIN_TOOLS
    from holdfast.settings import SettingsSource

    known = [*BUILTIN_TOOLS, *(tool.definition.name for tool in given.tools)]
    for each in SettingsSource(home_of(options)).now().unknown_at_hand(known, given.specs):
        options.out.note(f"holdfast.toml: {each}")


@asynccontextmanager
async def looking_service(options: Options) -> "AsyncGenerator[Service | None, None]":
    """For commands that drive nothing: no program of the user's is imported."""
    was_collecting = gc.isenabled()
    # it ends before there is garbage worth looking for, and ten thousand rows would have it look a
    # hundred times
    gc.disable()
    try:
        async with _existing(options) as service:
            yield service
    finally:
        if was_collecting:
            gc.enable()


@asynccontextmanager
async def _existing(options: Options, **given: Any) -> "AsyncGenerator[Service | None, None]":
    from holdfast.secrecy import learn
    from holdfast.wiring import open_service

    async with contextlib.AsyncExitStack() as stack:
        try:
            service: Service | None = await stack.enter_async_context(
                open_service(home_of(options), create=False, **given)
            )
        except Unusable as exc:
            if exc.code != "no_home":
                raise
            service = None
        if service is not None:
            learn(options, service.world.secrets)
        yield service
