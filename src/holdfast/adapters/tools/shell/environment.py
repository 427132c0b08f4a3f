"""
The environment of a command: made new from what the system knows of the user, never filtered from
ours.

So nothing of ours can leak or act: no LD_PRELOAD, BASH_ENV, GIT_*, no provider key, no HOLDFAST_*.
Every process that serves the same user makes the same one, since it is part of what was approved.
HOLDFAST_TOOL names the call: recovery finds survivors by it, and commands that carry consent refuse
under it.
"""

import os
import pwd

from blake3 import blake3

from holdfast.ids import CallId

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOL_VARIABLE = "HOLDFAST_TOOL"


def environment_of(
    call: CallId,
    search_path: str = SEARCH_PATH,
    *,
    home: str | None = None,
    temporary: str = "/tmp",  # noqa: S108
) -> dict[str, str]:
    """
    These variables and no others. `home` is the folder that a command may call the user's, where it
    is not the real one.
    """
    user = _user()
    return {
        "PATH": search_path,
        "HOME": home or (user.pw_dir if user else "/"),
        "USER": user.pw_name if user else str(os.getuid()),
        "LOGNAME": user.pw_name if user else str(os.getuid()),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": temporary,
        "PAGER": "cat",  # nobody is there to turn pages
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        TOOL_VARIABLE: call,
    }


def environment_digest(environment: dict[str, str]) -> str:
    hasher = blake3()
    for key, value in sorted(environment.items()):
        hasher.update(f"{len(key)}:{key}{len(value)}:{value}".encode())
    return hasher.hexdigest()


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
