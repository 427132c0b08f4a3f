"""
Random interleavings of owned appends and outside hands on a real home of files.

The model is a list of what was acknowledged and whether outside hands changed a byte. Three
promises are checked at every step: our own activity alone is never a takeover (L5, L7), any changed
byte is seen at the next fence or open (L4), and nothing acknowledged is lost (D1, D2). Segments are
tiny, so histories cross them all the time.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.adapters.files import FileStore
from holdfast.errors import Untrusted
from holdfast.ports.journal_store import Check, Journal
from holdfast.testing import outside
from holdfast.testing.conformance.store import INSTANCE, OPS, everything, note, says, texts

HANDLES = 3
SEGMENT_BYTES = 2048


class FenceMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.path = Path(tempfile.mkdtemp(prefix="fence-"))
        self.stores: list[FileStore] = []
        self.acknowledged = ["born"]
        self.count = 0
        # Set once outside hands have changed a byte: of the active segment, or of a closed one.
        self.changed: str | None = None
        self.is_sealed = False

    def run(self, work: Any) -> Any:
        return self.loop.run(work)

    def open_store(self) -> FileStore:
        store = self.run(FileStore.open_home(self.path / "home", segment_bytes=SEGMENT_BYTES))
        self.stores.append(store)
        return store

    @initialize()
    def create(self) -> None:
        first = self.run(
            self.open_store().create(OPS, INSTANCE, [note("born")], origin="created", by="tests")
        )
        self.folder = Path(first.where()[0]).parent
        # Two handles in one store, one in another: peers of the same program and of another.
        store = self.open_store()
        self.handles: list[Journal] = [first, self.run(store.open(OPS)), self.run(store.open(OPS))]
        self.known = [1] * HANDLES

    @property
    def segments(self) -> list[Path]:
        return sorted(self.folder.glob("*.jsonl"))

    # Our own activity

    @rule(
        who=st.integers(0, HANDLES - 1),
        size=st.sampled_from([1, 1, 1, 600]),
        many=st.integers(1, 3),
    )
    def append_short(self, who: int, size: int, many: int) -> None:
        """
        Accepted unless bytes were changed; then it may be refused, and never hides the change.
        """
        said = [f"{self.count + each} " + "x" * size for each in range(many)]
        self.count += many
        journal = self.handles[who]
        try:
            done = self.run(journal.append(says(*said), since=journal.head))
        except Untrusted:
            assert self.changed, "an accusation without a crime"
            self.is_sealed = True
        else:
            assert not self.is_sealed
            if not self.changed:
                self.acknowledge(who, said, texts(done.suffix))

    @rule(who=st.integers(0, HANDLES - 1), writes=st.booleans())
    def come_back(self, who: int, writes: bool) -> None:
        """
        The fence: everything new of ours is handed over, a changed byte of the active segment is
        always seen.
        """
        said = [f"{self.count}"] if writes else []
        self.count += 1
        journal = self.handles[who]
        try:
            done = self.run(journal.append(says(*said), since=journal.head, check=Check.FENCE))
        except Untrusted:
            assert self.changed, "an accusation without a crime"
            self.is_sealed = True
        else:
            assert self.changed != "active", "a changed byte went unseen"
            assert not self.is_sealed
            if not self.changed:
                self.acknowledge(who, said, texts(done.suffix))

    def acknowledge(self, who: int, said: list[str], suffix: list[str]) -> None:
        assert suffix == [*self.acknowledged[self.known[who] :], *said]
        self.acknowledged += said
        self.known[who] = len(self.acknowledged)

    @rule(who=st.integers(0, HANDLES - 1))
    def reopen(self, who: int) -> None:
        """
        A process ends without a word, another begins: it finds all that was acknowledged, or says
        that it can't be believed.
        """
        journal = self.run(self.open_store().open(OPS))
        found = texts(self.run(everything(journal)))
        if self.changed:
            assert journal.sealed is not None, "an open believed changed bytes"
            self.is_sealed = True
            assert found == self.acknowledged[: len(found)]
        else:
            assert journal.sealed is None, "an accusation without a crime"
            assert found == self.acknowledged
        self.handles[who] = journal
        self.known[who] = len(self.acknowledged)

    @rule(many=st.integers(2, 4))
    @precondition(lambda self: not self.changed)
    def append_together(self, many: int) -> None:
        """Several tasks on several handles at once: all kept, each with all that came before it."""
        said = [f"{self.count + each}" for each in range(many)]
        self.count += many

        async def together() -> list[Any]:
            handles = [self.handles[each % HANDLES] for each in range(many)]
            work = [
                handle.append(says(text), since=handle.head)
                for handle, text in zip(handles, said, strict=True)
            ]
            return await asyncio.gather(*work)

        self.run(together())
        found = texts(self.run(everything(self.handles[0])))
        assert found[: len(self.acknowledged)] == self.acknowledged
        assert sorted(found[len(self.acknowledged) :]) == sorted(said)
        self.acknowledged = found
        for who, handle in enumerate(self.handles):
            self.run(handle.append(says(), since=handle.head))
            self.known[who] = len(found)

    # Outside hands that change nothing

    @rule(where=st.integers(0, 9), how=st.sampled_from(["touch", "replace", "rewrite"]))
    def do_nothing(self, where: int, how: str) -> None:
        path = self.segments[where % len(self.segments)]
        match how:
            case "touch":
                outside.touch(path)
            case "replace":
                outside.replace(path, path.read_bytes())
            case _:
                path.write_bytes(path.read_bytes())

    @rule(garbage=st.binary(min_size=1, max_size=200))
    @precondition(lambda self: not self.changed)
    def leave_a_torn_tail(self, garbage: bytes) -> None:
        """
        The bytes that a killed writer leaves behind: bytes past the anchor without an end of line.
        """
        outside.append(self.segments[-1], garbage.replace(b"\n", b" "))

    # Outside hands that change history

    @rule(
        how=st.sampled_from(["append", "edit", "truncate", "regrow", "row", "replay"]),
        at=st.integers(0, 1 << 20),
        keeps_times=st.booleans(),
    )
    @precondition(lambda self: not self.changed)
    def change_active(self, how: str, at: int, keeps_times: bool) -> None:
        path = self.segments[-1]
        before = path.read_bytes()
        assume(
            before.endswith(b"\n")
        )  # a torn tail under a change is another story, told by hand in tests/hostile/fence
        if keeps_times:
            with outside.same_times(path):
                self.change(path, how, at, before)
        else:
            self.change(path, how, at, before)
        assume(path.read_bytes() != before)
        self.changed = "active"

    def change(self, path: Path, how: str, at: int, before: bytes) -> None:
        size = len(before)
        match how:
            case "append":
                outside.append(path, b"x" * (at % 50) + b"\n")
            case "edit":
                outside.flip(path, at % size)
            case "truncate":
                outside.cut(path, at % size)
            case "regrow":
                outside.cut(path, at % size)
                outside.append(path, b"y" * (size - at % size - 1) + b"\n")
            case "row":
                outside.append(path, b'{"seq":%d,"text":"harmless"}\n' % at)
            case _:
                lines = before.splitlines(keepends=True)
                outside.append(path, lines[at % len(lines)])

    @rule(where=st.integers(0, 9), at=st.integers(0, 1 << 20))
    @precondition(lambda self: not self.changed and len(self.segments) > 1)
    def change_closed(self, where: int, at: int) -> None:
        path = self.segments[where % (len(self.segments) - 1)]
        outside.flip(path, at % path.stat().st_size)
        self.changed = "closed"

    def teardown(self) -> None:
        try:
            if hasattr(self, "handles"):
                self.reopen(0)
        finally:
            for store in self.stores:
                self.run(store.close())
            self.loop.close()
            shutil.rmtree(self.path)


TestFenceMachine = FenceMachine.TestCase
TestFenceMachine.settings = settings(max_examples=25, stateful_step_count=25)
