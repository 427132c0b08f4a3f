"""
Follow a job's output from its beginning, as it is written; last, its end.

While the job runs, its output comes from its own file. Once it has ended, the rest comes from the
journal, so nothing is sent twice and nothing is left out. If the two cannot be matched for sure,
the whole result is sent, since twice is better than not at all. A running job's output is not
verified: any program that may write into the home can change it. The result is verified, and the
follower gets a note if both differ.
"""

import asyncio
import codecs
from collections.abc import AsyncIterator

import msgspec
from blake3 import blake3

from holdfast.ids import JobId
from holdfast.ports.tools import ProcessFacts
from holdfast.runtime.jobs.reports import JobReport
from holdfast.runtime.jobs.verbs import Viewer, report_of, session_of_job
from holdfast.runtime.ledger.ledger import Ledger
from holdfast.runtime.runtime import Runtime
from holdfast.secrecy import Secrecy, secrecy_of
from holdfast.session.features.jobs.decide import known_job
from holdfast.session.state import Job

_LOOK_AGAIN_SECONDS = 0.2  # how soon a follower sees new output
_READ_BYTES = 64 * 1024
_LINE_CHARS_MAX = 1024  # of a running job's last line; a longer one is shown from its end
_VERIFIED = "[the output above was not verified; the verified result follows]\n"


async def follow_job(runtime: Runtime, job: str, viewer: Viewer) -> AsyncIterator[str | JobReport]:
    """Secrets are hidden. A job of another audience or boundary is reported as unknown."""
    name = JobId(job)
    async with session_of_job(runtime, name, viewer) as ledger:
        sent = _SentOutput(secrecy_of(runtime.world.secrets))
        while isinstance(found := known_job(ledger.state, name), Job):
            if chunk := await _said(runtime, found, sent.bytes_read):
                for piece in sent.take(chunk):
                    yield piece
                continue
            if not _still_runs(runtime, found):
                # All output was read before another process could clear it. Only now is the end
                # recorded.
                await runtime.job_keeper.settle(ledger)
            if found.host == "server" or _still_runs(runtime, found):
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            await ledger.catch_up()
        report = await report_of(ledger, name)
        if rest := sent.rest_of(await _all_said(ledger, report)):
            yield rest
        yield report


async def show_job(runtime: Runtime, job: str, viewer: Viewer) -> JobReport:
    """Show one job; a running one with the last line that it wrote. Secrets are hidden."""
    name = JobId(job)
    async with session_of_job(runtime, name, viewer) as ledger:
        report = await report_of(ledger, name)
        if not isinstance(found := known_job(ledger.state, name), Job):
            return report
    sent, tail = _SentOutput(secrecy_of(runtime.world.secrets)), ""
    while chunk := await _said(runtime, found, sent.bytes_read):
        tail = "".join((tail, *sent.take(chunk)))[-_LINE_CHARS_MAX:]
    lines = [line for line in tail.splitlines() if line.strip()]
    return msgspec.structs.replace(report, last_output=lines[-1] if lines else None)


class _SentOutput:
    """
    The output sent to a follower so far: its length and its digest. An incomplete character is held
    back.
    """

    def __init__(self, secrecy: Secrecy) -> None:
        self.bytes_read = 0
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pieces: list[str] = []
        self._streamed = secrecy.streamed(self._pieces.append)
        self._chars = 0
        self._digest = blake3()

    def take(self, chunk: bytes) -> list[str]:
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
        The part of a job's result that is new. The result of a stopped job begins with a sentence
        of Holdfast, which the job did not write.
        """
        if self._begins(text):
            return text[self._chars :]
        ours, _, said = text.partition("\n")
        return f"{said[self._chars :]}\n{ours}" if self._begins(said) else f"\n{_VERIFIED}{text}"

    def _begins(self, text: str) -> bool:
        return blake3(text[: self._chars].encode()).digest() == self._digest.digest()


async def _said(runtime: Runtime, job: Job, after: int) -> bytes:
    place = runtime.world.jobs
    return (
        await place.output(job.job, ProcessFacts(**job.process), after=after, bytes_max=_READ_BYTES)
        if place is not None and job.host != "server"
        else b""
    )


def _still_runs(runtime: Runtime, job: Job) -> bool:
    place = runtime.world.jobs
    if job.host == "server":
        return False  # only its server can say, and is asked
    return place is not None and (job.host == "task" or place.is_alive(ProcessFacts(**job.process)))


async def _all_said(ledger: Ledger, report: JobReport) -> str:
    if report.output is not None:
        return (await ledger.journal.output(report.output)).decode("utf-8", "replace")
    return report.text or ""
