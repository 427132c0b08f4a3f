"""
Known secrets, found in any text (S1): tokens and codes by their form, other secrets by their value.

Each is found as written, with JSON escapes or a terminal's colours, wrapped over lines,
percent-encoded, in base64 (three alignments, both alphabets), in hex (escaped, or with or without a
space, colon, comma or dash between bytes), and in dumps (`dump_form`). Other encodings,
compression, encryption and a secret in several parts are not found.

`learn` registers secrets in this process. The journal refuses every record that holds one
(`check_draft`), so that no path can skip the check.
"""

import base64
import re
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from holdfast import dump_form, token_form

HIDDEN = "[secret]"
SECRET_CHARS_MIN = 8  # shorter values are ordinary words, and hiding them would mangle every text

Secret = str | bytes
_HIDDEN = HIDDEN.encode()
# A run of backslashes is tried from its first one only: else a long run takes quadratic time. For
# the same reason, searches that end at `\Z` see few bytes, or see them backwards.
_CODED = re.compile(rb"%([0-9A-Fa-f]{2})|(?<!\\)\\+(?:u00|x)([0-9A-Fa-f]{2})")
_DROPPED = b"\\\r\n\t"
_CODES = (b"%", b"\\u00", b"\\x")
# A text without any of these is its own normal form.
_NOT_PLAIN = b"%\x1b" + _DROPPED
# A terminal's colours and moves, which a program may print inside a word.
_CONTROL = re.compile(rb"\x1b\[[0-9;:?]*[@-~]")
_PIECES = re.compile(
    rb"(?:\x1b|%1[Bb]|(?<!\\)\\+u001[Bb])\[[0-9;:?]*[@-~]"
    rb"|%([0-9A-Fa-f]{2})|(?<!\\)\\+(?:(?:u00|x)([0-9A-Fa-f]{2})|[nrt])|[\\\r\n\t]"
)
_CUT_CODE = re.compile(
    rb"(?:(?:\x1b|%1[Bb]|\\+u001[Bb])(?:\[[0-9;:?]*)?|%[0-9A-Fa-f]?|\\+(?:(?:u0{0,2}|x)[0-9A-Fa-f]?)?)\Z"
)
_CUT_CODE_BYTES = 64
_SHORT_LINE_BYTES = 128
_SHORT_LINE = re.compile(rb"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_=-]{0,39}[\r\n]+\Z")
# Hex with one separator between bytes, as `od -tx1` and fingerprints print it.
_PAIRS = re.compile(rb"(?:[0-9a-f]{2}[ :,-]+){7,}[0-9a-f]{2}")
_PAIRS_BEGUN_BACKWARDS = re.compile(rb"[ :,-]*[0-9a-f]{0,2}(?:[ :,-]+[0-9a-f]{2})*(?![0-9a-z])")
_SEPARATORS = b" :,-"
# The same pairs as a shape, in which a run of separators is one blank. To search the shape takes an
# eighth of the time of the expression.
_PAIR_SHAPE = bytes(
    ord("#") if chr(byte) in "0123456789abcdefABCDEF" else ord(" ") if byte in b" :,-" else ord(".")
    for byte in range(256)
)
_EIGHT_PAIRS = b" ".join([b"##"] * 8)
# Eight pairs have six inner ones. Two neighbours may share a blank, and then count as one.
_PAIR_ALONE = b" ## "
_PAIRS_ALONE_MIN = 3
_FEW = 8
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_PADDING = ord("=")
_CODE_BYTES_MAX = 6  # for one byte: \u00XX
_COLOUR_BYTES_MAX = 18  # around one character: as `grep --color=always` prints it


class Secrecy:
    """One compiled set of secrets. Created by `secrecy_of`."""

    def __init__(self, secrets: tuple[Secret, ...]) -> None:
        raw = {form for each in secrets for form in _written(each) if len(form) >= SECRET_CHARS_MIN}
        # Longest first, so that a secret that contains another is hidden whole.
        self._raw = sorted(raw, key=lambda each: (-len(each), each))
        normal = {_normal(each) for each in raw}
        self._normal = sorted(
            (each for each in normal if len(each) >= SECRET_CHARS_MIN),
            key=lambda each: (-len(each), each),
        )
        self._base64 = [core for each in raw for core in _base64_cores(each)]
        self._hex = [each.hex().encode() for each in raw]
        # Bytes that a text holds for certain if it holds a secret or a token, by the form searched.
        self._signs_as_written = (*self._raw, *token_form.STARTS_AS_WRITTEN)
        self._signs_in_normal = (*self._normal, *token_form.STARTS_AS_WRITTEN)
        self._signs_in_base64 = (*self._base64, *token_form.STARTS_IN_BASE64)
        self._signs_in_hex = (*self._hex, *token_form.STARTS_IN_HEX)
        longest = max([token_form.TOKEN_CHARS, *map(len, raw)])
        self._window = (_CODE_BYTES_MAX + _COLOUR_BYTES_MAX) * longest
        self._dump_window = dump_form.LINE_CHARS_PER_BYTE * longest

    def holds(self, text: str | bytes) -> bool:
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self.may_hold(data) and self._has_span(data)

    def may_hold(self, data: bytes) -> bool:
        """
        Take a quick look, since every record is checked and hardly any holds a secret. Without a
        sign of a secret there is none. With a sign, the search for spans decides.

        Signs do not depend on their surroundings: lines that are joined have every sign that one of
        them has. `map` searches for all signs without a step of the interpreter for each.
        """
        normal = _normal(data)
        # `find`, not `in`: for `in`, CPython takes the sign for a number first, and makes and drops
        # an error each time. In a plain text, the normal forms are the secrets as written too.
        if (
            (normal is not data and max(map(data.find, self._signs_as_written)) >= 0)
            or max(map(normal.find, self._signs_in_normal)) >= 0
            or max(map(normal.translate(_STANDARD).find, self._signs_in_base64)) >= 0
            or max(map(normal.lower().find, self._signs_in_hex)) >= 0
            or max(map(data.translate(dump_form.SHAPE).find, dump_form.SHAPES)) >= 0
        ):
            return True
        pairs = normal.translate(_PAIR_SHAPE)
        if pairs.count(_PAIR_ALONE) < _PAIRS_ALONE_MIN:
            return False
        while pairs.find(b"  ") >= 0:  # each pass halves the longest run
            pairs = pairs.replace(b"  ", b" ")
        return pairs.find(_EIGHT_PAIRS) >= 0

    def _has_span(self, data: bytes) -> bool:
        return (
            any(self._spans_as_written(data))
            or any(self._normal_spans(_normal(data)))
            or any(self._dump_spans(data))
        )

    def _normal_spans(self, normal: bytes) -> Iterator[tuple[int, int]]:
        """Find spans in a text without escapes and line ends."""
        yield from _spans(self._normal, normal)
        yield from token_form.spans_as_written(normal)
        standard = normal.translate(_STANDARD)
        for span in (*_spans(self._base64, standard), *token_form.spans_in_base64(standard)):
            yield _widened(span, standard)
        lower = normal.lower()
        yield from self._hex_spans(lower)
        for pairs in _PAIRS.finditer(lower):
            if any(self._hex_spans(pairs[0].translate(None, _SEPARATORS))):
                yield pairs.span()

    def _dump_spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        if dump_form.may_hold(data):
            yield from dump_form.spans(data, self._spans_as_written)

    def _spans_as_written(self, data: bytes) -> Iterator[tuple[int, int]]:
        yield from _spans(self._raw, data)
        yield from token_form.spans_as_written(data)

    def _hex_spans(self, lower: bytes) -> Iterator[tuple[int, int]]:
        yield from _spans(self._hex, lower)
        yield from token_form.spans_in_hex(lower)

    def hidden(self, text: str) -> str:
        """
        >>> secrecy_of(("correct horse",)).hidden("it is correct horse, or Y29ycmVjdCBob3JzZQ==")
        'it is [secret], or [secret]'
        """
        return (
            self.hidden_bytes(text.encode("utf-8", "surrogatepass")).decode(
                "utf-8", "surrogatepass"
            )
            if self.holds(text)
            else text
        )

    def hidden_bytes(self, data: bytes) -> bytes:
        if not self.holds(data):
            return data
        normal, origins = _normal_with_origins(data)
        spans = [*self._spans_as_written(data), *self._dump_spans(data)]
        spans += [(origins[start], origins[end]) for start, end in self._normal_spans(normal)]
        shown = _without(data, spans)
        # Escapes within escapes: nothing of it can be shown.
        return shown if not self.holds(shown) else _HIDDEN

    def hidden_json(self, body: bytes) -> bytes:
        """
        Hide secrets in one JSON object. Its strings are checked one by one, keys included, so the
        result is JSON.
        """
        if not self.holds(body):
            return body
        return msgspec.json.encode(self._hidden_value(msgspec.json.decode(body)))

    def _hidden_value(self, value: object) -> object:
        match value:
            case str():
                return self.hidden(value)
            case dict():
                return {
                    self.hidden(str(key)): self._hidden_value(each) for key, each in value.items()
                }
            case list():
                return [self._hidden_value(each) for each in value]
            case _:
                return value

    def streamed(self, on_text: Callable[[str], None]) -> "StreamedText":
        return StreamedText(self, on_text)

    def safe_length(self, data: bytes) -> int:
        """The length up to which no incomplete secret can have begun."""
        tail = data[-self._window :]
        cut = _CUT_CODE.search(tail, max(0, len(tail) - _CUT_CODE_BYTES))
        whole = tail[: cut.start()] if cut is not None else tail
        normal, origins = _normal_with_origins(whole)
        standard, lower = normal.translate(_STANDARD), normal.lower()
        begun = max(
            token_form.begun_as_written(normal),
            token_form.begun_in_base64(standard),
            token_form.begun_in_hex(lower),
            _begun(self._normal, normal),
            _begun(self._base64, standard),
            _begun(self._hex, lower),
            _begun_in_pairs(lower),
        )
        if begun < _FEW and _SHORT_LINE.search(whole, max(0, len(whole) - _SHORT_LINE_BYTES)):
            # Only lines as long as wrapped ones continue in the next, so a short line is shown when
            # it ends.
            begun = 0
        begun_raw = _begun(self._raw, tail)
        start = len(whole) if not begun else origins[len(normal) - begun]
        safe = len(data) - len(tail) + min(start, len(tail) - begun_raw)
        return min(safe, len(data) - dump_form.begun(data[-self._dump_window :]))


class StreamedText:
    """
    Pieces of text on their way to followers. The end of a piece may cut a secret, so a possible
    beginning is held back.
    """

    def __init__(self, secrecy: Secrecy, on_text: Callable[[str], None]) -> None:
        self._secrecy = secrecy
        self._on_text = on_text
        self._bytes = StreamedBytes(secrecy, self._hear)

    def _hear(self, data: bytes) -> None:
        self._on_text(data.decode("utf-8", "surrogatepass"))

    def hear(self, piece: str) -> None:
        self._bytes.hear(piece.encode("utf-8", "surrogatepass"))

    def end(self) -> None:
        self._bytes.end()


class StreamedBytes:
    """Like `StreamedText`, for bytes as they are read."""

    def __init__(self, secrecy: Secrecy, on_bytes: Callable[[bytes], None]) -> None:
        self._secrecy = secrecy
        self._on_bytes = on_bytes
        self._held = b""

    def hear(self, piece: bytes) -> None:
        data = self._secrecy.hidden_bytes(self._held + piece)
        cut = self._secrecy.safe_length(data)
        while 0 < cut < len(data) and data[cut] & 0xC0 == 0x80:  # noqa: PLR2004  # the middle of a character
            cut -= 1
        self._held = data[cut:]
        if cut:
            self._on_bytes(data[:cut])

    def end(self) -> None:
        """End of stream: send the held-back text. It cannot be the start of a secret."""
        held, self._held = self._held, b""
        if held:
            self._on_bytes(self._secrecy.hidden_bytes(held))


@lru_cache(maxsize=64)
def secrecy_of(secrets: tuple[Secret, ...]) -> Secrecy:
    return Secrecy(secrets)


_known: dict[int, tuple[Secret, ...]] = {}
_changing = threading.Lock()
_everything = secrecy_of(())


def learn(owner: object, secrets: tuple[Secret, ...]) -> None:
    """
    Until `forget`, no journal of this process accepts these secrets. They replace those that the
    same owner named before.
    """
    with _changing:
        _known[id(owner)] = secrets
        _compile()


def forget(owner: object) -> None:
    with _changing:
        if _known.pop(id(owner), None):
            _compile()


def _compile() -> None:
    global _everything  # noqa: PLW0603  # a process knows one set of secrets
    _everything = secrecy_of(
        tuple(dict.fromkeys(each for some in _known.values() for each in some))
    )


def known() -> Secrecy:
    """The secrets that this process knows."""
    return _everything


def _written(secret: Secret) -> tuple[bytes, ...]:
    """
    The secret's bytes. For a variable whose bytes are not text, also the form that a program gets
    by decoding them.
    """
    data = secret.encode("utf-8", "surrogateescape") if isinstance(secret, str) else secret
    return (data, data.decode("utf-8", "replace").encode()) if isinstance(secret, str) else (data,)


def _base64_cores(secret: bytes) -> Iterator[bytes]:
    """The characters that the secret fills alone, for each place in a group of three bytes."""
    for before, first in ((0, 0), (1, 2), (2, 3)):
        yield base64.b64encode(bytes(before) + secret)[first : (before + len(secret)) * 8 // 6]


def _normal(data: bytes) -> bytes:
    r"""
    Without escapes and line ends. A plain text is returned itself.

    >>> _normal(rb"a\"b\u0063%64\ne")
    b'a"bcde'
    """
    if len(data.translate(None, _NOT_PLAIN)) == len(data):
        return data
    if max(map(data.find, _CODES)) >= 0:
        data = _CODED.sub(_decoded, data)
    if data.find(b"\\") >= 0:
        data = data.replace(b"\\n", b"").replace(b"\\r", b"").replace(b"\\t", b"")
    if data.find(b"\x1b") >= 0:
        data = _CONTROL.sub(b"", data)
    return data.translate(None, _DROPPED)


def _decoded(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1] or found[2], 16)])


def _normal_with_origins(data: bytes) -> tuple[bytes, list[int]]:
    """Like `_normal`, with the origin of each byte; the last entry is the end of the data."""
    normal, at = bytearray(), 0
    origins: list[int] = []
    for found in _PIECES.finditer(data):
        normal += data[at : found.start()]
        origins += range(at, found.start())
        if (found[1] or found[2]) and (decoded := _decoded(found)) not in _DROPPED:
            normal += decoded
            origins.append(found.start())
        at = found.end()
    normal += data[at:]
    origins += range(at, len(data) + 1)
    return bytes(normal), origins


def _spans(needles: list[bytes], data: bytes) -> Iterator[tuple[int, int]]:
    for each in needles:
        at = data.find(each)
        while at >= 0:
            yield at, at + len(each)
            at = data.find(each, at + len(each))


def _widened(span: tuple[int, int], standard: bytes) -> tuple[int, int]:
    """Widen a base64 span by the characters that it shares with its neighbours, and its padding."""
    start, end = span
    if start and standard[start - 1] in _BASE64:
        start -= 1
    if end < len(standard) and standard[end] in _BASE64:
        end += 1
    while end < len(standard) and standard[end] == _PADDING:
        end += 1
    return start, end


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    shown: list[bytes] = []
    at = 0
    for start, end in sorted(spans):
        if start > at or not shown:
            shown += [data[at:start], _HIDDEN]
        at = max(at, end)
    return b"".join([*shown, data[at:]])


def _begun_in_pairs(lower: bytes) -> int:
    """Count the bytes at the end that may be hex with separators, the last pair perhaps cut."""
    found = _PAIRS_BEGUN_BACKWARDS.match(lower[::-1])
    return found.end() if found is not None else 0


def _begun(needles: list[bytes], data: bytes) -> int:
    """Count the bytes at the end that are the beginning of one of these."""
    longest = 0
    for each in needles:
        window = data[max(len(data) - len(each) + 1, 0) :]
        at = window.find(each[:1])
        while 0 <= at < len(window) - longest:
            if each.startswith(window[at:]):
                longest = len(window) - at
                break
            at = window.find(each[:1], at + 1)
    return longest
