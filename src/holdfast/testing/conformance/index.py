"""
The contract of every `Index`, as one suite. Subclass it and provide a fixture `index`, as in
`conformance/store.py`.

Each test is a sentence of `holdfast.ports.index`. Damage to a file is tested beside the file's own
index.
"""

import msgspec
import pytest

from holdfast.ids import ApprovalId, InstanceId, SessionId
from holdfast.ports.index import Index, IndexRow, Standing
from holdfast.ports.journal_store import Heads
from holdfast.testing.loop import in_loop

INSTANCE = InstanceId("i-first")
LATER_INSTANCE = InstanceId("i-later")
OPS = SessionId("ops/api")


def row(
    session: str = OPS,
    seq: int = 1,
    *,
    instance: InstanceId = INSTANCE,
    waits: str | None = None,
    expires: int = 9_000,
    reminds: int | None = None,
) -> IndexRow:
    """
    Return a row as of `seq`. With `waits`, it has one prompt of that id, which expires at
    `expires`. With `reminds`, it has a reminder due then.
    """
    return IndexRow(
        session=SessionId(session),
        instance=instance,
        seq=seq,
        phase="parked" if waits else "idle",
        turns=seq,
        owes=False,
        updated_at=1_000 + seq,
        approvals=(
            msgspec.Raw(msgspec.json.encode({"id": waits, "display": "rm -r build é \u202e"})),
        )
        if waits
        else (),
        waiting_for=("alice", "bob") if waits else (),
        expires_at=expires if waits else None,
        people=("alice",),
        preview="hello",
        title="Greetings",
        remind_at=reminds,
    )


class IndexSuite:
    """The contract of `ports/index.py`."""

    @pytest.fixture
    def index(self) -> Index:
        raise NotImplementedError("bring an index")

    @in_loop
    async def test_a_row_comes_back_as_it_was_put(self, index: Index) -> None:
        """Prompts are equal to the byte: the list shows the prompt that was requested."""
        await index.put(row(seq=7, waits="a-1"))
        assert await index.get(OPS) == row(seq=7, waits="a-1")
        assert [each async for each in index.rows()] == [row(seq=7, waits="a-1")]

    @in_loop
    async def test_a_row_replaces_the_one_before(self, index: Index) -> None:
        await index.put(row(seq=1, waits="a-1"))
        await index.put(row(seq=2))
        assert [each async for each in index.rows()] == [row(seq=2)]
        assert [each async for each in index.rows(only_waiting=True)] == []

    @in_loop
    async def test_a_row_never_gives_way_to_an_older_one_of_the_same_instance(
        self, index: Index
    ) -> None:
        """A slow process that puts an old row overwrites nothing."""
        await index.put(row(seq=5, waits="a-1"))
        await index.put(row(seq=4))
        assert await index.get(OPS) == row(seq=5, waits="a-1")
        await index.put(row(seq=1, instance=LATER_INSTANCE))
        assert await index.get(OPS) == row(seq=1, instance=LATER_INSTANCE)

    @in_loop
    async def test_an_unknown_session_has_no_row(self, index: Index) -> None:
        await index.put(row())
        assert await index.get(SessionId("ops/db")) is None
        assert await index.session_of(ApprovalId("a-1")) is None

    @in_loop
    async def test_many_rows_are_read_by_their_names(self, index: Index) -> None:
        for name in ("ops/a", "ops/b", "ops/c"):
            await index.put(row(name))
        names = [SessionId(name) for name in ("ops/c", "ops/none", "ops/a")]
        found = await index.get_many(names)
        assert dict(found) == {"ops/a": row("ops/a"), "ops/c": row("ops/c")}
        assert dict(await index.get_many([])) == {}

    @in_loop
    async def test_rows_are_sorted_by_session_whatever_the_order_they_came_in(
        self, index: Index
    ) -> None:
        for name in ("ops/b", "chat/z", "ops/a"):
            await index.put(row(name))
        assert [each.session async for each in index.rows()] == ["chat/z", "ops/a", "ops/b"]

    @in_loop
    async def test_pages_join_without_a_gap_or_a_repetition(self, index: Index) -> None:
        """`after` is the last session of the page before; it need not exist any more."""
        names = [f"ops/{number:04d}" for number in range(700)]
        for name in names:
            await index.put(row(name, waits="a-1" if name.endswith("7") else None))
        for only_waiting, expected in (
            (False, names),
            (True, [name for name in names if name.endswith("7")]),
        ):
            seen: list[str] = []
            while page := [
                each
                async for each in index.rows(
                    after=SessionId(seen[-1]) if seen else None, limit=33, only_waiting=only_waiting
                )
            ]:
                assert len(page) <= 33
                seen += [each.session for each in page]
            assert seen == expected
        assert [each async for each in index.rows(limit=0)] == []
        assert [each.session async for each in index.rows(after=SessionId("ops/0697x"))] == names[
            698:
        ]

    @in_loop
    async def test_rows_may_be_put_while_a_list_is_read(self, index: Index) -> None:
        for number in range(600):
            await index.put(row(f"ops/{number:04d}"))
        seen = []
        async for each in index.rows():
            seen.append(each.session)
            await index.put(row(each.session, 2))
        assert seen == [f"ops/{number:04d}" for number in range(600)]

    @in_loop
    async def test_only_what_waits_is_listed_when_asked(self, index: Index) -> None:
        await index.put(row("ops/a"))
        await index.put(row("ops/b", waits="a-1"))
        assert [each.session async for each in index.rows(only_waiting=True)] == ["ops/b"]

    @in_loop
    async def test_a_prompt_is_found_after_it_has_left_the_row(self, index: Index) -> None:
        """After an answer or a close, the holder of its id still learns its state."""
        await index.put(row(waits="a-1"))
        await index.put_approval(ApprovalId("a-1"), OPS)
        await index.put(row(seq=2), [ApprovalId("a-2"), ApprovalId("a-3")])
        assert [await index.session_of(ApprovalId(f"a-{number}")) for number in (1, 2, 3, 4)] == [
            OPS,
            OPS,
            OPS,
            None,
        ]

    @in_loop
    async def test_a_forgotten_session_leaves_nothing(self, index: Index) -> None:
        await index.put(row(waits="a-1"))
        await index.put_approval(ApprovalId("a-1"), OPS)
        await index.put(row("ops/db"))
        await index.forget(OPS)
        await index.forget(SessionId("ops/never"))
        assert (await index.get(OPS), await index.session_of(ApprovalId("a-1"))) == (None, None)
        assert [each.session async for each in index.rows()] == ["ops/db"]

    @in_loop
    async def test_the_sessions_with_prompts_are_found_among_all(self, index: Index) -> None:
        """Rows are sorted, in pages of any size, and each prompt is equal to the byte."""
        names = [f"ops/{number:04d}" for number in range(600)]
        for name in reversed(names):
            await index.put(row(name, 3, waits="a-1" if name.endswith("7") else None))
        found = [each async for page in index.prompting() for each in page]
        assert [each.session for each in found] == [name for name in names if name.endswith("7")]
        prompts = msgspec.json.encode(row(waits="a-1").approvals)
        assert found[0] == Standing(SessionId("ops/0007"), INSTANCE, 3, False, 9_000, prompts)  # noqa: FBT003  a field

    @in_loop
    async def test_the_sessions_that_are_due_are_found_among_all(self, index: Index) -> None:
        """A session is due if it owes, awaits a delegate, or a time of it has come."""
        change = msgspec.structs.replace
        await index.put(row("ops/rests"))
        await index.put(row("ops/later", waits="a-1", expires=9_001, reminds=9_001))
        await index.put(row("ops/expires", waits="a-1", expires=9_000))
        await index.put(row("ops/reminds", reminds=9_000))
        await index.put(change(row("ops/owes"), owes=True))
        awaited = (SessionId("ops/below"), INSTANCE)
        await index.put(change(row("ops/awaits"), awaits=(awaited,)))
        found = [each async for page in index.due(until=9_000) for each in page]
        names = ["ops/awaits", "ops/expires", "ops/owes", "ops/reminds"]
        assert [each.session for each in found] == names
        assert [each.owes for each in found] == [False, False, True, False]
        assert found[0].awaits == (awaited,)
        await index.put(row("ops/owes", 2))
        await index.forget(SessionId("ops/awaits"))
        later = [each.session async for page in index.due(until=8_999) for each in page]
        assert later == []

    @in_loop
    async def test_the_sessions_with_running_jobs_are_found_among_all(self, index: Index) -> None:
        busy = msgspec.structs.replace(row("ops/works"), jobs=("j-1", "j-2"))
        for each in (row("ops/a"), busy, row("ops/z")):
            await index.put(each)
        assert [each async for each in index.with_jobs()] == [busy]
        await index.put(row("ops/works", 2))
        assert [each async for each in index.with_jobs()] == []

    @in_loop
    async def test_a_long_prompt_comes_back_to_the_byte(self, index: Index) -> None:
        """The stored form does not matter: the list shows the prompt that was requested."""
        long = msgspec.Raw(
            msgspec.json.encode(
                {
                    "id": "a-1",
                    "display": "rm -r build é \u202e " * 2_000,
                    "covers": {"deny": "nothing runs"},
                }
            )
        )
        put = msgspec.structs.replace(
            row(waits="a-1"), approvals=(long, *row(waits="a-2").approvals)
        )
        await index.put(put)
        assert await index.get(OPS) == put
        assert [each.prompts async for page in index.prompting() for each in page] == [
            msgspec.json.encode(put.approvals)
        ]

    @in_loop
    async def test_a_missing_older_or_foreign_row_is_stale(self, index: Index) -> None:
        """
        So a crash between an append and the index loses nothing. A row ahead of a head that was
        read earlier is fine.
        """
        await index.put(row("ops/behind", 4))
        await index.put(row("ops/there", 5))
        await index.put(row("ops/ahead", 6))
        await index.put(row("ops/reborn", 9))
        heads = [
            (SessionId(f"ops/{name}"), INSTANCE, 5)
            for name in ("ahead", "behind", "missing", "there")
        ]
        heads.append((SessionId("ops/reborn"), LATER_INSTANCE, 5))
        assert list(await index.stale(heads)) == ["ops/behind", "ops/missing", "ops/reborn"]
        assert list(await index.stale([])) == []

        async def read() -> Heads:
            return heads

        assert list(await index.behind(read)) == ["ops/behind", "ops/missing", "ops/reborn"]

    @in_loop
    async def test_the_earliest_reminder_of_all_is_found_and_who_has_one_due(
        self, index: Index
    ) -> None:
        """
        Two sessions at the same instant are both due; a changed reminder is found at its new time.
        """
        assert (
            await index.next_reminder(after=0),
            list(await index.reminding(after=0, until=10_000)),
        ) == (
            None,
            [],
        )
        for name, reminds in (
            ("ops/b", 3_000),
            ("ops/none", None),
            ("ops/a", 3_000),
            ("ops/c", 5_000),
        ):
            await index.put(row(name, reminds=reminds))
        assert [await index.next_reminder(after=after) for after in (0, 2_999, 3_000, 5_000)] == [
            3_000,
            3_000,
            5_000,
            None,
        ]
        assert list(await index.reminding(after=0, until=4_999)) == ["ops/a", "ops/b"]
        assert list(await index.reminding(after=2_999, until=5_000)) == ["ops/a", "ops/b", "ops/c"]
        assert list(await index.reminding(after=3_000, until=4_999)) == []
        await index.put(row("ops/a", 2, reminds=9_000))
        await index.put(row("ops/b", 2))
        await index.forget(SessionId("ops/c"))
        assert (
            await index.next_reminder(after=0),
            list(await index.reminding(after=0, until=9_000)),
        ) == (
            9_000,
            ["ops/a"],
        )

    @in_loop
    async def test_more_reminders_than_a_page_are_all_found_in_the_order_of_time(
        self, index: Index
    ) -> None:
        for number in range(600):
            await index.put(row(f"ops/{number:04d}", reminds=10_000 - number))
        assert list(await index.reminding(after=0, until=10_000)) == [
            f"ops/{number:04d}" for number in reversed(range(600))
        ]

    @in_loop
    async def test_the_index_finds_the_next_expiry_among_all_prompts(self, index: Index) -> None:
        """The timer ignores prompts that never expire or have expired."""
        assert await index.next_expiry(after=0) is None
        for name, expires in (("ops/b", 3_000), ("ops/a", 5_000), ("ops/c", 3_000)):
            await index.put(row(name, waits="a-1", expires=expires))
        await index.put(row("ops/idle", reminds=1_000))
        assert [await index.next_expiry(after=after) for after in (0, 2_999, 3_000, 5_000)] == [
            3_000,
            3_000,
            5_000,
            None,
        ]
        await index.put(row("ops/a", 2, waits="a-2", expires=7_000))
        await index.forget(SessionId("ops/b"))
        await index.put(row("ops/c", 2))
        assert await index.next_expiry(after=0) == 7_000

    @in_loop
    async def test_closing_twice_is_closing_once(self, index: Index) -> None:
        await index.put(row())
        index.close()
        index.close()
