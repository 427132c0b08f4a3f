"""
From a command to the service and back: open the home, run the work, turn an error into an exit
code.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.shared.options import Options
from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.cli.shared.app_option import Given
    from holdfast.ports.chat.platform import ChatPlatform
    from holdfast.runtime.service import Service

Work = Callable[[], Coroutine[Any, Any, int]]


def run(work: Work) -> None:
    """
    Run the work and exit with its code. SIGTERM, a closed terminal and Ctrl-C release the driven
    session before the process ends.
    """
    # A warning that stderr does not take is lost. It must not become a traceback.
    logging.raiseExceptions = False
    raise typer.Exit(asyncio.run(_until_stopped(work)))


async def _until_stopped(work: Work) -> int:
    task = asyncio.current_task()
    with contextlib.suppress(NotImplementedError, RuntimeError):
        if task is not None:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup` means: continue
                loop.add_signal_handler(signal.SIGHUP, task.cancel)
    return await work()


def home_of(options: Options) -> Path:
    """
    Return the present or future path of the home. Report another user's home as theirs before
    reading anything in it.
    """
    from holdfast.assembly.home_path import home_path

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
    Refuse a home that is served under its own user. It is used over HTTP, where a person can prove
    who they are; here they could not.
    """
    command = f"sudo -u {owner} holdfast --home {quote(str(home))} serve code --as YOU"
    return Refused(
        f"{home} {why}",
        code=code,
        hint=f"if it is served for you, ask its operator for an address: `{command}` prints one; "
        "else name a home of your own with --home",
    )


def _login(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def no_home(home: Path) -> Unusable:
    return Unusable(
        f"no home at {home}", code="no_home", hint="`holdfast send SESSION TEXT` makes one"
    )


@asynccontextmanager
async def making_service(
    options: Options, *, platforms: "Mapping[str, ChatPlatform] | None" = None
) -> "AsyncGenerator[Service, None]":
    """Open the service with the program's own agents and tools. Create a missing home."""
    from holdfast.assembly.service import open_service
    from holdfast.cli.shared.app_option import agents_of
    from holdfast.secrecy import learn

    options.drives = True
    given = agents_of(options.app, home_of(options), here=os.getcwd())  # noqa: PTH109
    _warn_of_unknown_tools(options, given)
    async with open_service(home_of(options), **_wired(given), platforms=platforms) as service:
        learn(
            options, service.live.secrets
        )  # until the process ends: later errors must not contain them either
        yield service


@asynccontextmanager
async def driving_service(options: Options) -> "AsyncGenerator[Service | None, None]":
    """Open the service on an existing home. Yield None if there is no home; create nothing."""
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
    Warn of unknown tools: the model never gets a misspelt tool, and a misspelt "deny" denies
    nothing. The warning stands beside the result and does not change it.
    """
    from holdfast.ports.tools import BUILTIN_TOOLS
    from holdfast.settings import SettingsSource

    known = [*BUILTIN_TOOLS, *(tool.definition.name for tool in given.tools)]
    for each in SettingsSource(home_of(options)).now().unknown_at_hand(known, given.specs):
        options.out.note(f"holdfast.toml: {each}")


@asynccontextmanager
async def looking_service(options: Options) -> "AsyncGenerator[Service | None, None]":
    """Open the service for commands that drive nothing. No user program is imported."""
    was_collecting = gc.isenabled()
    # The command ends before there is garbage worth collecting, and ten thousand rows would trigger
    # a hundred collections.
    gc.disable()
    try:
        async with _existing(options) as service:
            yield service
    finally:
        if was_collecting:
            gc.enable()


@asynccontextmanager
async def _existing(options: Options, **given: Any) -> "AsyncGenerator[Service | None, None]":
    from holdfast.assembly.service import open_service
    from holdfast.secrecy import learn

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
            learn(options, service.live.secrets)
        yield service
