"""
`holdfast doctor`: find problems and name their fixes. It changes nothing, except with
`--accept-clock`.

Every finding is ok, a warning (it works, with limits) or a problem. This is the only command that
names adapters. It checks their foundations even if the adapters refuse to open.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from holdfast.cli.shared.options import Options, command, options_of
from holdfast.cli.shared.output import error_from_os
from holdfast.cli.shared.service import run
from holdfast.errors import HoldfastError, Refused, Unusable
from holdfast.limits import MIB

if TYPE_CHECKING:
    from holdfast.adapters.files import FileStore
    from holdfast.settings import Settings

_PYTHON_MIN = (3, 11)
_DISK_FREE_MIN = 64 * MIB  # below it the next long turn may not fit
_DISK_FREE_GOOD = 1024 * MIB
_NOT_OWNER_WRITES = 0o022
_NOT_OWNER = 0o077


class Finding(NamedTuple):
    check: str
    state: Literal["ok", "warning", "problem"]
    detail: str
    hint: str = ""


def register(app: typer.Typer) -> None:
    @command(
        app,
        "doctor",
        example="holdfast doctor\nholdfast --json doctor\nholdfast doctor --accept-clock",
    )
    def doctor(
        ctx: typer.Context,
        accept: Annotated[
            bool,
            typer.Option(
                "--accept-clock",
                help="Say that the clock is right, whatever the home's journal says. Where the "
                "journal is ahead, drops what has an end.",
            ),
        ] = False,
    ) -> None:
        """
        Say what is wrong here and how to mend it: Python, the home, its keys, the disk, settings,
        confinement, the index, memory, the sessions and the clock.

        Exits 0 when nothing is wrong (warnings included), 1 when something is.
        """
        options = options_of(ctx)
        run(lambda: _accept_clock(options) if accept else _doctor(options))


async def _accept_clock(options: Options) -> int:
    """Accept the clock. Only the home's owner may; a tool never may."""
    from holdfast.cli.commands.restore import dropped_lines
    from holdfast.cli.shared.identity import refuse_tools, who
    from holdfast.cli.shared.service import looking_service, no_home
    from holdfast.runtime.ledger.home_authority import accept_clock
    from holdfast.wiring import home_path

    refuse_tools("accepting the clock")
    home = home_path(options.home)
    me = who(home, None)
    if not me.is_owner:
        raise Refused("only the home's owner may say that the clock is right", code="no_authority")
    async with looking_service(options) as service:
        if service is None:
            raise no_home(home)
        done = await accept_clock(service.home, service.world.clock.now_ms(), by=me.person)
    if done is None:
        options.out.result({"accepted": False}, "nothing disputes the clock; nothing was changed")
        return 0
    said = f"the clock ({done.clock}) is accepted; the newest time in the home's journal was {done.journal}"
    options.out.result(
        {"accepted": True, "clock": done.clock, "journal": done.journal, "dropped": done.dropped},
        "\n".join([said, *dropped_lines(done.dropped)]),
    )
    return 0


async def _doctor(options: Options) -> int:
    from holdfast.wiring import home_path

    findings = await examine(home_path(options.home))
    problems = sum(each.state == "problem" for each in findings)
    if options.out.json:
        options.out.object({"checks": [each._asdict() for each in findings], "problems": problems})
    else:
        for each in findings:
            options.out.text(
                f"{each.state.ljust(7)}  {each.check}: {each.detail}"
                + (f"\n         {each.hint}" if each.hint else "")
            )
    return 1 if problems else 0


async def examine(home: Path) -> list[Finding]:
    settings, told = _settings(home)
    seen = [
        _python(),
        *_program(settings),
        *_home(home),
        *told,
        _consent(settings),
        *_confinement(home, settings),
    ]
    return [*seen, *_inside(home), *await _sessions(home, settings)]


def _program(settings: "Settings") -> Iterator[Finding]:
    """
    Check who may write this program. It runs next to the keys, so a workspace must not contain it.
    """
    from holdfast.adapters.tools.user_program import is_within

    workspace = settings.serve_workspace or os.getcwd()  # noqa: PTH109
    for folder in {str(Path(__file__).parents[2]), sys.prefix}:
        if is_within(folder, workspace):
            said = f"Holdfast itself lies in {folder}: tools that may write {workspace} could change what runs next to the keys"
            yield Finding(
                "program",
                "warning",
                said,
                "install it elsewhere, or give sessions another folder with --workspace",
            )
            return


def _consent(settings: "Settings") -> Finding:
    said = f"answers count from: {', '.join(settings.consent)}"
    if "script" in settings.consent:
        return Finding(
            "consent",
            "ok",
            f"{said}; every program of yours may give one",
            'approvals.consent = ["terminal", "page"] needs a person',
        )
    return Finding("consent", "ok", said)


def _inside(home: Path) -> list[Finding]:
    try:
        return [*_disk(home), *_keys(home), *_sockets(home)] if home.is_dir() else []
    except OSError as exc:
        return [
            Finding(
                "home",
                "problem",
                f"{home} can't be looked into: {exc.strerror}",
                f"it should be yours: chmod 700 {home}, as its owner",
            )
        ]


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _PYTHON_MIN:
        return Finding("python", "problem", f"{version} is too old", "use Python 3.11 or newer")
    return Finding("python", "ok", version)


def _home(home: Path) -> Iterator[Finding]:
    try:
        status = home.stat()
    except FileNotFoundError:
        yield _not_there_yet(home)
        return
    except OSError as exc:
        yield Finding(
            "home",
            "problem",
            f"{home}: {exc.strerror}",
            "name another one with --home, or mend who may enter it",
        )
        return
    if not home.is_dir():
        yield Finding(
            "home",
            "problem",
            f"{home} is no folder",
            "move it away, or name another home with --home",
        )
    elif status.st_uid != os.geteuid():
        yield Finding(
            "home",
            "problem",
            f"{home} belongs to uid {status.st_uid}, you are {os.geteuid()}",
            "run as its owner, or name another home",
        )
    elif status.st_mode & _NOT_OWNER_WRITES:
        yield Finding(
            "home",
            "problem",
            f"others may write in {home} (mode {status.st_mode & 0o777:o})",
            f"chmod 700 {home}",
        )
    elif status.st_mode & _NOT_OWNER:
        yield Finding(
            "home",
            "warning",
            f"others may look into {home} (mode {status.st_mode & 0o777:o})",
            f"chmod 700 {home}",
        )
    else:
        yield Finding("home", "ok", str(home))
    if home.is_dir() and not os.access(home, os.W_OK):
        yield Finding(
            "home", "problem", f"{home} can't be written", "is the disk mounted read-only?"
        )


def _not_there_yet(home: Path) -> Finding:
    above = next(each for each in home.parents if each.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        return Finding(
            "home",
            "problem",
            f"{home} is not there, and {above} can't be written",
            "name another home with --home or $HOLDFAST_HOME",
        )
    return Finding("home", "ok", f"{home} is not there yet; the first `holdfast send` makes it")


def _settings(home: Path) -> "tuple[Settings, list[Finding]]":
    from holdfast.cli.commands.config import problems_of
    from holdfast.settings import FILE_NAME, Settings, SettingsSource

    try:
        settings = SettingsSource(home).now()
        wrong = problems_of(settings, home)
    except Unusable as exc:
        return Settings(), [Finding("settings", "problem", exc.message, exc.hint)]
    if wrong:
        return settings, [
            Finding("settings", "problem", each, "`holdfast config show` shows what holds")
            for each in wrong
        ]
    return settings, [
        Finding("settings", "ok", "understood" if (home / FILE_NAME).exists() else "the defaults")
    ]


def _confinement(home: Path, settings: "Settings") -> Iterator[Finding]:
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
        said = f"shell commands are {'refused, since they would run ' if required else ''}{report.level}: {report.reason} ({about})"
        yield Finding("confinement", "problem" if required else "warning", said, report.remedy)


def _disk(home: Path) -> Iterator[Finding]:
    from holdfast.adapters.filesystems import UNSAFE, filesystem_magic

    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = UNSAFE.get(filesystem_magic(folder) or 0)
        room = os.fstatvfs(folder)
    finally:
        os.close(folder)
    if name is not None:
        yield Finding(
            "filesystem",
            "problem",
            f"{home} lies on a {name} filesystem, where locks and syncs don't hold",
            "use a local disk",
        )
    else:
        yield Finding("filesystem", "ok", "local")
    free = room.f_bavail * room.f_frsize
    said = f"{free // MIB} MiB free"
    if free < _DISK_FREE_MIN or (room.f_files and not room.f_favail):
        yield Finding("disk", "problem", said, "make room: a full disk stops every turn")
    else:
        yield Finding("disk", "ok" if free >= _DISK_FREE_GOOD else "warning", said)


def _keys(home: Path) -> Iterator[Finding]:
    from holdfast.adapters.files.home.keys import load_keys
    from holdfast.adapters.files.home.trusted_keys import trusted_keys

    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not (home / "keys").exists() and not (home / "home").exists():
            return  # not created yet
        found = load_keys(folder)
        counted = trusted_keys(folder, found.by_generation)
    except HoldfastError as exc:
        yield Finding("keys", "problem", exc.message, exc.hint)
        return
    except OSError as exc:
        yield Finding(
            "keys",
            "problem",
            error_from_os(exc).message,
            "put the keys back from a backup, 0600 in a 0700 folder",
        )
        return
    finally:
        os.close(folder)
    if found.trouble:
        yield Finding(
            "keys",
            "problem",
            found.trouble,
            "0600 in a 0700 folder; a lost key comes back from a backup only",
        )
    elif ignored := sorted(found.by_generation.keys() - counted.keys()):
        said = f"{ignored[0]}.key is none that the home's journal names; nothing is believed for its sake"
        yield Finding(
            "keys",
            "warning",
            said,
            "a rotation that died left it, or somebody else; it may be removed",
        )
    else:
        yield Finding("keys", "ok", f"generation {max(counted)}")


def _sockets(home: Path) -> Iterator[Finding]:
    """Find sockets of listeners that died. The next notice removes them."""
    run_folder = home / "run"
    stale = []
    with suppress(OSError):
        stale = [
            each.name
            for each in run_folder.iterdir()
            if each.suffix == ".sock" and not _lives(each.name)
        ]
    if stale:
        yield Finding(
            "sockets",
            "warning",
            f"{len(stale)} of processes that are gone",
            "harmless: the next message removes them",
        )


def _lives(name: str) -> bool:
    pid = name.partition("-")[0]
    return not pid.isdecimal() or Path(f"/proc/{pid}").exists() or not Path("/proc/self").exists()


async def _sessions(home: Path, settings: "Settings") -> list[Finding]:
    from holdfast.wiring import existing_store

    try:
        store = await existing_store(home, settings)
    except HoldfastError as exc:
        return [Finding("store", "problem", exc.message, exc.hint)]
    except OSError as exc:
        return [
            Finding("store", "problem", error_from_os(exc).message, "`holdfast verify` says more")
        ]
    if store is None:
        return []
    try:
        return [
            *await _home_journal(store),
            *await _clock(store),
            *await _sealed(store),
            *await _index(home, store),
            *_memory(home, store),
        ]
    except (HoldfastError, OSError) as exc:
        return [Finding("store", "problem", str(exc), "`holdfast verify` says more")]
    finally:
        await store.close()


async def _home_journal(store: "FileStore") -> list[Finding]:
    from holdfast.ids import SessionId

    verdict = await store.verify_session(SessionId("_home"))
    if verdict.verdict in {"holds", "torn_tail"} and not verdict.sealed:
        return [Finding("home journal", "ok", f"{verdict.records} records")]
    return [
        Finding(
            "home journal",
            "problem",
            f"{verdict.verdict}: {verdict.detail}",
            "restore the home from a backup; reading and export still work",
        )
    ]


async def _clock(store: "FileStore") -> list[Finding]:
    from holdfast.runtime.ledger.home_ledger import HomeLedger
    from holdfast.runtime.reports.types import iso
    from holdfast.session.authority.expiry import Moment

    home = HomeLedger(store)
    try:
        moment = Moment(store.now_ms(), (await home.refresh()).time)
    except HoldfastError:
        return []  # the finding about the home's journal or its keys gives the reason
    finally:
        await home.close()
    way_out = "set the clock; or, if it is right, `holdfast doctor --accept-clock`"
    said = f"the clock says {iso(moment.clock)}, the newest time in the home's journal is {iso(moment.journal)}"
    if moment.is_disputed:
        return [
            Finding(
                "clock",
                "problem",
                f"{said}: the journal is ahead, and until that is settled nothing with an end "
                "counts",
                way_out,
            )
        ]
    if moment.is_ahead:
        return [
            Finding(
                "clock",
                "problem",
                f"{said}: the clock is more than a year ahead, and nothing is written by it",
                way_out,
            )
        ]
    return [Finding("clock", "ok", said)]


async def _sealed(store: "FileStore") -> list[Finding]:
    sessions = await store.sessions()
    found = []
    for session in sessions:
        instance = await store.current(session)
        mark = store.seal_mark(session, instance) if instance is not None else None
        if mark is not None:
            hint = f"`holdfast verify {session}` says where; `holdfast sessions unseal {session} --reason R` goes on from what verifies"
            found.append(
                Finding(
                    "sessions", "problem", f"{session} is sealed ({mark.code}: {mark.detail})", hint
                )
            )
        elif (trouble := await store.trouble_with(session)) is not None:
            found.append(
                Finding(
                    "sessions",
                    "problem",
                    f"{session}: {trouble}",
                    f"look who changed it; `holdfast verify {session}` says more",
                )
            )
    return found or [
        Finding(
            "sessions", "ok", f"{len(sessions)}, none sealed; `holdfast verify` walks every record"
        )
    ]


async def _index(home: Path, store: "FileStore") -> list[Finding]:
    from holdfast.adapters.sqlite.index import SqliteIndex

    path = home / "index.db"
    if not path.exists():
        return [Finding("index", "ok", "not made yet; the next list makes it")]
    index = SqliteIndex(path, store.index_keys)
    try:
        behind = index.stale(await store.heads())
        owing = sum(row.owes for row in index.rows())
    finally:
        index.close()
    findings = [
        Finding(
            "index", "ok", f"{len(behind)} sessions to catch up with" if behind else "up to date"
        )
    ]
    if owing:
        findings.append(
            Finding(
                "owed",
                "warning",
                f"{owing} sessions have work to go on with",
                "`holdfast resume` does it",
            )
        )
    return findings


def _memory(home: Path, store: "FileStore") -> list[Finding]:
    from holdfast.adapters.sqlite.memory import NAME, SqliteMemory
    from holdfast.ports.memory import CannotRecall

    path = home / NAME
    if not path.exists():
        return [Finding("memory", "ok", "nothing was remembered yet")]
    memory = SqliteMemory(path, store.memory_key)
    try:
        rows = memory.rows()
    except CannotRecall as exc:
        return [
            Finding(
                "memory",
                "problem",
                str(exc),
                "restore the home from a backup; turns go on without their memory meanwhile",
            )
        ]
    finally:
        memory.close()
    foreign = [row.id for row in rows if row.item is None]
    if foreign:
        hint = "`holdfast memory list` names them, `holdfast memory forget ID` removes them; look who wrote them"
        return [
            Finding(
                "memory",
                "problem",
                f"{len(foreign)} of {len(rows)} rows do not verify, and are never recalled",
                hint,
            )
        ]
    return [Finding("memory", "ok", f"{len(rows)} remembered")]
