"""
How a command is kept out of the Holdfast home: which mechanism works here, and what `doctor` says about it.

Landlock where home and folders are disjoint: it knows no exceptions below an allowed folder. Bubblewrap where one contains the
other, or Landlock is missing: an empty read-only mount over the home. "Folders" are those a command works in and, where there is
a choice, the user's own and the temporary one: below Landlock nothing new can be made directly in a folder above the home.
The choice is made at every binding, so a prompt always says whether the command would run confined.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.adapters.tools.environment import SEARCH_PATH, environment_of
from holdfast.adapters.tools.home_guard import Guarded, guard_of
from holdfast.adapters.tools.launch import landlock_abi
from holdfast.ids import CallId, InstanceId, SessionId, TurnId
from holdfast.ports.tools import CannotBind, Scene

Mechanism = Literal["landlock", "bubblewrap"]
MECHANISMS: tuple[Mechanism, ...] = ("landlock", "bubblewrap")
_LANDLOCK_ABI_MIN = 3  # before, files in the home could still be truncated
_PROBE_SECONDS = 20  # it takes 10 ms; a machine that is busy for a moment is not taken for one that forbids namespaces


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """`mechanism` is None where the command would run unconfined; `reason` says why, for people."""

    mechanism: Mechanism | None
    reason: str


class ConfinementReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` says."""

    confined: bool
    mechanism: Mechanism | None
    reason: str
    landlock_abi: int
    bubblewrap: str | None  # path of a bwrap that works


def choose(
    guard: Guarded | None, folders: Sequence[str], mechanisms: Sequence[Mechanism] = MECHANISMS, *, expected: Sequence[str] = ()
) -> Confinement:
    """
    For a command that works in `folders`. `expected` are the user's folder and the temporary one: commands make files there, which
    Landlock can't allow where the home lies below, so bubblewrap goes first then.
    """
    if guard is None:
        return Confinement(mechanism="landlock", reason="there is no home to protect")
    abi = landlock_abi() if "landlock" in mechanisms else 0
    bubblewrap = working_bubblewrap() if "bubblewrap" in mechanisms else None
    overlapping = next((folder for folder in folders if guard.overlaps(folder)), None)
    landlock_fits = overlapping is None and abi >= _LANDLOCK_ABI_MIN
    narrow = any(guard.overlaps(folder) for folder in expected)
    if landlock_fits and not (narrow and bubblewrap):
        return Confinement(mechanism="landlock", reason=f"Landlock, version {abi}")
    if bubblewrap is not None:
        return Confinement(mechanism="bubblewrap", reason="bubblewrap")
    if abi >= _LANDLOCK_ABI_MIN:
        why = f"{overlapping} and the Holdfast home contain one another, and bubblewrap does not work here"
    else:
        why = "neither Landlock nor bubblewrap works here"
    return Confinement(mechanism=None, reason=why)


def confinement_report(home: str, workspace: str | None) -> ConfinementReport:
    """
    Whether a shell command in this workspace would be kept out of this home, and by what.

    >>> report = confinement_report("/nonexistent/home", None)
    >>> report.confined
    False
    """
    abi, bwrap = landlock_abi(), working_bubblewrap()
    try:
        guard = guard_of(_bare_scene(home, workspace))
        chosen = choose(guard, [os.path.realpath(workspace)] if workspace else [], expected=expected_folders())
    except CannotBind as exc:
        chosen = Confinement(mechanism=None, reason=str(exc))
    return ConfinementReport(
        confined=chosen.mechanism is not None,
        mechanism=chosen.mechanism,
        reason=chosen.reason,
        landlock_abi=abi,
        bubblewrap=bwrap,
    )


def expected_folders() -> list[str]:
    environment = environment_of(CallId(""))
    return [os.path.realpath(environment[name]) for name in ("HOME", "TMPDIR")]


@functools.cache
def working_bubblewrap() -> str | None:
    """Tried once per process: it may be installed and still be forbidden to make namespaces."""
    path = shutil.which("bwrap", path=SEARCH_PATH)
    if path is None:
        return None
    try:
        tried = subprocess.run(  # noqa: S603  our own words
            [path, *_base(()), "--tmpfs", "/tmp", "--", "/bin/true"],  # noqa: S108  exists everywhere
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
            env={"PATH": SEARCH_PATH},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if tried.returncode == 0 else None


# Devices are bubblewrap's few harmless ones.
_BASE = ("--bind", "/", "/", "--dev", "/dev")
# What a user namespace is for: processes outside, bubblewrap's own included, can't be traced or looked into from it.
_APART = ("--unshare-user", "--cap-drop", "ALL")
# A line that root writes to the kernel's settings runs a program outside of everything.
_KERNEL_AS_IT_IS = ("--ro-bind", "/sys", "/sys", "--ro-bind", "/proc/sys", "/proc/sys")
_SCOPE_ABI = 6


def _base(mechanisms: Sequence[Mechanism]) -> tuple[str, ...]:
    """Root keeps its power over other users' files where Landlock's scopes, set by the launcher, do the namespace's work."""
    if os.geteuid() != 0:
        return (*_APART, *_BASE)
    scoped = "landlock" in mechanisms and landlock_abi() >= _SCOPE_ABI
    return (*(() if scoped else _APART), *_BASE, *_KERNEL_AS_IT_IS)


def bubblewrap_words(guard: Guarded, mechanisms: Sequence[Mechanism] = MECHANISMS) -> list[str]:
    """The command line in front of the launcher."""
    path = working_bubblewrap()
    if path is None:
        raise CannotBind("bubblewrap stopped working")
    words = [path, *_base(mechanisms)]
    # Every folder above the home becomes a mount point: those can't be renamed, so the home can't be moved from under its cover.
    for folder in sorted({above for name in guard.names for above in _above(name)}):
        words += ["--bind", folder, folder]
    for name in guard.names:
        words += ["--tmpfs", name] if os.path.isdir(name) else ["--ro-bind", "/dev/null", name]  # noqa: PTH112
    if guard.workspace_inside is not None:
        words += ["--bind", guard.workspace_inside, guard.workspace_inside]
    for name in guard.names:
        words += ["--remount-ro", name]
    return [*words, "--"]


def _above(path: str) -> list[str]:
    found = []
    while (path := os.path.dirname(path)) != "/":  # noqa: PTH120
        found.append(path)
    return found


def _bare_scene(home: str, workspace: str | None) -> Scene:
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
