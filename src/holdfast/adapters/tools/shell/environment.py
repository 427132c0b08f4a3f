"""
The environment of a command. It is built anew from the system's data about the user, never filtered
from this process's environment.

So no variable of this process can leak or act: no LD_PRELOAD, BASH_ENV, GIT_*, no provider key, no
HOLDFAST_*. Every process that serves the same user builds the same environment, because it is part
of the approved binding. HOLDFAST_TOOL names the call. Recovery finds survivors by it, and commands
that carry consent refuse to run under it.
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
    Return exactly these variables. `home` replaces the user's real folder for the command, if
    given.
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
        "PAGER": "cat",  # no person is there to turn pages
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
