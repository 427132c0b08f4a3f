"""
The report of a job's supervisor, as a reader believes it.

A reader believes it only with its MAC and only of that very run, and its output only as the
supervisor saw it. The key is derived from the home key, the session instance and the job. Any
process that has the home key can verify a report, and a driver that comes after a crash derives the
same key again. A report of another job, instance or run does not verify.
"""

import hmac

import msgspec

from holdfast.adapters.tools.jobs.supervisor import mac_of, new_digest
from holdfast.adapters.tools.output import Output, left_behind
from holdfast.ids import JobId
from holdfast.ports.tools import ProcessFacts, ToolReturned
from holdfast.secrecy import Secret

REPORT_BYTES_MAX = 16 * 1024
_CUT_OFF = (128 + 15, 128 + 9)  # how bubblewrap, and a shell, tell of a child that a signal ended


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a supervisor says. `kept` bytes of `bytes` lie in the output file, with this digest."""

    ended: str  # exited, timed_out, asked
    status: int
    failed: str
    bytes: int
    kept: int
    digest: str
    left: int
    left_names: tuple[str, ...]
    job: str
    boot: str
    group: int
    start_time: int
    at_ms: int
    generation: int

    def is_about(self, job: JobId, process: ProcessFacts) -> bool:
        said = (self.job, self.boot, self.group, self.start_time)
        return said == (job, process.boot_id, process.group, process.start_time)

    @property
    def was_cut_off(self) -> bool:
        """It was asked to end, and ended by that."""
        return self.ended == "asked" and (self.status < 0 or self.status in _CUT_OFF)

    def said(self) -> str:
        """How it ended, in a few words."""
        if self.failed:
            return f"nothing was run: {self.failed}"
        return f"ended by signal {-self.status}" if self.status < 0 else f"exit {self.status}"


def generation_of(raw: bytes) -> int | None:
    """The key generation that a report names, or None. Nothing of the report is believed yet."""
    found = _decoded(raw.partition(b"\n")[0])
    return found.generation if found is not None else None


def verified(raw: bytes, key: bytes, job: JobId, process: ProcessFacts) -> Report | None:
    """The report, if its MAC is made with this key and it is about this run of this job."""
    body, _, mac = raw.partition(b"\n")
    if not hmac.compare_digest(mac, mac_of(body, key).encode() + b"\n"):
        return None
    report = _decoded(body)
    return report if report is not None and report.is_about(job, process) else None


def _decoded(body: bytes) -> Report | None:
    try:
        return msgspec.json.decode(body, type=Report)
    except (ValueError, RecursionError):  # of msgspec among them
        return None


def is_as_reported(output: bytes, report: Report) -> bool:
    """Whether these are the bytes that came through the command's pipe."""
    digest = new_digest()
    digest.update(output)
    return len(output) == report.kept and hmac.compare_digest(digest.hexdigest(), report.digest)


def returned_by(report: Report, output: bytes, secrets: tuple[Secret, ...]) -> ToolReturned:
    """The result of a job whose report and output are verified."""
    if report.failed:
        return ToolReturned(outcome="error", text=f"nothing was run: {report.failed}")
    said = Output(secrets=secrets, on_output=lambda _: None)
    said.feed(output)
    said.close()
    dropped = report.bytes - report.kept
    notes = [f"[{dropped} further bytes were dropped]"] if dropped > 0 else []
    if report.ended == "timed_out":
        notes.append("[ended: its time was over]")
    elif report.status:
        notes.append(f"[{report.said()}]")
    notes.extend(left_behind(report.left, report.left_names))
    text, full = said.view("\n".join(notes))
    if report.ended == "timed_out":
        return ToolReturned(outcome="timed_out", text=text, full=full)
    return ToolReturned(outcome="ok" if report.status == 0 else "error", text=text, full=full)
