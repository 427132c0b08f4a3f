"""Checks of the machine: Python, the user's program, consent, confinement."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.commands.doctor.finding import Finding

if TYPE_CHECKING:
    from holdfast.settings import Settings


_PYTHON_MIN = (3, 11)
_NO_LOGIN = frozenset({"nologin", "false"})  # shells of accounts that no person uses


def check_program(settings: "Settings") -> Iterator[Finding]:
    """
    Check who may write this program. It runs next to the keys, so a workspace must not contain it.
    """
    from holdfast.adapters.tools.user_program import is_within

    workspace = settings.serve_workspace or os.getcwd()  # noqa: PTH109
    for folder in {str(Path(__file__).parents[2]), sys.prefix}:
        if is_within(folder, workspace):
            said = (
                f"Holdfast itself lies in {folder}: tools that may write {workspace} could change"
                " what runs next to the keys"
            )
            yield Finding(
                "program",
                "warning",
                said,
                "install it elsewhere, or give sessions another folder with --workspace",
            )
            return


def check_consent(settings: "Settings") -> Finding:
    said = f"answers count from: {', '.join(settings.consent)}"
    if "script" in settings.consent:
        return Finding(
            "consent",
            "ok",
            f"{said}; so each program of yours can answer, too",
            'set approvals.consent = ["terminal", "page"] to let only people answer',
        )
    return Finding("consent", "ok", said)


def check_clients(home: Path, settings: "Settings") -> Iterator[Finding]:
    """
    Check who could answer prompts of MCP clients. A home that belongs to a person's own account can
    be read by every program of that person, the clients included.
    """
    import pwd

    if not settings.servers or not home.is_dir():
        return
    try:
        owner = pwd.getpwuid(home.stat().st_uid)
    except (KeyError, OSError):
        return
    if Path(owner.pw_shell).name in _NO_LOGIN:
        yield Finding("clients", "ok", f"nobody logs in as {owner.pw_name}")
        return
    yield Finding(
        "clients",
        "warning",
        f"programs of {owner.pw_name} can read this home's keys; an MCP client among them could "
        "answer its own prompts",
        "`holdfast serve --as-user` serves the home as a user of its own; `approvals.consent = "
        '["page", "channels"]` closes the command line for answers',
    )


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON_MIN:
        return Finding("python", "problem", f"{version} is too old", "use Python 3.11 or newer")
    return Finding("python", "ok", version)


def check_confinement(home: Path, settings: "Settings") -> Iterator[Finding]:
    from holdfast.adapters.tools.shell.confinement.levels import confinement_report

    report = confinement_report(str(home), os.getcwd())  # noqa: PTH109
    about = (
        f"Landlock {report.landlock_abi or 'missing'}, bubblewrap {report.bubblewrap or 'missing'}"
    )
    required = settings.shell_confine == "require"
    if settings.shell_confine == "off":
        yield Finding(
            "confinement",
            "warning",
            "switched off: shell commands could read the keys",
            'set tools.shell.confine = "auto"',
        )
    elif not home.is_dir():
        yield Finding("confinement", "ok", f"{about}; decided once there is a home")
    elif report.level == "isolated":
        yield Finding("confinement", "ok", f"isolated ({about})")
    else:
        said = (
            "shell commands are"
            f" {'refused, since they would run ' if required else ''}{report.level}:"
            f" {report.reason} ({about})"
        )
        yield Finding("confinement", "problem" if required else "warning", said, report.remedy)
