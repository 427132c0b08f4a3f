"""
Finds out whether a command can be isolated here, by running bubblewrap as a command would be run.

The probe requests everything that a real command gets: all namespaces, a new `/proc`, the seccomp
filter. It runs once per process. If it fails, the obstacle names the cause and the remedy, from
bubblewrap's message and the kernel's settings.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.adapters.tools.shell.confinement.seccomp import filter_of
from holdfast.adapters.tools.shell.confinement.view import FILTER, FileView, view_words
from holdfast.adapters.tools.shell.environment import SEARCH_PATH
from holdfast.ports.tools import CannotBind

# It takes 20 ms. A machine that is busy for a moment must not pass for one that forbids namespaces.
_PROBE_SECONDS = 20
_NO_NESTING = "--disable-userns"  # since bubblewrap 0.8; the filter refuses namespaces anyway
_SYSCTLS = Path("/proc/sys")


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    cause: str
    remedy: str


class Isolation(msgspec.Struct, frozen=True):
    """`words` stand in front of a view's words."""

    path: str
    words: tuple[str, ...]


def isolation_words(view: FileView) -> tuple[str, ...]:
    """
    Return the command line in front of the launcher, up to `--`. Raise CannotBind if bubblewrap
    does not work.
    """
    found = find_isolation()
    if isinstance(found, Obstacle):
        raise CannotBind(f"commands can't be isolated: {found.cause}", code="unconfined")
    return (*found.words, *view_words(view))


@functools.cache
def find_isolation() -> Isolation | Obstacle:
    path = shutil.which("bwrap", path=SEARCH_PATH)
    if path is None:
        return Obstacle(
            cause="bubblewrap is not installed", remedy="install the package bubblewrap"
        )
    try:
        filter_of("isolated", network=False)
    except CannotBind as exc:
        return Obstacle(cause=str(exc), remedy="use a machine of x86_64 or aarch64")
    said = ""
    for extra in ((_NO_NESTING,), ()):
        said = _tried((path, *extra))
        if not said:
            return Isolation(path, (path, *extra))
    return obstacle_from(said, _setting)


def _tried(words: tuple[str, ...]) -> str:
    """Return an empty text if it worked, otherwise bubblewrap's message."""
    fd = data_descriptor(filter_of("isolated", network=False))
    try:
        view = [
            str(fd) if word == FILTER else word
            for word in view_words(FileView(guard=None, folders=()))
        ]
        tried = subprocess.run(  # noqa: S603  fixed arguments
            [*words, *view, "--", "/bin/sh", "-c", "test -d /proc/1"],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_PROBE_SECONDS,
            env={"PATH": SEARCH_PATH, "LANG": "C"},
            cwd="/",
            pass_fds=(fd,),
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bwrap can't be run: {exc}"
    finally:
        os.close(fd)
    return (
        ""
        if tried.returncode == 0
        else tried.stderr.decode(errors="replace").strip()[:300]
        or f"bwrap ended with {tried.returncode}"
    )


def data_descriptor(data: bytes) -> int:
    """
    Return a descriptor that bubblewrap reads once, to its end. The caller closes it. The bytes have
    no name that another process could open.
    """
    fd = os.memfd_create("holdfast", os.MFD_CLOEXEC)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def obstacle_from(said: str, setting: Callable[[str], str]) -> Obstacle:
    """
    Return the cause by bubblewrap's message and the kernel's settings. There are five cases, the
    surest first.

    >>> setting = {"kernel/apparmor_restrict_unprivileged_userns": "1"}.get
    >>> said = "bwrap: setting up uid map: Permission denied"
    >>> obstacle_from(said, lambda name: setting(name, "")).cause
    'AppArmor keeps bubblewrap from making user namespaces (setting up uid map: Permission denied)'
    """
    reason = said.removeprefix("bwrap: ")
    if (
        setting("user/max_user_namespaces") == "0"
        or setting("kernel/unprivileged_userns_clone") == "0"
    ):
        return Obstacle(
            cause=f"user namespaces are switched off ({reason})",
            remedy=(
                "as root: sysctl user.max_user_namespaces=10000, and "
                "kernel.unprivileged_userns_clone=1 where there is one"
            ),
        )
    if setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return Obstacle(
            cause=f"AppArmor keeps bubblewrap from making user namespaces ({reason})",
            remedy=(
                "as root: give /usr/bin/bwrap an AppArmor profile that allows userns (package "
                "apparmor-profiles, profile bwrap-userns-restrict)"
            ),
        )
    if "proc" in reason and ("mount" in reason.lower() or "/newroot/proc" in reason):
        return Obstacle(
            cause=f"/proc is masked, as in a container ({reason})",
            remedy=(
                "start the container with unmasked /proc (docker: --security-opt "
                "systempaths=unconfined)"
            ),
        )
    if (
        "namespace" in reason.lower()
        or "clone" in reason.lower()
        or "Operation not permitted" in reason
    ):
        return Obstacle(
            cause=f"user namespaces are refused, as by a container's seccomp filter ({reason})",
            remedy=(
                "start the container with a filter that allows them (docker: --security-opt "
                "seccomp=unconfined)"
            ),
        )
    return Obstacle(
        cause=f"bubblewrap does not work here ({reason})",
        remedy="run `bwrap --ro-bind / / --unshare-all true` to see why",
    )


def _setting(name: str) -> str:
    """Return a kernel setting, or an empty text if it is missing."""
    try:
        return (_SYSCTLS / name).read_text(encoding="ascii").strip()
    except OSError:
        return ""
