"""
Recognises the Holdfast home by its inode, not by its name.

A path lies in the home if one of its parent folders is the home's inode or an inode mounted from
within the home. Symbolic links and second names do not help. The one exception is a workspace
inside the home, and only outside Holdfast's own folders. The process keeps the identity that it saw
first: a decoy in the home's place is refused, not protected.
"""

import os
import stat
import threading

import msgspec

from holdfast.adapters.tools.shell.confinement.mounts import names_of, read_mounts, within
from holdfast.ports.tools import CannotBind, Scene

Identity = tuple[int, int]

# Top-level folders of a home that cannot be a workspace: they hold keys, history or settings.
_OWN_FOLDERS = frozenset(
    {
        "anchors",
        "backups",
        "driver",
        "home",
        "index",
        "jobs",
        "journal",
        "keys",
        "locks",
        "logins",
        "memory",
        "outputs",
        "quarantine",
        "reserve",
        "run",
        "sessions",
        "snapshots",
        "tokens",
    }
)
_first_seen: dict[str, Identity] = {}
_first_seen_lock = threading.Lock()


class GuardedHome(msgspec.Struct, frozen=True, kw_only=True):
    """
    The home of one scene. `names` are all paths that lead to it or into it. `workspace_inside` is
    the folder inside it that tools may use, if any.
    """

    path: str
    identity: Identity
    names: tuple[str, ...]
    identities: frozenset[Identity]
    workspace_inside: str | None
    workspace_identity: Identity | None

    def holds(self, folder_fd: int) -> bool:
        """
        Return whether the open folder is the home or below it. The walk goes upwards: the first
        match of home or workspace decides.
        """
        for identity in identities_upward(folder_fd):
            if identity == self.workspace_identity:
                return False
            if identity in self.identities:
                return True
        return False

    def overlaps(self, folder: str) -> bool:
        """Return whether one contains the other, under any name of the home."""
        return any(within(folder, name) or within(name, folder) for name in self.names)


def guard_of(scene: Scene) -> GuardedHome | None:
    """
    Return None for a store without files. Raise CannotBind if the home cannot be found, because
    then it cannot be protected.
    """
    if scene.home is None:
        return None
    try:
        path = os.path.realpath(scene.home)
        facts = os.stat(path)  # noqa: PTH116  text, asked often
    except OSError as exc:
        raise CannotBind(
            f"the Holdfast home {scene.home} can't be read: {exc.strerror}", code="hard_deny"
        ) from exc
    identity = (facts.st_dev, facts.st_ino)
    with _first_seen_lock:
        seen = _first_seen.setdefault(path, identity)
    if seen != identity:
        raise CannotBind(
            f"another folder is in the place of the Holdfast home {path}", code="hard_deny"
        )
    names = names_of(path, read_mounts())
    identities = {identity} | {found for name in names if (found := _identity(name)) is not None}
    inside, inside_identity = _workspace_inside(scene.workspace, path)
    return GuardedHome(
        path=path,
        identity=identity,
        names=tuple(names),
        identities=frozenset(identities),
        workspace_inside=inside,
        workspace_identity=inside_identity,
    )


def _workspace_inside(workspace: str | None, home: str) -> tuple[str | None, Identity | None]:
    if workspace is None:
        return None, None
    real = os.path.realpath(workspace)
    if real == home or not within(real, home):
        return None, None
    first = real[len(home) :].strip("/").split("/")[0]
    if first in _OWN_FOLDERS or first.startswith("."):
        return None, None
    return real, _identity(real)


def _identity(path: str) -> Identity | None:
    try:
        facts = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return None
    return (facts.st_dev, facts.st_ino) if stat.S_ISDIR(facts.st_mode) else None


def identities_upward(folder_fd: int) -> list[Identity]:
    """
    Return the identities from the folder to the root. The walk uses `..`, so it is the true chain
    for any spelling of the path.
    """
    found: list[Identity] = []
    fd = (
        os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder_fd)
        if hasattr(os, "O_PATH")
        else os.dup(folder_fd)
    )
    try:
        while True:
            facts = os.fstat(fd)
            here = (facts.st_dev, facts.st_ino)
            if found and found[-1] == here:
                return found
            found.append(here)
            above = os.open(
                "..",
                (os.O_PATH if hasattr(os, "O_PATH") else os.O_RDONLY)
                | os.O_DIRECTORY
                | os.O_CLOEXEC,
                dir_fd=fd,
            )
            os.close(fd)
            fd = above
    finally:
        os.close(fd)
