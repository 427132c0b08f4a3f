"""
The chats of a home: settings, this environment, and how the server that runs now hears them. No
platform is asked.
"""

import http.client
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from holdfast.cli.commands.doctor.finding import Finding
from holdfast.errors import install_hint

if TYPE_CHECKING:
    from holdfast.settings import Settings

_LIBRARIES = {"telegram": "aiohttp", "slack": "slack_sdk", "discord": "discord"}


_ANSWER_SECONDS = 5.0


def check_channels(settings: "Settings | None", home: Path) -> Iterator[Finding]:
    if settings is None or not settings.channels:
        return
    down = _down_now(home)
    for name, each in settings.channels.items():
        place = f"[channels.{name}]"
        missing = [variable for variable in each.secret_variables if not os.environ.get(variable)]
        people = [person for person, known in settings.people.items() if each.kind in known]
        if name in down:
            yield Finding(
                "channels",
                "warning",
                f"{place}: the server that runs now can't reach it; what it owes there waits",
                "`holdfast channels check` asks the platform; the log of `serve` has the reason",
            )
        elif find_spec(_LIBRARIES[each.kind]) is None:
            yield Finding(
                "channels",
                "problem",
                f"{place} needs {_LIBRARIES[each.kind]}, which is not installed",
                install_hint(each.kind),
            )
        elif missing:
            yield Finding(
                "channels",
                "warning",
                f"{place}: {missing[0]} is not set here",
                "the process that serves needs it; `holdfast channels check` asks the platform",
            )
        elif not people:
            yield Finding(
                "channels",
                "warning",
                f"{place}: nobody is known there, so nobody is heard",
                f'add {each.kind} = "ID" to [people.NAME]; the log of `serve` has the ids of those '
                "who wrote",
            )
        else:
            yield Finding("channels", "ok", f"{place}: {', '.join(people)}")


def _down_now(home: Path) -> list[str]:
    """Ask the server of this home, if there is one, which chats do not answer it."""
    from holdfast.gateway.routes.operations import CHANNELS_DOWN
    from holdfast.gateway.server.serve_lock import served_at

    if (address := served_at(home)) is None:
        return []
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        named = connection.getresponse().getheader(CHANNELS_DOWN, "")
    except (OSError, http.client.HTTPException):
        return []
    finally:
        connection.close()
    return [each.strip() for each in named.split(",")]
