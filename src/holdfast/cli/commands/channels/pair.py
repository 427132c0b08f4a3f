"""
`holdfast channels pair`: write a person's id on a platform into `[people]` of holdfast.toml.

The id comes from the platform's authenticated envelope, as the server's log prints it for a sender
whom it does not know. A name is never an id. The file is changed in one step, and only if the
result is settings that can be used.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import Refused, Unusable

if TYPE_CHECKING:
    from holdfast.settings import Settings

# By kind: the form of an id, and an example.
_IDS = {
    "slack": (re.compile(r"[TE][A-Z0-9]{1,19}/[UW][A-Z0-9]{1,19}\Z"), "T024BE7LD/U024BE7LH"),
    "telegram": (re.compile(r"[0-9]{1,20}\Z"), "123456789"),
    "discord": (re.compile(r"[0-9]{1,20}\Z"), "80351110224678912"),
}
_PLAIN = re.compile(r"[A-Za-z0-9_-]+\Z")


def pair(home: Path, channel: str, person: str, identity: str) -> str:
    """Let the person speak under this id. Return the line that stands in the settings now."""
    from holdfast.adapters.files.paths import create_whole
    from holdfast.settings import SettingsSource
    from holdfast.settings.parser import settings_from_toml
    from holdfast.settings.source import FILE_NAME, read_settings_file

    settings = SettingsSource(home).now()
    kind = _kind(settings, channel)
    form, example = _IDS[kind]
    if not form.match(identity):
        raise Unusable(
            f"{identity!r} is not an id on {kind}",
            code="malformed",
            hint=f"the server's log prints the id of an unknown sender; it looks like {example}",
        )
    if (known := settings.people.get(person, {}).get(kind)) is not None:
        raise Refused(
            f"{person} is {known} on {kind}",
            code="exists",
            hint=f"to change it, edit [people.{person}] in {home / FILE_NAME}",
        )
    line = f'{kind} = "{identity}"'
    changed = _with_line((read_settings_file(home) or b"").decode(), person, line).encode()
    # Refuses an id of somebody else, and a name that is not one.
    if settings_from_toml(changed).people.get(person, {}).get(kind) != identity:
        raise Unusable(
            f"the table of {person} in {home / FILE_NAME} is written in a way that was not found",
            code="settings",
            hint=f"add the line by hand: {line}",
        )
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        create_whole(folder, FILE_NAME, changed, temporary=f".{FILE_NAME}.new")
    finally:
        os.close(folder)
    return line


def _kind(settings: "Settings", channel: str) -> str:
    found = settings.channels.get(channel)
    if found is None:
        raise Unusable(
            f"no channel {channel!r} in holdfast.toml",
            code="unknown",
            hint="`holdfast channels list` shows them",
        )
    return found.kind


def _with_line(text: str, person: str, line: str) -> str:
    r"""
    Return the settings with the line in the person's table. A table that has this platform already
    gets no second one.

    >>> _with_line("[people.bob]\n", "bob", 'slack = "T1/U1"')
    '[people.bob]\nslack = "T1/U1"\n'
    >>> _with_line("", "eve x", 'slack = "T1/U1"')
    '[people."eve x"]\nslack = "T1/U1"\n'
    """
    if '"' in person or "\\" in person or not person.isprintable():
        raise Unusable(
            f"{person!r} is not a person's name",
            code="malformed",
            hint="use the name under [people], without quotes, backslashes or invisible signs",
        )
    key = person if _PLAIN.match(person) else f'"{person}"'
    header = re.compile(
        rf"^\[people\.(?:{re.escape(key)}|\"{re.escape(person)}\")\][ \t]*(?:#.*)?$", re.MULTILINE
    )
    found = header.search(text)
    if found is not None:
        return f"{text[: found.end()]}\n{line}{text[found.end() :]}"
    end = "" if not text or text.endswith("\n") else "\n"
    gap = "\n" if text else ""
    return f"{text}{end}{gap}[people.{key}]\n{line}\n"
