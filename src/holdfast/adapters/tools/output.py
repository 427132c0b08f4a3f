"""
Bounds a tool's output: the kept bytes up to a limit, head and tail for the model, and no secret in
either.

Bytes arrive as they are read. A read may end in the middle of a secret, so a possible beginning is
held back until more bytes come.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from holdfast import limits
from holdfast.ports.tools import CannotBind, OnOutput, ToolReturned
from holdfast.secrecy import Secret, StreamedBytes, secrecy_of
from holdfast.session.view.safe_text import render

_LEFT_NAMES_SHOWN = 5


def refuse_secrets(arguments: bytes, secrets: tuple[Secret, ...]) -> None:
    """
    Raise CannotBind if a call's arguments hold a secret, as written or decoded. Keys count too.
    """
    secrecy = secrecy_of(secrets)
    # Without an escape, the strings stand in the text as they are.
    if secrecy.holds(arguments) or (
        b"\\" in arguments
        and any(secrecy.holds(text) for text in _strings(msgspec.json.decode(arguments)))
    ):
        raise CannotBind("the arguments hold a secret", code="secret")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield str(key)
            yield from _strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member)


class CapturedOutput:
    """Collects the output of one run. `on_output` receives the kept bytes, with secrets hidden."""

    def __init__(self, *, secrets: tuple[Secret, ...], on_output: OnOutput) -> None:
        self._secrecy = secrecy_of(secrets)
        self._streamed = StreamedBytes(self._secrecy, self._take)
        self._on_output: Callable[[bytes], None] = on_output
        self._kept = bytearray()
        self._tail = bytearray()
        self._total = 0  # bytes after secrets were hidden

    def feed(self, chunk: bytes) -> None:
        self._streamed.hear(chunk)

    def close(self) -> None:
        self._streamed.end()

    def take_all(self, data: bytes) -> None:
        """Take an output that is complete, instead of `feed` and `close`: nothing can be cut."""
        self._take(self._secrecy.hidden_bytes(data))

    def _take(self, data: bytes) -> None:
        if not data:
            return
        self._total += len(data)
        room = limits.TOOL_OUTPUT_KEPT_BYTES - len(self._kept)
        self._kept += data[:room]
        self._tail += data
        del self._tail[: -limits.TOOL_OUTPUT_VIEW_BYTES]
        if room > 0:
            self._on_output(data[:room])

    def end(self) -> str:
        """Return the end of the output, at most as much as the model sees."""
        return _text(bytes(self._tail))

    def view(self, ending: str = "") -> tuple[str, bytes | None]:
        """
        Return (the model's text, which ends with `ending`; the whole output if that text is
        shortened).
        """
        budget = limits.TOOL_OUTPUT_VIEW_BYTES - len(ending.encode()) - 2
        if self._total <= budget:
            whole = self._secrecy.hidden(_text(bytes(self._kept)))
            if len(whole.encode()) <= budget:
                return _joined(whole, ending), None
        note = f"\n[... of {self._total} bytes only the beginning and the end are shown ...]\n"
        half = (budget - len(note)) // 2
        head = _cut(_text(bytes(self._kept[:half])), half)
        tail = _cut_front(_text(bytes(self._tail[-half:])), half)
        return self._secrecy.hidden(
            _joined(head + note + tail, ending)
        ), self._secrecy.hidden_bytes(bytes(self._kept))


def left_behind(count: int, names: Sequence[str]) -> list[str]:
    """
    Return a line for the result if a command left processes behind that were then ended. Return an
    empty list otherwise.
    """
    if not count:
        return []
    shown = ", ".join(sorted({render(name).text for name in names})[:_LEFT_NAMES_SHOWN])
    more = ", and more" if len(set(names)) > _LEFT_NAMES_SHOWN or count > len(names) else ""
    which = f": {shown}{more}" if shown else ""
    return [f"[ended with it: {count} that it had left behind{which}]"]


def returned_text(text: str, *, outcome: str, secrets: tuple[Secret, ...]) -> ToolReturned:
    """Return a result from a complete text."""
    output = CapturedOutput(secrets=secrets, on_output=lambda _: None)
    output.take_all(text.encode(errors="replace"))
    shown, full = output.view()
    if outcome == "error":
        return ToolReturned(outcome="error", text=shown, full=full)
    return ToolReturned(outcome="ok", text=shown, full=full)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _cut(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode("utf-8", errors="ignore")


def _cut_front(text: str, bytes_max: int) -> str:
    return text.encode()[-bytes_max:].decode("utf-8", errors="ignore")


def _joined(text: str, ending: str) -> str:
    if not ending:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{ending}"
