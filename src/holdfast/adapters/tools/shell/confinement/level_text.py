"""
Describes the level of a command: for the approver, and for the model whose command lacked the
network.

Every prompt begins with the level. A limited command's prompt lists what stays in reach. If no
better level works, the prompt names the cause and the remedy.
"""

import re
from collections.abc import Sequence

from holdfast.adapters.tools.shell.confinement.isolation import Obstacle
from holdfast.adapters.tools.shell.confinement.levels import Confinement, reachable_if_limited
from holdfast.adapters.tools.shell.confinement.mounts import within
from holdfast.adapters.tools.shell.confinement.view import user_folder
from holdfast.session.view.safe_text import framed, render_line

_UNCONFINED = "UNCONFINED: this command can read Holdfast's keys and answer its own prompts"
_BARE = "isolated: it reads the system, writes only its workspace, and has no network"
_CONNECTED = "isolated, with network: it reads the system, and writes only its workspace"
_LOOPBACK = (
    "the network includes loopback: it reaches every service on this machine that listens there, "
    "and sees which sockets are open;"
    " unix sockets are blocked"
)
_LIMITED = "limited: it can open only the system and its workspace, but these stay in reach"
_UNCONFINED_SERVER = "UNCONFINED: this server can read Holdfast's keys and answer its own prompts"
_BARE_SERVER = "isolated: the server sees the system and the paths of its settings, and no network"
_CONNECTED_SERVER = (
    "isolated, with network: the server sees the system and the paths of its settings"
)
_LIMITED_SERVER = (
    "limited: the server can open only the system and the paths of its settings, but these stay in "
    "reach"
)
_LACKED = "[this command had no network; if it needs one, call shell again with network true]"
_SIGNS = re.compile(
    r"could not resolve|couldn't resolve|temporary failure in name resolution|name or service not"
    r" known|nodename nor servname"
    r"|network is unreachable|no route to host|getaddrinfo|EAI_AGAIN|ENOTFOUND|ENETUNREACH|unable"
    r" to resolve host|no address associated"
    r"|failed to resolve|dns error|name resolution|unknown host|socket: permission denied|failed to"
    r" establish a new connection|could not connect",
    re.IGNORECASE,
)


def level_lines(
    confinement: Confinement, *, network: bool, folders: Sequence[str], read: Sequence[str] = ()
) -> list[str]:
    """`read` are the paths of settings: the prompt names what it lets the command see."""
    if confinement.level == "unconfined":
        return [f"{_UNCONFINED}, because {_why(confinement.obstacle)}"]
    if confinement.level == "limited":
        reachable = [f"- {each}" for each in reachable_if_limited(network=network)]
        return [
            _LIMITED,
            *reachable,
            f"not isolated, because {_why(confinement.obstacle)}",
            *_everything(folders),
            *_also(read),
        ]
    return [
        *([_CONNECTED, _LOOPBACK] if network else [_BARE]),
        *_everything(folders),
        *_also(read),
    ]


def server_level_lines(confinement: Confinement, *, network: bool) -> list[str]:
    """The level of a server that runs on between calls, for the prompt of each of its calls."""
    if confinement.level == "unconfined":
        return [f"{_UNCONFINED_SERVER}, because {_why(confinement.obstacle)}"]
    if confinement.level == "limited":
        reachable = [f"- {each}" for each in reachable_if_limited(network=network)]
        why = f"not isolated, because {_why(confinement.obstacle)}"
        return [_LIMITED_SERVER, *reachable, why]
    return [_CONNECTED_SERVER, _LOOPBACK] if network else [_BARE_SERVER]


def network_note(output: str) -> str:
    """
    Return a note for the model if the output of a failed command suggests that it needed the
    network.
    """
    return _LACKED if _SIGNS.search(output) else ""


def _everything(folders: Sequence[str]) -> list[str]:
    own = user_folder()
    holding = next((folder for folder in folders if own is not None and within(own, folder)), None)
    return (
        []
        if holding is None
        else [f"{holding} holds everything of the user: all of it can be read and changed"]
    )


def _also(read: Sequence[str]) -> list[str]:
    paths = [framed(render_line(path).text) for path in read]
    return ["it can also read, by tools.shell.read", *paths] if paths else []


def _why(obstacle: Obstacle | None) -> str:
    return "" if obstacle is None else f"{obstacle.cause}. To mend it, {obstacle.remedy}."
