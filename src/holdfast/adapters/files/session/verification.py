"""
`verify` for files: check every record of every segment of one instance and return the verdict.
Nothing changes, not even the seal.

Closed segments never change, so they are walked without a lock. For the last segment the write lock
is taken; otherwise a peer's half-written batch could be judged.
"""

import contextlib
from collections.abc import Callable

from holdfast.adapters.files.paths import walk as walk_folders
from holdfast.adapters.files.session.files import SessionFiles
from holdfast.errors import Busy, NewerVersion, Refused
from holdfast.ids import SessionId
from holdfast.journal.anchor import Look
from holdfast.journal.chain import KeyMissing
from holdfast.journal.verify import SegmentBytes, Verdict, VerdictName, walk


def unreadable(session: SessionId, why: str) -> Verdict:
    return Verdict(
        session=session,
        verdict="unreadable",
        records=0,
        at_seq=None,
        segment=None,
        byte=None,
        sealed=False,
        detail=why,
    )


def verify_files(
    files: SessionFiles,
    *,
    sealed: bool,
    first_mac: str | None,
    is_lost: Callable[[int], bool],
    wait_seconds: float | None = None,
) -> Verdict:
    def verdict(
        name: VerdictName,
        detail: str | None,
        *,
        records: int = 0,
        at_seq: int | None = None,
        segment: str | None = None,
        byte: int | None = None,
    ) -> Verdict:
        return Verdict(
            session=files.session,
            verdict=name,
            records=records,
            at_seq=at_seq,
            segment=segment,
            byte=byte,
            sealed=sealed,
            detail=detail,
        )

    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(walk_folders(files.home, *files.parts))
            if not files.keys.newest:
                return verdict("unreadable", "there is no key to verify it with")
            segments: list[SegmentBytes] = []
            locked: list[int] = []

            def find_more() -> None:
                last = segments[-1].number if segments else 0
                segments.extend(
                    segment(number) for number in files.numbers(folder) if number > last
                )

            def segment(number: int) -> SegmentBytes:
                return SegmentBytes(number, files.name(number), lambda offset: read(number, offset))

            def read(number: int, offset: int) -> bytes:
                if number == segments[-1].number and not locked:
                    locked.append(stack.enter_context(files.locked(wait_seconds)))
                    # A peer may have added segments since the listing. With the lock held, nobody
                    # can add more.
                    find_more()
                return files.read_segment(folder, number)[offset:]

            def look() -> Look:
                found = files.anchor.look(files.keys)
                if (
                    found.anchor is None
                    and found.missing is not None
                    and is_lost(found.missing.generation)
                ):
                    raise found.missing  # any other key never existed, and the slot is not ours
                return found

            find_more()
            found = walk(
                files.fence(),
                segments,
                look,
                first_mac=first_mac,
                closing=lambda number: files.verified_closing(folder, number),
                is_lost=is_lost,
            )
    except FileNotFoundError:
        return verdict("cut_short", "its folder is missing")
    except (KeyMissing, NewerVersion, Refused, Busy, OSError) as exc:
        return verdict("unreadable", str(exc))
    return verdict(
        found.verdict,
        found.detail,
        records=found.records,
        at_seq=found.at_seq or None,
        segment=found.segment,
        byte=found.byte,
    )
