"""New instances: unseal, fork, export, over every store; backup and restore on files."""

import asyncio
import gc
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.files import FileStore
from holdfast.adapters.files.home import backup
from holdfast.assembly.restore import restore_home
from holdfast.assembly.service import open_service
from holdfast.errors import HoldfastError, Refused, Untrusted
from holdfast.home import Home
from holdfast.ids import InstanceId, SessionId
from holdfast.ports.journal_store import Draft, Record, SealMark
from holdfast.runtime.lifecycle.export import export_lines, export_markdown
from holdfast.runtime.lifecycle.fork import fork
from holdfast.runtime.lifecycle.unseal import begun_past_damage, unseal
from holdfast.runtime.verbs.accept import Incoming
from holdfast.session.codec import encode
from holdfast.session.events import (
    ApprovalClosed,
    CallFinished,
    Compacted,
    InputDropped,
    LifeCarried,
    SessionBorn,
    TurnEnded,
)
from holdfast.session.home.events import SessionCreated
from holdfast.testing.loop import in_loop
from tests.acceptance.runtime.conftest import Stage, alice, bob, seen
from tests.acceptance.runtime.test_compaction import Thinker, small, thinking
from tests.acceptance.runtime.test_pause_and_answer import act

DOCS = Path(__file__).parents[3] / "docs"


def break_it(folder: Path, old: bytes, new: bytes) -> None:
    """An outside edit of the same length, in whatever segment has it."""
    for path in sorted(folder.rglob("*.jsonl")):
        data = path.read_bytes()
        if old in data:
            path.write_bytes(data.replace(old, new, 1))
            return
    raise AssertionError(f"{old!r} is nowhere")


@pytest.fixture
def files(tmp_path: Path) -> Stage:
    return Stage("files", tmp_path / "home")


@in_loop
async def test_a_sealed_session_goes_on_with_its_reply_attached_and_the_old_bytes_kept(
    files: Stage,
) -> None:
    """Case 22: the takeover is found when the model has answered."""
    folder = files.folder / "sessions" / "ops" / "a"

    class Meddled(Thinker):
        async def call(self, request: Any, *, on_text: Any) -> Any:
            answer = await super().call(request, on_text=on_text)
            if "second" in request.messages[-1].text:
                break_it(folder, b"first", b"FIRST")
            return answer

    model = Meddled()
    async with files.open(thinking(files, model)) as home:
        await home.send("ops/a", "zero", source=alice, dedup="k0")
        await home.send("ops/a", "first", source=alice, dedup="k1")
        with pytest.raises(Untrusted):
            await home.send("ops/a", "second", source=alice)
    before = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    async with files.open(thinking(files, model)) as home:
        with pytest.raises((Untrusted, Refused)):
            await home.send("ops/a", "third", source=alice)
        report = await unseal(
            home.service.runtime, "ops/a", by="alice", reason="an editor saved over it"
        )
        assert (report.sealed, report.owes, report.phase) == (None, (), "idle")
        again = await home.send("ops/a", "go on", source=alice)
        assert again.outcome == "completed"
        seen = "\n".join(message.text for message in model.requests[-1].messages)
        assert "zero" in seen
        assert "Done." in seen
        known = await home.send("ops/a", "zero", source=alice, dedup="k0")
        assert (known.turn, known.outcome) == ("t1", "completed")
        with pytest.raises(Refused) as refused:
            await unseal(home.service.runtime, "ops/a", by="alice", reason="again")
        assert refused.value.code == "not_sealed"
    assert all(path.read_bytes() == data for path, data in before.items())
    events = await files.events("ops/a")
    assert isinstance(events[0], SessionBorn)
    assert (events[0].origin, events[0].by) == ("unseal", "alice")
    [carried] = [event for event in events if isinstance(event, LifeCarried)]
    assert (carried.by, carried.reason) == ("alice", "unsealed by alice: an editor saved over it")
    assert any("Done." in each for each in carried.attached)


@in_loop
async def test_unseal_reports_a_call_that_began_after_the_damage_as_in_doubt(
    files: Stage, tmp_path: Path
) -> None:
    """
    T2, as far as it can be said: its record is genuine, though it can't be folded. One that ended
    is not told; the model sees it, and whoever decides.
    """
    lines = [
        {
            "call": [
                {"tool": "look", "args": {"at": "x"}},
                {"tool": "slow", "args": {"what": "deploy"}},
            ]
        },
        {"say": "done"},
    ]
    async with files.open(files.agent(lines)) as home:
        sending = asyncio.ensure_future(home.send("ops/a", "the request", source=alice))
        await files.effects.begun("deploy").wait()
        await seen(home, "ops/a", CallFinished)
        shutil.copytree(
            files.folder, tmp_path / "cut off", ignore=shutil.ignore_patterns("run")
        )  # what a kill -9 would leave now
        files.effects.gates["deploy"].set()
        assert (await sending).outcome == "completed"
    left = Stage("files", tmp_path / "cut off")
    break_it(left.folder / "sessions", b"the request", b"THE REQUEST")
    async with left.open(left.agent([{"say": "going on"}])) as home:
        with pytest.raises((Untrusted, Refused)):
            await home.send("ops/a", "x", source=alice)
        (told,) = await begun_past_damage(home.service.runtime, "ops/a")
        assert 'slow {"what":"deploy"} had begun' in told
        await unseal(home.service.runtime, "ops/a", by="alice", reason="r")
    [carried] = [event for event in await left.events("ops/a") if isinstance(event, LifeCarried)]
    assert carried.attached == (told,)


@in_loop
async def test_a_session_is_unsealed_however_much_it_left_in_quarantine(stage: Stage) -> None:
    """
    The attachment is one record: two long replies were more than one can hold, and nobody could
    go on.
    """
    async with stage.open(stage.agent([{"say": "going on"}])) as home:
        await home.service.create("ops/a", by="alice")
        journal = await home.service.runtime.world.store.open(SessionId("ops/a"))
        for number in range(12):
            await journal.quarantine(
                "reply", json.dumps({"text": f"reply {number}: " + "\x00" * 100_000}).encode()
            )
        await journal.seal(SealMark("broken", "for the test", 1))
        await journal.close()
        await unseal(home.service.runtime, "ops/a", by="alice", reason="r")
        assert (await home.send("ops/a", "hello", source=alice)).reply == "going on"
    [carried] = [event for event in await stage.events("ops/a") if isinstance(event, LifeCarried)]
    *told, more = carried.attached
    assert [each[:16] for each in told] == [
        f"a reply: reply {number}"[:16] for number in range(len(told))
    ]
    assert (len(told) > 0, more) == (
        True,
        f"{12 - len(told)} more; `holdfast sessions show` says where they are kept",
    )


@in_loop
async def test_unseal_carries_nothing_owed_over(files: Stage) -> None:
    folder = files.folder / "sessions" / "ops" / "a"
    async with files.open(files.agent(act("it"))) as home:
        parked = await home.send("ops/a", "do it", source=alice)
        await home.service.send("ops/a", Incoming(text="and then", source=bob), wait=False)
        session = await home.send("ops/b", "do it", source=alice)
        await home.answer(session.approvals[0], "approve_session", by=alice)
    break_it(folder, b'"and then"', b'"AND THEN"')
    async with files.open(files.agent(act("it"))) as home:
        with pytest.raises((Untrusted, Refused)):
            await home.send("ops/a", "x", source=alice)
        await unseal(home.service.runtime, "ops/a", by="alice", reason="r")
        assert await home.approvals() == ()
        with pytest.raises(Refused) as refused:
            await home.service.answer(parked.approvals[0].id, "approve_once", by="alice")
        assert refused.value.code in ("voided", "unknown")
        assert (await home.service.resume("ops/a", by="alice")).outcome in (
            "completed",
            "cancelled",
        )
    assert files.effects.done == ["it"]
    events = await files.events("ops/a")
    assert [event.closed_as for event in events if isinstance(event, ApprovalClosed)] == ["voided"]
    assert [event.outcome for event in events if isinstance(event, CallFinished)] == ["voided"]
    assert [event.code for event in events if isinstance(event, TurnEnded)] == ["carried_over"]


@in_loop
async def test_a_second_unseal_after_a_summary_of_the_first_ones_note_still_works(
    files: Stage,
) -> None:
    """The attachment of an unseal is an entry of the view: summaries count it."""
    folder = files.folder / "sessions" / "ops" / "a"
    model = Thinker()
    async with files.open(thinking(files, model)) as home:
        for number in range(3):
            await home.send("ops/a", f"request {number} " + "word " * 300, source=alice)
    break_it(folder, b"request 2", b"REQUEST 2")
    async with files.open(thinking(files, model)) as home:
        small(home, at_tokens=100_000, keep_turns=0)
        with pytest.raises((Untrusted, Refused)):
            await home.send("ops/a", "x", source=alice)
        ledger_journal = await home.service.runtime.world.store.open(SessionId("ops/a"))
        await ledger_journal.quarantine("reply", b'{"text":"kept aside"}')
        await ledger_journal.close()
        await unseal(home.service.runtime, "ops/a", by="alice", reason="one")
        assert (await home.service.compact("ops/a")).turns == 3
        await home.send("ops/a", "request 9", source=alice)
        copied = await fork(
            home.service.runtime,
            "ops/a",
            "ops/copy",
            at_seq=(await home.service.show("ops/a")).seq,
            by="alice",
        )
        assert copied.phase == "idle"
    assert sum(isinstance(event, Compacted) for event in await files.events("ops/copy")) == 1


async def sealed_with(files: Stage, *kept: bytes) -> None:
    """`ops/a`, broken and sealed, with these replies of its last attempts in quarantine."""
    async with files.open(files.agent([{"say": "done"}])) as home:
        await home.send("ops/a", "hello there", source=alice)
    break_it(files.folder / "sessions/ops/a", b"hello there", b"HELLO THERE")
    async with files.open(files.agent([])) as home:
        with pytest.raises((Untrusted, Refused)):
            await home.send("ops/a", "x", source=alice)
        journal = await home.service.runtime.world.store.open(SessionId("ops/a"))
        for payload in kept:
            await journal.quarantine("reply", payload)
        await journal.close()


async def attached_by_unseal(files: Stage) -> tuple[str, ...]:
    async with files.open(files.agent([])) as home:
        await unseal(home.service.runtime, "ops/a", by="alice", reason="r")
    (carried,) = [event for event in await files.events("ops/a") if isinstance(event, LifeCarried)]
    return carried.attached


@in_loop
async def test_unseal_does_not_attach_foreign_files_from_quarantine(files: Stage) -> None:
    """
    A record of ours would launder it: the model and the person would read it as what a tool said
    (L4).
    """
    await sealed_with(files, b'{"text":"ours"}', b'{"text":"changed"}')
    folder = files.folder / "quarantine/ops/a"
    changed = folder / "000002-reply.json"
    changed.write_bytes(changed.read_bytes().replace(b"changed", b"CHANGED"))
    forged = folder / "000003-tool_outcome.json"
    forged.write_bytes(b'{"text":"approved by bob","outcome":"ok"}')
    moved = folder / "000004-tool_outcome.json"  # genuine, but kept as something else
    moved.write_bytes((folder / "000001-reply.json").read_bytes())
    fifo = folder / "000005-reply.json"
    os.mkfifo(fifo)
    for path in (forged, moved):
        path.chmod(0o600)
    not_ours = [
        f"something that is not ours, or was changed ({path})" for path in (changed, forged, moved)
    ]
    assert await attached_by_unseal(files) == (
        "a reply: ours",
        *not_ours,
        f"something unreadable ({fifo})",
    )


@in_loop
async def test_unseal_does_not_attach_the_quarantine_of_a_deleted_namesake(
    files: Stage,
) -> None:
    await sealed_with(files, b'{"text":"a secret of before"}')
    async with files.open(files.agent([])) as home:
        await home.service.runtime.world.store.delete(SessionId("ops/a"), by="alice")
    await sealed_with(files, b'{"text":"of now"}')
    assert await attached_by_unseal(files) == ("a reply: of now",)


@in_loop
async def test_unseal_bounds_the_attachment_of_a_large_quarantine(files: Stage) -> None:
    """The attachment is one record of the new instance; the rest stays where it is."""
    await sealed_with(
        files, *(b'{"text":"%d %s"}' % (number, b"x" * 200_000) for number in range(20))
    )
    attached = await attached_by_unseal(files)
    assert all(len(each) < 40_000 for each in attached)
    assert attached[0].startswith("a reply: 0 xxx")
    assert (
        attached[-1]
        == f"{20 - len(attached) + 1} more; `holdfast sessions show` says where they are kept"
    )


@in_loop
async def test_a_fork_begins_an_instance_at_the_end_of_a_turn_without_grants(stage: Stage) -> None:
    lines = [*act("it")[:1], {"say": "done"}, *act("it")[:1], {"say": "again"}]
    async with stage.open(stage.agent(lines)) as home:
        parked = await home.send("ops/a", "do it", source=alice)
        await home.answer(parked.approvals[0], "approve_session", by=alice)
        end = (await home.service.show("ops/a")).seq
        for nowhere in (
            end + 1,
            0,
            -1,
            # a copy up to a record that is not there would be a copy of something else than was
            # meant
        ):
            with pytest.raises(Refused) as refused:
                await fork(home.service.runtime, "ops/a", "ops/b", at_seq=nowhere, by="bob")
            assert refused.value.code == "unknown_record"
        report = await fork(home.service.runtime, "ops/a", "ops/b", at_seq=end, by="bob")
        assert (report.session, report.phase, report.owes) == ("ops/b", "idle", ())
        asked = await home.send("ops/b", "do it again", source=alice)
        assert asked.outcome == "waiting"
        with pytest.raises(Refused):
            await fork(home.service.runtime, "ops/a", "ops/b", at_seq=end, by="bob")
    created = (await stage.events("ops/b"))[0]
    assert (created.origin, created.by, created.from_session) == ("fork", "bob", "ops/a")
    assert stage.effects.done == ["it"]


@in_loop
async def test_an_export_is_verified_by_the_documented_format_and_the_key_alone(
    files: Stage, tmp_path: Path
) -> None:
    """The verifier is taken out of docs/reference/journal-format.md and knows nothing of Holdfast."""
    async with files.open(files.agent([{"say": "hello"}, {"say": "bye"}])) as home:
        await home.send("ops/a", "hi", source=alice)
        await home.send("ops/a", "and", source=alice)
        lines = [line async for line in export_lines(home.service.runtime, "ops/a")]
    exported = tmp_path / "export.jsonl"
    exported.write_bytes(b"".join(lines))
    code = re.search(
        r"# runnable: verifier\n(.*?)```",
        (DOCS / "reference/journal-format.md").read_text(),
        re.DOTALL,
    )
    assert code is not None
    program = tmp_path / "verifier.py"
    program.write_text(code.group(1))

    def verified() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-I", str(program), str(files.folder), str(exported)],
            capture_output=True,
            text=True,
            check=False,
        )

    found = await asyncio.to_thread(verified)
    assert (found.returncode, found.stdout) == (0, f"{len(lines)} records hold\n")
    exported.write_bytes(b"".join(lines).replace(b'"hi"', b'"HI"'))
    assert (await asyncio.to_thread(verified)).returncode != 0


@in_loop
async def test_markdown_tells_people_who_asked_what_ran_and_who_approved_it(stage: Stage) -> None:
    async with stage.open(stage.agent(act("`it`"))) as home:
        parked = await home.send("ops/a", "do *it*", source=alice)
        await home.answer(parked.approvals[0], "approve_once", by=alice)
        text = await export_markdown(home.service.runtime, "ops/a")
    assert text.startswith("# ops/a\n")
    assert "**alice**\n\n> do *it*" in text
    assert "- **alice** answered `approve_once`" in text
    assert "- `act` started at" in text


@in_loop
async def test_markdown_tells_what_a_loop_of_ones_own_called_and_replied(stage: Stage) -> None:
    async with stage.open(stage.agent([])) as home:
        async with home.turn("ops/a", "how is it?", source=alice) as turn:
            gate = await turn.start(await turn.gate("look", {"at": "api"}, text="I will look."))
            await turn.record(gate, "ok", "it is well")
            await turn.finish("All is well.")
        text = await export_markdown(home.service.runtime, "ops/a")
    told = [
        "**alice**\n\n> how is it?",
        "I will look.",
        "- calls `look`",
        "it is well",
        "All is well.",
    ]
    assert [each for each in told if text.count(each) != 1] == []
    assert sorted(told, key=text.index) == told


# --- backup and restore


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("backup.json", "unsafe_path"),
        ("keys/1.key", "unsafe_path"),
        ("holdfast.toml", "settings"),
    ],
)
@in_loop
async def test_restore_refuses_a_fifo_in_a_backup_without_waiting(
    files: Stage, tmp_path: Path, name: str, code: str
) -> None:
    copy = tmp_path / "copy"
    async with files.open(files.agent([{"say": "hello"}])) as home:
        await home.send("ops/a", "hi", source=alice)
        await home.service.runtime.world.store.backup(copy)
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    with pytest.raises(HoldfastError) as refused:
        await restore_home(copy, tmp_path / "restored", by="alice")
    assert refused.value.code == code
    assert not (tmp_path / "restored").exists()


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@in_loop
async def test_a_backup_of_a_running_home_restores_with_nothing_owed(
    files: Stage, tmp_path: Path
) -> None:
    copy, place = tmp_path / "copy", tmp_path / "restored"
    async with files.open(files.agent(act("it"))) as home:
        parked = await home.send("ops/a", "do it", source=alice, dedup="k")
        await home.service.send("ops/a", Incoming(text="and then", source=bob), wait=False)
        store = home.service.runtime.world.store

        async def busy() -> None:
            for number in range(20):
                await home.service.send(
                    "ops/b",
                    Incoming(text=f"message {number}", source=alice),
                    wait=False,
                )

        writing = asyncio.ensure_future(busy())
        sessions = await store.backup(copy)
        await writing
        assert "ops/a" in sessions
        with pytest.raises(Refused) as refused:
            await store.backup(copy)
        assert refused.value.code == "exists"
    assert stat.S_IMODE((copy / "keys" / "1.key").stat().st_mode) == 0o600
    assert not (copy / "index.db").exists()
    whole = tree(copy)
    restored = await restore_home(copy, place, by="alice")
    assert "ops/a" in restored.sessions
    assert tree(copy) == whole
    assert stat.S_IMODE((place / "keys").stat().st_mode) == 0o700
    with pytest.raises(Refused):
        await restore_home(copy, place, by="alice")
    later = Stage("files", place)
    later.effects = files.effects
    async with later.open(later.agent([{"say": "fresh"}])) as home:
        assert await home.approvals() == ()
        assert await home.service.owing() == []
        report = await home.service.show("ops/a")
        assert (report.phase, report.owes, report.queued) == ("idle", (), 0)
        with pytest.raises(Refused):
            await home.service.answer(parked.approvals[0].id, "approve_once", by="alice")
        known = await home.send("ops/a", "do it", source=alice, dedup="k")
        assert known.outcome == "cancelled"
    assert files.effects.done == []
    events = await later.events("ops/a")
    assert isinstance(events[0], SessionBorn)
    assert events[0].origin == "restore"
    [carried] = [event for event in events if isinstance(event, LifeCarried)]
    assert carried.not_run == ("i2",)
    assert [event.input for event in events if isinstance(event, InputDropped)] == ["i2"]
    store = await FileStore.open_existing(place)
    assert store is not None
    assert {(await store.verify_session(each)).verdict for each in await store.sessions()} == {
        "holds"
    }
    await store.close()


@in_loop
async def test_a_backup_has_every_key_that_something_in_it_is_sealed_with(
    files: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Keys that were copied before a rotation, and a home's journal after it: every journal held, and
    nobody could restore it.
    """
    copy, place = tmp_path / "copy", tmp_path / "restored"
    async with files.open(files.agent([{"say": "hello"}])) as home:
        await home.send("ops/a", "hi", source=alice)
        store: Any = home.service.runtime.world.store
        copies_home_journal = store.copy_home_journal

        def rotated_first(work: Callable[[], None]) -> list[SessionCreated]:
            store._directory.rotate_keys(by="alice")
            return copies_home_journal(work)

        monkeypatch.setattr(store, "copy_home_journal", rotated_first)
        await store.backup(copy)
    assert (await restore_home(copy, place, by="alice")).sessions == ("ops/a",)
    restored = await FileStore.open_existing(place)
    assert restored is not None
    assert await restored.rotate_keys(by="alice") == 3
    await restored.close()


@in_loop
async def test_a_session_whose_folder_is_gone_keeps_nobody_from_backing_up_the_rest(
    files: Stage, tmp_path: Path
) -> None:
    copy, place = tmp_path / "copy", tmp_path / "restored"
    async with files.open(files.agent([{"say": "hello"}, {"say": "hello"}])) as home:
        await home.send("ops/a", "hi", source=alice)
        await home.send("ops/b", "hi", source=alice)
    shutil.rmtree(files.folder / "sessions" / "ops" / "b")
    store = await FileStore.open_existing(files.folder)
    assert store is not None
    assert await store.backup(copy) == ("ops/a", "ops/b")
    await store.close()
    made = await FileStore.open_existing(copy)
    assert made is not None
    assert [(await made.verify_session(each)).verdict for each in await made.sessions()] == [
        "holds",
        "cut_short",
    ]
    await made.close()
    assert (await restore_home(copy, place, by="alice")).sessions == ("ops/a",)


@in_loop
async def test_a_session_that_is_deleted_and_made_again_while_it_is_copied_is_of_one_moment(
    files: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Else the copy has the new instance's bytes under the old instance's name, and calls them cut short.
    """
    copy = tmp_path / "copy"
    async with files.open(files.agent([{"say": "hello"}])) as home:
        await home.send("ops/a", "hi", source=alice)
        store: Any = home.service.runtime.world.store
        copies, instances = backup._copy_instances, iter(["anew"])

        def another_instance_first(*arguments: Any) -> None:
            for instance in instances:
                store._directory.delete(SessionId("ops/a"), by="alice", at_seq=None)
                created = Draft(
                    *encode(
                        SessionBorn(
                            session=SessionId("ops/a"),
                            instance=InstanceId(instance),
                            origin="created",
                            by="alice",
                        )
                    )
                )
                store._directory.create(
                    SessionId("ops/a"),
                    InstanceId(instance),
                    [created],
                    origin="created",
                    by="alice",
                )
            copies(*arguments)

        monkeypatch.setattr(backup, "_copy_instances", another_instance_first)
        await store.backup(copy)
    made = await FileStore.open_existing(copy)
    assert made is not None
    assert await made.current(SessionId("ops/a")) == "anew"
    assert (await made.verify_session(SessionId("ops/a"))).verdict == "holds"
    await made.close()


@in_loop
async def test_an_instance_that_carries_many_records_has_several_segments(tmp_path: Path) -> None:
    """More than one segment could be read back as: it is created in as many as it needs."""
    async with open_service(tmp_path / "home") as service:
        for _ in range(12):
            await service.send("ops/a", Incoming(text="x" * 250_000, source=alice, model="demo"))
        seq = (await service.show("ops/a")).seq
        report = await fork(service.runtime, "ops/a", "ops/b", at_seq=seq, by="alice")
        assert report.turns == 12
        assert len(report.journal) >= 6
    async with open_service(tmp_path / "home") as service:
        assert (await service.show("ops/b")).turns == 12
        verdict = await service.runtime.world.store.verify_session(SessionId("ops/b"))  # type: ignore[attr-defined]
        assert verdict.verdict == "holds"


@in_loop
async def test_carried_records_keep_their_times_and_times_never_decrease(stage: Stage) -> None:
    """
    A conversation of last month stays one of last month, also in the instance that a fork or an unseal
    begins.
    """
    async with stage.open(stage.agent([{"say": "one"}, {"say": "two"}])) as home:
        await home.send("ops/a", "first", source=alice)
        stage.clock.advance(3_600)
        await home.send("ops/a", "second", source=alice)
        end = (await home.service.show("ops/a")).seq
        stage.clock.advance(30 * 24 * 3_600)
        await fork(home.service.runtime, "ops/a", "ops/b", at_seq=end, by="alice")
        before, after = await records(home, "ops/a"), await records(home, "ops/b")
        carried = [(record.type, record.at) for record in before if record.type != "session_born"]
        own = [(record.type, record.at) for record in after if record.type != "session_born"]
        assert own[: len(carried)] == carried
        assert {at for _, at in own[len(carried) :]} == {stage.clock.now_ms()}
        assert [record.at for record in after] == sorted(record.at for record in after)
        assert after[0].at == carried[0][1]
        await home.send("ops/b", "go on", source=alice)


async def records(home: Home, session: str) -> list[Record]:
    """As a session's caller wrote them, without the journal's own."""
    found: list[Record] = []
    journal = await home.service.runtime.world.store.open(SessionId(session))
    await journal.load(found.append)
    await journal.close()
    return [record for record in found if not record.type.startswith("segment_")]


def held_open_below(path: Path) -> list[str]:
    named: list[str] = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since, by this very look or by another thread
            named.append(str(each.readlink()))
    return [each for each in named if each.startswith(str(path))]


@in_loop
async def test_a_closed_home_is_held_open_by_nothing(tmp_path: Path) -> None:
    """
    Its disk can be unmounted at once, and not only when Python next collects what nobody uses.
    """
    path = tmp_path / "home"
    gc.disable()
    try:
        async with open_service(path) as service:
            await service.send("ops/api", Incoming(text="hello", source=alice))
            assert (
                await service.runtime.world.store.verify_session(SessionId("ops/api"))
            ).verdict == "holds"  # type: ignore[attr-defined]
        assert held_open_below(path) == []
    finally:
        gc.enable()
