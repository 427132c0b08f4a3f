"""
Decides whether a program lies where only the system's administrator can put one.

Every folder on the way to it, through every symbolic link, belongs to root and gives neither its
group nor others the right to write. The rule is the same for root and for other users. The kernel,
which knows about access lists, must also deny other users the right to write.
"""

import os
import stat

_ROOTS = ("/usr/", "/bin/", "/sbin/")
_LINKS_MAX = 40  # as many as the kernel follows


def why_not_system(path: str) -> str | None:
    """
    Return why another user than the administrator could change the program at this absolute path.

    >>> why_not_system("/bin/sh") is None
    True
    >>> why_not_system("bin/sh")
    "'bin/sh' is not an absolute path"
    """
    if not path.startswith("/"):
        return f"{path!r} is not an absolute path"
    try:
        real = _real_path(path)
        if not real.startswith(_ROOTS):
            return f"{real} does not lie in {', '.join(root.rstrip('/') for root in _ROOTS)}"
        facts = os.lstat(real)
        if not stat.S_ISREG(facts.st_mode) or not facts.st_mode & 0o111:
            return f"{real} is not a program"
        if facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
            return f"{real} runs with the rights of its owner"
        _check(real, facts)
    except _Changeable as exc:
        return str(exc)
    except OSError as exc:
        return f"{path} can't be looked up: {exc.strerror}"
    return None


def why_not_system_folder(path: str) -> str | None:
    """
    Judge a folder of the search path. A missing folder is accepted if nobody else can create it.
    """
    try:
        real = _real_path(path)
        _check(real, os.lstat(real))
    except FileNotFoundError:
        above = os.path.dirname(path.rstrip("/"))  # noqa: PTH120  text, not a Path
        return why_not_system_folder(above) if path.startswith("/") and path != "/" else path
    except _Changeable as exc:
        return str(exc)
    except OSError as exc:
        return f"{path} can't be looked up: {exc.strerror}"
    return None


class _Changeable(Exception):
    """Names the path that can be changed, and who can change it."""


def _real_path(path: str) -> str:
    """Resolve links one by one, and check every folder and link on the way."""
    at, left, links = "/", [part for part in path.split("/") if part], 0
    _check("/", os.lstat("/"))
    while left:
        part = left.pop(0)
        if part in (".", ".."):
            at = os.path.dirname(at) if part == ".." else at  # noqa: PTH120  text, not a Path
            continue
        below = f"{at.rstrip('/')}/{part}"
        facts = os.lstat(below)
        if stat.S_ISLNK(facts.st_mode):
            links += 1
            if links > _LINKS_MAX or facts.st_uid != 0:
                raise _Changeable(f"the link {below} does not belong to root, or never ends")
            target = os.readlink(below)  # noqa: PTH115
            left = [each for each in target.split("/") if each] + left
            at = "/" if target.startswith("/") else at
            continue
        if left:
            _check(below, facts)
        at = below
    return at


def _check(path: str, facts: os.stat_result) -> None:
    if facts.st_uid != 0:
        raise _Changeable(f"{path} belongs to user {facts.st_uid}, not to root")
    if facts.st_mode & 0o022:
        raise _Changeable(f"{path} may be written by its group or by everybody")
    if os.geteuid() != 0 and os.access(path, os.W_OK, effective_ids=_EFFECTIVE):
        raise _Changeable(f"{path} may be written by you")


_EFFECTIVE = os.access in os.supports_effective_ids
