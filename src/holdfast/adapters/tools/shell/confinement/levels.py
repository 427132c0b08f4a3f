"""
Chooses the level of a command: how well the user's other data is protected from it, and why no
better level works.

There are three levels:

* isolated: bubblewrap shows the command a view of its own (`confinement/view.py`).
* limited: Landlock lets it open only the system and its folders. The prompt lists the rest that
  stays in reach.
* unconfined: neither works.

A level is chosen at every binding, so a prompt always states the level of its command. Whether
bubblewrap works is found out by running it, once per process, and never read from a file.
"""

import os
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from holdfast.adapters.tools.home_guard import GuardedHome, guard_of
from holdfast.adapters.tools.shell.confinement.isolation import Obstacle, find_isolation
from holdfast.adapters.tools.shell.confinement.mounts import within
from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import program_folders
from holdfast.adapters.tools.shell.launcher_child import landlock_abi
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import CannotBind, Scene
from holdfast.session.authority.plan import Level

Mechanism = Literal["landlock", "bubblewrap"]
MECHANISMS: tuple[Mechanism, ...] = ("landlock", "bubblewrap")
_LANDLOCK_ABI_MIN = 3  # earlier versions let a command truncate files in the home
_SIGNALS_ABI = 6  # earlier versions let a command end the user's processes


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """`obstacle` says for people why there is no better level. It is None at isolated."""

    level: Level
    obstacle: Obstacle | None = None


class ConfinementReport(msgspec.Struct, frozen=True, kw_only=True):
    """The confinement part of `doctor`."""

    level: Level
    reason: str
    remedy: str
    landlock_abi: int
    bubblewrap: str | None  # path of a working bwrap


def choose(
    guard: GuardedHome | None, folders: Sequence[str], mechanisms: Sequence[Mechanism] = MECHANISMS
) -> Confinement:
    """Choose the level for a command that works in `folders`, which are canonical."""
    obstacle = _no_isolation(folders, mechanisms)
    if obstacle is None:
        return Confinement(level="isolated")
    if (why := _no_landlock(guard, folders, mechanisms)) is None:
        return Confinement(level="limited", obstacle=obstacle)
    if (folder := _overlap(guard, folders)) is not None:
        # The nearest remedy comes first: a person can move a home sooner than a kernel.
        return Confinement(level="unconfined", obstacle=_home_overlaps(folder))
    return Confinement(
        level="unconfined",
        obstacle=Obstacle(cause=f"{obstacle.cause}; {why}", remedy=obstacle.remedy),
    )


def choose_quickly(
    find_guard: Callable[[], GuardedHome | None],
    folders: Sequence[str],
    mechanisms: Sequence[Mechanism] = MECHANISMS,
) -> Confinement:
    """Like `choose`. The home is looked for only if the command can't be isolated from it."""
    if _no_isolation(folders, mechanisms) is None:
        return Confinement(level="isolated")
    return choose(find_guard(), folders, mechanisms)


def _overlap(guard: GuardedHome | None, folders: Sequence[str]) -> str | None:
    if guard is None:
        return None
    return next((folder for folder in folders if guard.overlaps(folder)), None)


def _home_overlaps(folder: str) -> Obstacle:
    return Obstacle(
        cause=f"Holdfast's home and the folder it works in, {folder}, are one inside the other",
        remedy=f"move the home out of {folder} (HOLDFAST_HOME=~/.holdfast), or work in another "
        "folder (--workspace DIR)",
    )


def _no_isolation(folders: Sequence[str], mechanisms: Sequence[Mechanism]) -> Obstacle | None:
    if "bubblewrap" not in mechanisms:
        return Obstacle(cause="bubblewrap is left out", remedy="let it be used")
    if (wide := next((folder for folder in folders if _is_the_systems(folder)), None)) is not None:
        return Obstacle(
            cause=f"a command that works in {wide} can't have a view of its own",
            remedy="name a folder of yours as the workspace",
        )
    found = find_isolation()
    return found if isinstance(found, Obstacle) else None


def _is_the_systems(folder: str) -> bool:
    """
    Return whether the folder is the root or one of the private system folders. Bound whole, it
    would undo the view.
    """
    return folder == "/" or any(within(folder, each) for each in ("/proc", "/sys", "/dev"))


def _no_landlock(
    guard: GuardedHome | None, folders: Sequence[str], mechanisms: Sequence[Mechanism]
) -> str | None:
    """Return why Landlock cannot be used. It knows no exceptions below an allowed folder."""
    if "landlock" not in mechanisms or landlock_abi() < _LANDLOCK_ABI_MIN:
        return f"Landlock of version {_LANDLOCK_ABI_MIN} is missing"
    try:
        filter_of("limited", network=False)
    except CannotBind as exc:
        return str(exc)
    for folder in folders:
        if _is_the_systems(folder):
            return f"{folder} can't be given to a command alone"
        if guard is not None and guard.overlaps(folder):
            return _home_overlaps(folder).cause
        own = next((each for each in program_folders() if within(each, folder)), None)
        if own is not None:
            return f"{folder} holds {own}, which Holdfast's own program is loaded from"
    return None


def reachable_if_limited(*, network: bool) -> tuple[str, ...]:
    """
    Return what stays in reach of a limited command besides the system and its folders. The prompt
    lists it.
    """
    always = (
        "names of files that it can guess, with size, owner and times; not their content",
        (
            "the list of processes, with the words they were started with, the list of open "
            "sockets "
            "and the names of your keys in the kernel"
        ),
        "a process of its own that goes on after the command has ended",
    )
    signals = (
        ("your other processes, to end them: this kernel is too old to prevent it",)
        if landlock_abi() < _SIGNALS_ABI
        else ()
    )
    return (
        *always,
        *signals,
        *(
            ("the network, and every service on this machine that listens on loopback",)
            if network
            else ()
        ),
    )


def confinement_report(home: str, workspace: str | None) -> ConfinementReport:
    """
    Return the level of a shell command in this workspace, and why no better one works.

    >>> report = confinement_report("/nonexistent/home", None)
    >>> report.level
    'unconfined'
    """
    found = find_isolation()
    try:
        guard = guard_of(bare_scene(home, workspace))
        chosen = choose(guard, [os.path.realpath(workspace)] if workspace else [])
    except CannotBind as exc:
        chosen = Confinement(
            level="unconfined",
            obstacle=Obstacle(cause=str(exc), remedy="name a home that is there"),
        )
    return ConfinementReport(
        level=chosen.level,
        reason="" if chosen.obstacle is None else chosen.obstacle.cause,
        remedy="" if chosen.obstacle is None else chosen.obstacle.remedy,
        landlock_abi=landlock_abi(),
        bubblewrap=None if isinstance(found, Obstacle) else found.path,
    )


def bare_scene(home: str, workspace: str | None) -> Scene:
    return Scene(
        session=SessionId("local/doctor"),
        instance=InstanceId("doctor"),
        turn=TurnId("t0"),
        call=CallId("c-doctor"),
        workspace=workspace,
        requester=None,
        audience="personal",
        boundary="personal",
        home=home,
    )
