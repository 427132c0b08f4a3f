"""
A disk that refuses: EIO and ENOSPC injected by strace at the Nth write, sync, rename or truncate.
Nothing is acknowledged that is not kept, "not saved" is said only of what is not there, and a
second sync that claims success is never believed.
"""

import base64
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.adapters.files import FileStore
from holdfast.errors import Refused
from holdfast.ids import SessionId
from holdfast.ports.journal_store import Draft, Record
from holdfast.testing.loop import in_loop

WRITER = Path(__file__).parent.parent / "crash" / "writer.py"
OPS = SessionId("ops/api")
CROWD = WRITER.with_name("crowd.py")
COUNT = 10
CROWD_COUNT = 5
FAULTS = [
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("pwrite64", "ENOSPC"),
    ("fsync", "EIO"),
    ("rename,renameat,renameat2", "EIO"),
    ("ftruncate", "EIO"),
    ("mkdir,mkdirat", "ENOSPC"),
    ("link,linkat", "EIO"),
]


def lied_to(strace: str, home: Path, injections: list[str]) -> list[str]:
    calls = ",".join(injection.split(":")[0] for injection in injections)
    command = [strace, "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    for injection in injections:
        command += ["-e", f"inject={injection}"]
    done = subprocess.run(
        [*command, sys.executable, str(WRITER), str(home), str(COUNT)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def said_of(said: list[str], what: str) -> set[int]:
    return {int(line.split()[1]) for line in said if line.startswith(f"{what} ")}


async def found_in(home: Path) -> list[int]:
    store = await FileStore.open_home(home, segment_bytes=2048)
    try:
        journal = await store.open(OPS)
        assert journal.sealed is None
        assert (await store.verify_session(OPS)).verdict == "holds"
        records: list[Record] = []
        await journal.load(records.append)
        await journal.append(lambda _: [Draft("note", 1, b'{"n":-1}')], since=journal.head)
        assert (await store.verify_session(OPS)).verdict == "holds"
        return [
            msgspec.json.decode(record.body)["n"] for record in records if record.type == "note"
        ]
    except Refused:
        return []
    finally:
        await store.close()


async def check(home: Path, said: list[str]) -> None:
    found = await found_in(home)
    assert found == sorted(set(found))
    assert said_of(said, "ack") <= set(found)
    assert not said_of(said, "not_saved") & set(found)
    assert set(found) <= said_of(said, "ack") | said_of(said, "in_doubt")


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("when", ["1", "2", "4", "7", "3+2"])
@pytest.mark.parametrize(("call", "error"), FAULTS)
@in_loop
async def test_every_acknowledged_append_is_kept_after_a_failing_call(
    tmp_path: Path, needs: Callable[[str], str], call: str, error: str, when: str
) -> None:
    """D5: once, and (3+2) again and again."""
    home = tmp_path / "home"
    await check(home, lied_to(needs("strace"), home, [f"{call}:error={error}:when={when}"]))


LIES = {
    "short": 40,  # a write that took 40 bytes, as it says; it took none
    "a slot": 192,
    "a claim": 64,
    "a cell": 512,
    "a note": 0,  # its own length: a write that says all is well
}


def bytes_of_a_note(home: Path) -> int:
    return max(
        len(line)
        for path in (home / "sessions/ops/api").glob("*.jsonl")
        for line in path.read_bytes().splitlines(keepends=True)
        if b'"n":5' in line
    )


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("when", ["1", "2", "3", "4", "5", "6", "8", "11", "14", "3+4"])
@pytest.mark.parametrize("lie", LIES)
@in_loop
async def test_a_write_that_lies_is_a_failed_one(
    tmp_path: Path, needs: Callable[[str], str], lie: str, when: str
) -> None:
    """
    D5: the bytes that are there count, not what the call returned: of segments, slots, claims,
    creations, headers and quarantine.
    """
    home = tmp_path / "home"
    took = LIES[lie]
    if not took:
        dry = tmp_path / "dry"
        assert lied_to(needs("strace"), dry, ["ftruncate:error=EIO:when=1000"])[-1] == "done"
        took = bytes_of_a_note(dry)
    await check(home, lied_to(needs("strace"), home, [f"pwrite64:retval={took}:when={when}"]))


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.needs_system("strace")
@pytest.mark.parametrize(("call", "error"), FAULTS)
@in_loop
async def test_at_every_call(
    tmp_path: Path, needs: Callable[[str], str], call: str, error: str
) -> None:
    for when in range(1, 60):
        home = tmp_path / f"home-{when}"
        await check(home, lied_to(needs("strace"), home, [f"{call}:error={error}:when={when}"]))


@pytest.mark.needs_system("strace")
@in_loop
async def test_a_sync_that_fails_once_and_then_succeeds_is_not_believed(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    """
    The pages may be clean and lost: the batch goes to quarantine, and the journal goes on in a new
    segment.
    """
    home = tmp_path / "home"
    said = lied_to(needs("strace"), home, ["fdatasync:error=EIO:when=3"])
    lost = said_of(said, "not_saved")
    assert len(lost) == 1
    assert not lost & set(await found_in(home))
    kept = sorted((home / "quarantine/ops/api").glob("*-failed_batch.json"))
    assert len(kept) == 1
    lines = base64.b64decode(msgspec.json.decode(kept[0].read_bytes())["base64"]).splitlines()
    assert {msgspec.json.decode(line)["mac"] for line in lines} == {"0" * 64}, (
        "it can not be put back in the place of what was saved"
    )
    assert len(list((home / "sessions/ops/api").glob("*.jsonl"))) > 1


@pytest.mark.needs_system("strace")
@in_loop
async def test_a_failed_undo_is_in_doubt(tmp_path: Path, needs: Callable[[str], str]) -> None:
    """Neither saved nor not saved is claimed; what is found on reopening is the truth."""
    home = tmp_path / "home"
    said = lied_to(
        needs("strace"), home, ["fdatasync:error=EIO:when=3", "ftruncate:error=EIO:when=1+"]
    )
    assert said_of(said, "in_doubt")
    await check(home, said)


@pytest.mark.needs_system("strace")
@in_loop
async def test_a_drivers_record_is_written_out_of_the_reserve(
    tmp_path: Path, needs: Callable[[str], str]
) -> None:
    """
    ENOSPC at a tool's outcome: it is not lost; the reserve is given back to the disk, and filled
    again by the same process after a later commit.
    """
    home = tmp_path / "home"
    assert lied_to(needs("strace"), home, ["ftruncate:error=EIO:when=1000"])[-1] == "done"
    assert (home / "reserve").stat().st_blocks > 0
    said = lied_to(needs("strace"), home, ["pwrite64:error=ENOSPC:when=6"])
    assert said_of(said, "ack") == set(range(COUNT))
    assert (home / "reserve").stat().st_blocks > 0


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize(
    "injection",
    [
        "fdatasync:error=EIO:when=2",
        "fdatasync:error=EIO:when=1+3",
        "fdatasync:error=ENOSPC:when=3+",
        "pwrite64:error=EIO:when=5+9",
        "fdatasync:signal=SIGKILL:when=3",
        "pwrite64:signal=SIGKILL:when=40",
    ],
)
@in_loop
async def test_each_of_many_writers_hears_of_its_own_append_alone(
    tmp_path: Path, needs: Callable[[str], str], injection: str
) -> None:
    """
    D1, D5: many sessions are written and synced at once; each hears of its own append, and of
    nobody else's.
    """
    home = tmp_path / "home"
    assert crowd([], home, 0) == ["born", "done"]
    lines = crowd(traced(needs("strace"), injection), home, CROWD_COUNT)
    said = [line.split() for line in lines if " " in line]
    assert "SIGKILL" in injection or (
        lines[-1] == "done" and any(word != "ack" for word, *_ in said)
    ), lines
    store = await FileStore.open_home(home)
    try:
        for session in await store.sessions():
            await check_one_of_crowd(
                store, session, [(word, int(number)) for word, of, number in said if of == session]
            )
    finally:
        await store.close()


def traced(strace: str, injections: str) -> list[str]:
    each = injections.split()
    calls = ",".join(injection.partition(":")[0] for injection in each)
    tracing = [strace, "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    return [*tracing, *(word for injection in each for word in ("-e", f"inject={injection}"))]


def crowd(traced: list[str], home: Path, count: int) -> list[str]:
    done = subprocess.run(
        [*traced, sys.executable, str(CROWD), str(home), str(count)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.splitlines()


async def check_one_of_crowd(
    store: FileStore, session: SessionId, said: list[tuple[str, int]]
) -> None:
    journal = await store.open(session)
    records: list[Record] = []
    await journal.load(records.append)
    found = {msgspec.json.decode(record.body)["n"] for record in records if record.type == "note"}
    assert (await store.verify_session(session)).verdict == "holds"
    assert {number for word, number in said if word == "ack"} <= found
    assert not {number for word, number in said if word == "not_saved"} & found
