"""
Verifies the report of a job's supervisor.

A reader trusts a report only with its MAC and only for that very run. It trusts the output only if
its digest equals the supervisor's. The key is derived from the home key, the session instance and
the job. Any process with the home key can verify a report, and a driver after a crash derives the
same key again. A report of another job, instance or run does not verify.
"""

import hmac

import msgspec

from holdfast.adapters.tools.jobs.supervisor import mac_of, new_digest
from holdfast.adapters.tools.output import CapturedOutput, left_behind
from holdfast.ids import JobId
from holdfast.ports.tools import ProcessFacts, ToolReturned
from holdfast.secrecy import Secret

REPORT_BYTES_MAX = 16 * 1024
_CUT_OFF = (128 + 15, 128 + 9)  # exit statuses of bubblewrap and shells after a signal


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A supervisor's report. The output file holds `kept` of `bytes` bytes, with this digest."""

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
        """Whether the job was asked to end and ended because of that."""
        return self.ended == "asked" and (self.status < 0 or self.status in _CUT_OFF)

    def said(self) -> str:
        """Describe the end in a few words."""
        if self.failed:
            return f"nothing was run: {self.failed}"
        return f"ended by signal {-self.status}" if self.status < 0 else f"exit {self.status}"


def generation_of(raw: bytes) -> int | None:
    """Return the key generation that a report names, or None. The report is not verified yet."""
    found = _decoded(raw.partition(b"\n")[0])
    return found.generation if found is not None else None


def verified(raw: bytes, key: bytes, job: JobId, process: ProcessFacts) -> Report | None:
    """Return the report if its MAC is valid under this key and it is about this run of this job."""
    body, _, mac = raw.partition(b"\n")
    if not hmac.compare_digest(mac, mac_of(body, key).encode() + b"\n"):
        return None
    report = _decoded(body)
    return report if report is not None and report.is_about(job, process) else None


def _decoded(body: bytes) -> Report | None:
    try:
        return msgspec.json.decode(body, type=Report)
    except (ValueError, RecursionError):  # includes msgspec's errors
        return None


def is_as_reported(output: bytes, report: Report) -> bool:
    """Return whether these bytes are the ones that came through the command's pipe."""
    digest = new_digest()
    digest.update(output)
    return len(output) == report.kept and hmac.compare_digest(digest.hexdigest(), report.digest)


def returned_by(report: Report, output: bytes, secrets: tuple[Secret, ...]) -> ToolReturned:
    """Return the result of a job whose report and output are verified."""
    if report.failed:
        return ToolReturned(outcome="error", text=f"nothing was run: {report.failed}")
    said = CapturedOutput(secrets=secrets, on_output=lambda _: None)
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
