"""The folders and files that a command is bound to, and the paths that it may use."""

import os
from collections.abc import Sequence

from holdfast.adapters.tools.paths import open_folder
from holdfast.adapters.tools.shell.confinement.view import (
    SYSTEM,
    FileView,
    interpreter_paths,
    refuse_home_paths,
)

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def identified(folders: Sequence[str]) -> tuple[str, ...]:
    """
    Return the folders with their identities. Bubblewrap finds them by name, so the launcher checks
    from inside that it found these.
    """
    found = []
    for folder in folders:
        fd = open_folder(folder, None)
        facts = os.fstat(fd)
        os.close(fd)
        found.append(f"{facts.st_dev}:{facts.st_ino} {folder}")
    return tuple(found)


def allowed_paths(view: FileView) -> tuple[str, ...]:
    """
    Return the paths for Landlock, which judges the opened file, regardless of the link that led to
    it. Raise CannotBind for a path of the home.
    """
    refuse_home_paths(view)
    readable = [
        os.path.realpath(path)
        for path in (*SYSTEM, "/proc", *interpreter_paths(), *view.read)
        if os.path.exists(path)  # noqa: PTH110
    ]
    return (
        *(f"r{path}" for path in readable),
        *(f"w{path}" for path in (*view.folders, *_DEVICES)),
    )
