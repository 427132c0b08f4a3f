"""
No known secret goes into a journal, a stream, a prompt or an error (S1): our keys and tokens, provider keys, variables that settings name.

Text that comes from a person is refused, so that they know; text that comes from a model or its provider is hidden; a call whose arguments hold one is refused.
Short values are words, and are left alone.
"""

import msgspec

from holdfast.ports.model import OnText
from holdfast.session.messages import ModelAnswer

HIDDEN = "[secret]"
_CHARS_MIN = 6


class Secrecy:
    def __init__(self, secrets: tuple[str, ...]) -> None:
        forms = {form for each in secrets if len(each) >= _CHARS_MIN for form in _forms(each)}
        # Longest first, so that one that contains another is hidden whole.
        self._forms = tuple(sorted(forms, key=lambda each: (-len(each), each)))

    def holds(self, text: str) -> bool:
        """As written, or as JSON would write it."""
        return any(each in text for each in self._forms)

    def hidden(self, text: str) -> str:
        for each in self._forms:
            text = text.replace(each, HIDDEN)
        return text

    def hidden_answer(self, answer: ModelAnswer) -> tuple[ModelAnswer, frozenset[int]]:
        """The answer as it may be kept, and which of its calls held a secret: those may not run."""
        if not self._forms or not self.holds(msgspec.json.encode(answer).decode()):
            return answer, frozenset()
        refused = frozenset(index for index, call in enumerate(answer.calls) if self.holds(call.arguments))
        calls = tuple(msgspec.structs.replace(call, arguments=self.hidden(call.arguments)) for call in answer.calls)
        return msgspec.structs.replace(answer, text=self.hidden(answer.text), calls=calls, blob=None, blob_adapter=None), refused

    def streamed(self, on_text: OnText) -> "StreamedText":
        return StreamedText(self, on_text, max(map(len, self._forms), default=0))


def _forms(secret: str) -> tuple[str, str]:
    """As it is written, and as JSON writes it. Of a variable whose bytes are no text: as they read once somebody has made text of them."""
    text = secret.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text, msgspec.json.encode(text).decode()[1:-1]


class StreamedText:
    """Pieces of text on their way to followers. A secret may be cut by a piece's end, so the last few characters are held back."""

    def __init__(self, secrecy: Secrecy, on_text: OnText, longest: int) -> None:
        self._secrecy = secrecy
        self._on_text = on_text
        self._held_max = max(longest - 1, 0)
        self._held = ""

    def hear(self, piece: str) -> None:
        if not self._held_max:
            self._on_text(piece)
            return
        text = self._secrecy.hidden(self._held + piece)
        cut = max(len(text) - self._held_max, 0)
        self._held = text[cut:]
        self._on_text(text[:cut])

    def end(self) -> None:
        """Nothing more comes: what was held back is no secret's beginning."""
        if self._held:
            self._on_text(self._held)
            self._held = ""
