"""
Following what a job says: from the beginning, as it says it; last, how it ended.

While it runs its words come from where it writes them, and once it is over the rest comes from the
journal: nothing is told twice, and nothing is left out. Where the two can't be told apart for sure,
all of the end is told, since twice is better than not at all. A running job's output is not
verified: any program that may write into the home can change it. The end is, and where both differ
the follower is told.
"""

import asyncio
import codecs
from collections.abc import AsyncIterator

from blake3 import blake3

from holdfast.ids import JobId
from holdfast.ports.tools import ProcessFacts
from holdfast.runtime.jobs.reports import JobReport
from holdfast.runtime.jobs.verbs import Circle, report_of, session_of_job
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.service import Service
from holdfast.secrecy import Secrecy, secrecy_of
from holdfast.session.features.jobs.decide import known_job
from holdfast.session.state import Job

_LOOK_AGAIN_SECONDS = 0.2  # how soon a follower sees what a job says
_READ_BYTES = 64 * 1024
_VERIFIED = "[the output above was not verified; the verified result follows]\n"


async def follow_job(service: Service, job: str, circle: Circle) -> AsyncIterator[str | JobReport]:
    """Secrets are hidden. One of another circle is not there."""
    name = JobId(job)
    async with session_of_job(service, name, circle) as ledger:
        told = _Told(secrecy_of(service.world.secrets))
        while isinstance(found := known_job(ledger.state, name), Job):
            if chunk := await _said(service, found, told.bytes_read):
                for piece in told.heard(chunk):
                    yield piece
                continue
            if not _still_runs(service, found):
                # All of it was read while nobody else had cleared it: only now is the end said.
                await service.jobs.settle(ledger)
            else:
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            await ledger.refresh()
        report = await report_of(ledger, name)
        if rest := told.rest_of(await _all_said(ledger, report)):
            yield rest
        yield report


class _Told:
    """
    What a follower was told so far: how much of it there is, and its fingerprint. Of a character
    that is not whole yet, nothing.
    """

    def __init__(self, secrecy: Secrecy) -> None:
        self.bytes_read = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pieces: list[str] = []
        self._streamed = secrecy.streamed(self._pieces.append)
        self._chars = 0
        self._digest = blake3()

    def heard(self, chunk: bytes) -> list[str]:
        self.bytes_read += len(chunk)
        self._streamed.hear(self._decode(chunk))
        pieces = [piece for piece in self._pieces if piece]
        self._pieces.clear()
        for piece in pieces:
            self._chars += len(piece)
            self._digest.update(piece.encode())
        return pieces

    def rest_of(self, text: str) -> str:
        """
        What of a job's last word is news. One that was stopped begins with a sentence of ours,
        which it did not say itself.
        """
        if self._begins(text):
            return text[self._chars :]
        ours, _, said = text.partition("\n")
        return f"{said[self._chars :]}\n{ours}" if self._begins(said) else f"\n{_VERIFIED}{text}"

    def _begins(self, text: str) -> bool:
        return blake3(text[: self._chars].encode()).digest() == self._digest.digest()


async def _said(service: Service, job: Job, after: int) -> bytes:
    place = service.world.jobs
    return (
        await place.output(job.job, ProcessFacts(**job.process), after=after, bytes_max=_READ_BYTES)
        if place is not None
        else b""
    )


def _still_runs(service: Service, job: Job) -> bool:
    place = service.world.jobs
    return place is not None and (job.host == "task" or place.lives(ProcessFacts(**job.process)))


async def _all_said(ledger: Ledger, report: JobReport) -> str:
    if report.output is not None:
        return (await ledger.journal.output(report.output)).decode("utf-8", "replace")
    return report.text or ""
