"""
Paths and filesystems: what is not a plain file of ours, on a disk that keeps its word, is refused
and not touched.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.files.conftest import Files

from holdfast.adapters.files import FileStore, paths
from holdfast.adapters.filesystems import UNSAFE, filesystem_magic
from holdfast.errors import CutShort, HoldfastError, Refused, Unusable
from holdfast.ids import InstanceId, SessionId
from holdfast.testing.loop import in_loop

OPS = SessionId("ops/api")


def as_symlink(path: Path) -> None:
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))


def as_hardlink(path: Path) -> None:
    os.link(path, path.parent.parent / "second-name")


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_writable_by_others(path: Path) -> None:
    path.chmod(0o666)


def as_somebody_elses(path: Path) -> None:
    os.chown(path, 65534, 65534)


WAYS = [as_symlink, as_hardlink, as_fifo, as_folder, as_writable_by_others]


@pytest.mark.parametrize(
    "way",
    [
        *WAYS,
        pytest.param(
            as_somebody_elses, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
        ),
    ],
)
@in_loop
async def test_a_segment_that_is_not_a_plain_file_of_ours_is_refused(
    files: Any, way: Callable[[Path], None]
) -> None:
    """Both at open and for a handle that was open before; no seal: mend the path and go on."""
    await files.create()
    async with files.store() as store:
        journal = await store.open(OPS)
        way(files.segments[0])
        with pytest.raises(Refused) as caught:
            await journal.append(files.says(1), since=journal.head)
        assert caught.value.code == "unsafe_path"
        assert (await store.verify_session(OPS)).verdict == "unreadable"
        with pytest.raises(Refused):
            await store.open(OPS)
        assert not (await store.verify_session(OPS)).sealed


@in_loop
async def test_a_symlink_to_nowhere_in_the_place_of_the_next_segment_is_refused(files: Any) -> None:
    """By whoever writes and by whoever opens, as by `verify`."""
    await files.create()
    async with files.store() as store:
        journal = await store.open(OPS)
        (files.folder / "i1.00000002.jsonl").symlink_to("nowhere")
        with pytest.raises(Refused) as caught:
            await journal.append(files.says(1), since=journal.head)
        assert caught.value.code == "unsafe_path"
        with pytest.raises(Refused):
            await store.open(OPS)
        assert (await store.verify_session(OPS)).verdict == "unreadable"


@in_loop
async def test_a_reserve_that_has_another_name_is_neither_filled_nor_emptied(files: Any) -> None:
    """
    A file of ours that somebody linked into the home would be cut to nothing when the disk is full.
    """
    await files.create(1)
    elsewhere = files.path.parent / "elsewhere"
    elsewhere.write_bytes(b"of somebody")
    (files.path / "reserve").unlink()
    os.link(elsewhere, files.path / "reserve")
    async with files.store() as store:
        assert elsewhere.read_bytes() == b"of somebody"
        assert not store._files.reserve.free()
    assert elsewhere.read_bytes() == b"of somebody"


@in_loop
async def test_an_output_that_was_changed_is_kept_anew_when_it_comes_again(files: Any) -> None:
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        digest = await journal.keep_output(b"long and dear")
        (files.folder / "outputs" / digest).write_bytes(b"of somebody")
        assert await journal.keep_output(b"long and dear") == digest
        assert await journal.output(digest) == b"long and dear"


@in_loop
async def test_a_claim_that_the_system_refuses_leaves_nothing_open(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A table of locks that is full, as often as one tries, is not a table of descriptors that is full in
    the end.
    """
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)

        def no_locks(_fd: int, _operation: int) -> None:
            raise OSError(errno.ENOLCK, "no locks available")

        with monkeypatch.context() as patched:
            patched.setattr("holdfast.adapters.files.session.claim.fcntl.flock", no_locks)
            before = files.open_descriptors()
            for _ in range(5):
                with pytest.raises(HoldfastError):
                    await journal.claim()
            assert files.open_descriptors() == before
        claim = await journal.claim()
        assert claim is not None
        await claim.release()


@pytest.mark.parametrize("way", [as_symlink, as_hardlink, as_folder, as_fifo])
@in_loop
async def test_only_plain_files_of_the_owner_are_exported(
    files: Any, way: Callable[[Path], None]
) -> None:
    """An export follows no symlink out of the home, and waits for no FIFO."""
    await files.create()
    async with files.store() as store:
        journal = await store.open(OPS)
        assert b"".join([line async for line in journal.lines()]) == files.segments[0].read_bytes()
        way(files.segments[0])
        with pytest.raises(Refused) as caught:
            [line async for line in journal.lines()]
        assert caught.value.code == "unsafe_path"


@in_loop
async def test_a_file_without_end_is_read_no_further_than_a_segment_reaches(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither into memory for an export nor onto the disk for a backup."""
    await files.create()
    whole = files.segments[0].read_bytes()
    with files.segments[0].open("ab") as segment:
        segment.truncate(2**26)
        segment.seek(2**26)
        segment.write(b"x\n")
    async with files.store() as store:
        journal = await store.open(OPS)
        assert journal.sealed is not None
        assert b"".join([line async for line in journal.lines()]) == whole
        monkeypatch.setattr("holdfast.adapters.files.home.backup._FILE_BYTES_MAX", 2**20)
        with pytest.raises(Refused) as caught:
            await store.backup(files.path.parent / "copy")
        assert caught.value.code == "unsafe_path"


@pytest.mark.parametrize("table", ["_home", "0000.anchors"])
@pytest.mark.parametrize("way", WAYS)
@in_loop
async def test_an_anchor_that_is_not_a_plain_file_of_ours_is_refused(
    files: Any, way: Callable[[Path], None], table: str
) -> None:
    """
    An anchor that others may write says nothing: whoever holds a second name of it could take
    history back unseen.
    """
    await files.create(1)
    way(files.path / "anchors" / table)
    with pytest.raises(Refused) as caught:
        async with files.store() as store:
            await store.open(OPS)
    assert caught.value.code == "unsafe_path"


@pytest.mark.parametrize("gone", ["home/home.00000001.jsonl", "home"])
@in_loop
async def test_a_home_whose_journal_is_gone_is_cut_short(files: Any, gone: str) -> None:
    """Its anchor remembers more: that is not a failing disk, and no creation to be finished."""
    await files.create(1)
    (files.path / gone).rename(files.path.parent / "away")
    async with files.store() as store:
        with pytest.raises(CutShort):
            await store.create(
                SessionId("ops/new"), InstanceId("i2"), [], origin="created", by="tests"
            )
        assert (await store.verify_session(SessionId("_home"))).verdict == "cut_short"


@pytest.mark.parametrize(
    "part", ["sessions", "sessions/ops", "sessions/ops/api", "keys", "anchors", "home"]
)
@in_loop
async def test_no_folder_of_a_home_may_be_a_symlink(files: Any, tmp_path: Path, part: str) -> None:
    await files.create()
    away = tmp_path / "away"
    (files.path / part).rename(away)
    (files.path / part).symlink_to(away)

    async def write() -> None:
        async with files.store() as store:
            journal = await store.open(OPS)
            await journal.append(files.says(1), since=journal.head)

    with pytest.raises(HoldfastError):
        await write()


@pytest.mark.parametrize("is_there", [False, True])
@in_loop
async def test_a_home_that_everybody_could_move_away_is_refused(
    tmp_path: Path, is_there: bool
) -> None:
    """Another user would put an earlier home of ours back in its place. `/tmp` itself is sticky."""
    shared = tmp_path / "shared"
    home = Files(shared / "of alice" / "home")
    shared.mkdir(mode=0o700)
    if is_there:
        await home.create(1)
    shared.chmod(0o777)
    with pytest.raises(Refused, match="everybody"):
        await home.create(1)
    assert home.path.exists() is is_there
    async with Files(tmp_path / "other").store() as store:
        with pytest.raises(Refused, match="everybody"):
            await store.backup(shared / "copy")
    assert not (shared / "copy").exists()
    shared.chmod(0o1777)
    async with home.store() as store:
        assert len(await store.sessions()) == is_there


@in_loop
async def test_the_home_itself_may_be_reached_by_a_symlink(files: Any, tmp_path: Path) -> None:
    """Case 31: the same folder by another spelling is the same home, and the same lock."""
    await files.create(1)
    (tmp_path / "by-link").symlink_to(files.path)
    store = await FileStore.open_home(tmp_path / "by-link")
    async with files.store() as other:
        one, two = await store.open(OPS), await other.open(OPS)
        assert one.queue.files.acquire() is two.queue.files._open_lock()
        one.queue.files._lock.release()
    await store.close()


@pytest.mark.parametrize("magic", sorted(UNSAFE))
@in_loop
async def test_a_network_filesystem_is_refused_by_name(files: Any, magic: int) -> None:
    with pytest.raises(Unusable, match=UNSAFE[magic]) as caught:
        await FileStore.open_home(files.path, magic_of=lambda _: magic)
    assert "allow_network_filesystem" in caught.value.hint
    assert not (files.path / "home").exists()
    store = await FileStore.open_home(
        files.path, magic_of=lambda _: magic, allow_network_filesystem=True
    )
    await store.close()


def test_the_filesystem_here_has_a_magic_number(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert filesystem_magic(fd)
    finally:
        os.close(fd)


def in_child_as_nobody(work: Callable[[], Any]) -> int:
    """
    The exit status of `work` in a child without privileges: 0 done, 7 refused by us, 1 anything
    else.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            work()
            code = 0
        except HoldfastError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_user_gets_in_nowhere(files: Any, tmp_path: Path) -> None:
    """
    An unprivileged user on somebody's home, and root on an unprivileged user's: refused by name,
    nothing changed.
    """
    asyncio.run(files.create())
    for folder in [tmp_path, *tmp_path.parents[:2]]:
        folder.chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in files.path.rglob("*")}
    assert in_child_as_nobody(lambda: asyncio.run(files.create())) == 7
    assert {path: path.stat().st_mtime_ns for path in files.path.rglob("*")} == before
    os.chown(files.path, 65534, 65534)
    with pytest.raises(Refused):
        asyncio.run(files.create())


@in_loop
async def test_a_forked_child_is_refused(files: Any) -> None:
    """The child has the parent's memory and descriptors, and no right to either."""
    async with files.store() as store:
        from holdfast.ids import InstanceId

        journal = await store.create(OPS, InstanceId("i1"), [], origin="created", by="tests")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                journal.append_now(files.says(666), since=journal.head)
            except Refused as exc:
                code = 0 if exc.code == "forked" else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1]) == 0
        await journal.append(files.says(1), since=journal.head)
        assert await files.numbers(journal) == [1]


@in_loop
async def test_a_full_table_of_descriptors_is_busy_and_passes(files: Any) -> None:
    """Nothing is lost or accused when the process has no descriptor left."""
    await files.create(1)
    async with files.store() as store:
        journal = await store.open(OPS)
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            with pytest.raises(HoldfastError):
                await journal.append(files.says(1), since=journal.head)
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await journal.append(files.says(1), since=journal.head)
        assert await files.numbers(journal) == [0, 1]


@pytest.mark.parametrize("then", ["it would go on", "the disk is full"])
def test_a_short_write_is_never_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """
    D5: a failed batch, whatever the second half would do; and a full disk is said to be full, since
    the reserve is for that.
    """
    real, calls = os.pwrite, []

    def short(fd: int, data: bytes, offset: int) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, data[:40], offset)
        if then == "the disk is full":
            raise OSError(errno.ENOSPC, "no space left")
        return real(fd, data, offset)

    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    monkeypatch.setattr(os, "pwrite", short)
    try:
        with pytest.raises(
            OSError, match="took 40" if then == "it would go on" else "no space"
        ) as caught:
            paths.write_all(fd, b"x" * 100, 0)
    finally:
        os.close(fd)
    assert caught.value.errno == (errno.EIO if then == "it would go on" else errno.ENOSPC)
    assert calls == [100, 60]
