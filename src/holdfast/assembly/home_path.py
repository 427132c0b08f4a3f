"""The path of a home and the identity of a folder, as a person or a setting names them."""

import os
import stat
from pathlib import Path

from holdfast.errors import Unusable

HOME_VARIABLE = "HOLDFAST_HOME"


def home_path(given: str | os.PathLike[str] | None = None) -> Path:
    """Return `given`, else $HOLDFAST_HOME, else ~/.holdfast; absolute."""
    chosen = os.fspath(given or os.environ.get(HOME_VARIABLE) or "~/.holdfast")
    found = os.path.expanduser(chosen)  # noqa: PTH111  # as below
    whole = os.path.abspath(found)  # noqa: PTH100  # resolves no links: the store does, by descriptor
    refuse_non_utf8_path(whole)
    if (why := _no_home_folder(chosen, found)) is not None:
        raise Unusable(
            f"{chosen}: no home folder is known: {why}",
            hint="name a home with --home or $HOLDFAST_HOME, or set $HOME; a folder whose name "
            "begins with ~ is ./~...",
        )
    return Path(whole)


def _no_home_folder(chosen: str, found: str) -> str | None:
    """
    Return why `~` cannot be expanded, as in many containers; None if it can, or is not used.

    Taken literally, `~` would name another folder in every working directory, or one beside the
    system's own.
    """
    user = chosen.partition("/")[0]
    if user == "~" and not os.environ.get("HOME", "/").startswith("/"):
        return (
            f"$HOME is {os.environ['HOME']!r}, which is not an absolute path"
            if os.environ["HOME"]
            else "$HOME is empty"
        )
    if not found.startswith("~"):
        return None
    return (
        f"$HOME is not set, and the system has no user with uid {os.getuid()}"
        if user == "~"
        else f"the system has no user {user[1:]!r}"
    )


def refuse_non_utf8_path(path: str) -> None:
    """
    Refuse a path that is not valid text. A path is shown in prompts, bound by their digest and
    journalled, so it must be UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError as exc:
        raise Unusable(
            f"{path!a} is not valid UTF-8",
            code="malformed",
            hint="rename the folder; if its name looks right, this process has another locale: "
            "LANG=C.UTF-8, and no PYTHONUTF8=0",
        ) from exc


def folder_identity(path: str) -> str | None:
    """Identify the folder that a path names, by device and inode."""
    refuse_non_utf8_path(path)
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}" if stat.S_ISDIR(found.st_mode) else None
