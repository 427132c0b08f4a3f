"""
kill -9 at every system call that changes the disk: what was acknowledged is there, nothing accuses
anyone, and work goes on.

strace kills the process when it enters the Nth call of a kind. A bounded sweep runs always, every N
in `make test-long`.
"""

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

WRITER = Path(__file__).with_name("writer.py")
OPS = SessionId("ops/api")
COUNT = 14
CALLS = [
    "pwrite64",
    "fdatasync",
    "fsync",
    "rename,renameat,renameat2",
    "ftruncate",
    "mkdir,mkdirat",
    "link,linkat",
    "unlink,unlinkat",
    "flock",
]
BOUNDED = [1, 2, 3, 5, 8, 13]


def killed_at(strace: str, home: Path, call: str, when: int) -> list[str]:
    """The writer's output before it died, or to its end if it never got there."""
    inject = f"inject={call}:signal=SIGKILL:when={when}"
    command = [
        strace,
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={call}",
        "-e",
        inject,
        sys.executable,
        str(WRITER),
        str(home),
        str(COUNT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return done.stdout.splitlines()


async def recovered(home: Path) -> tuple[list[Record], FileStore]:
    store = await FileStore.open_home(home, segment_bytes=2048)
    try:
        journal = await store.open(OPS)
    except Refused:
        return [], store
    assert journal.sealed is None
    verdict = await store.verify_session(OPS)
    assert verdict.verdict == "holds", verdict
    records: list[Record] = []
    await journal.load(records.append)
    # Work goes on where it stopped.
    await journal.append(lambda _: [Draft("note", 1, b'{"n":-1}')], since=journal.head)
    assert (await store.verify_session(OPS)).verdict == "holds"
    return records, store


def numbers(records: list[Record]) -> list[int]:
    return [msgspec.json.decode(record.body)["n"] for record in records if record.type == "note"]


async def check(home: Path, said: list[str]) -> None:
    acknowledged = [int(line.split()[1]) for line in said if line.startswith("ack")]
    existing = await FileStore.open_existing(home)
    if existing is not None:
        await existing.close()
    records, store = await recovered(home)
    found = numbers(records)
    assert found == list(range(len(found))), "a gap-free prefix of what was accepted"
    assert set(acknowledged) <= set(found)
    assert len(found) <= len(acknowledged) + 1
    if "born" in said:
        assert OPS in await store.sessions()
    await store.close()


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("when", BOUNDED)
@pytest.mark.parametrize("call", CALLS)
@in_loop
async def test_a_killed_writer_loses_nothing_acknowledged(
    tmp_path: Path, needs: Callable[[str], str], call: str, when: int
) -> None:
    """D1, D2, L7."""
    home = tmp_path / "home"
    await check(home, killed_at(needs("strace"), home, call, when))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("call", CALLS)
@in_loop
async def test_killed_at_every_call(tmp_path: Path, needs: Callable[[str], str], call: str) -> None:
    """The same for every N until the writer gets through."""
    for when in range(1, 200):
        home = tmp_path / f"home-{when}"
        said = killed_at(needs("strace"), home, call, when)
        await check(home, said)
        if said[-1:] == ["done"]:
            return


@pytest.mark.needs_system("strace")
@pytest.mark.parametrize("call", ["pwrite64", "fsync", "rename,renameat,renameat2"])
@in_loop
async def test_killed_in_the_middle_of_a_repair(
    tmp_path: Path, needs: Callable[[str], str], call: str
) -> None:
    """
    D3: whoever repairs a torn tail may die as well; the tail is cut and said in the end, and nobody
    is accused.
    """
    home = tmp_path / "home"
    assert killed_at(needs("strace"), home, "flock", 10_000)[-1] == "done"
    segment = max((home / "sessions/ops/api").glob("*.jsonl"))
    with segment.open("ab") as file:
        file.write(b'{"seq":99,"half a li')
    for when in (1, 2, 3):
        killed_at(needs("strace"), home, call, when)
    records, store = await recovered(home)
    assert "tail_repaired" in [record.type for record in records]
    assert not any(
        b"half a li" in path.read_bytes() for path in (home / "sessions/ops/api").glob("*.jsonl")
    )
    await store.close()
