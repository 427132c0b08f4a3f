"""The chats of a home, as far as settings and this environment say. No platform is asked."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.cli.commands.doctor.finding import Finding
from holdfast.errors import install_hint

if TYPE_CHECKING:
    from holdfast.settings import Settings

_LIBRARIES = {"telegram": "aiohttp", "slack": "slack_sdk", "discord": "discord"}


def check_channels(settings: "Settings | None") -> Iterator[Finding]:
    if settings is None:
        return
    for name, each in settings.channels.items():
        place = f"[channels.{name}]"
        missing = [variable for variable in each.secret_variables if not os.environ.get(variable)]
        people = [person for person, known in settings.people.items() if each.kind in known]
        if find_spec(_LIBRARIES[each.kind]) is None:
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
