"""
S1, at its one place: secrets are found however they are written, and hidden however they are cut.
"""

import base64
import os
import shutil
import string
import subprocess
import urllib.parse
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import Refused
from holdfast.journal.record import Draft, check_draft, check_drafts
from holdfast.secrecy import (
    HIDDEN,
    SECRET_CHARS_MIN,
    Secrecy,
    StreamedBytes,
    forget,
    known,
    learn,
    secrecy_of,
)
from holdfast.token_form import TOKEN_CHARS, is_token, token_of

TOKEN = token_of(bytes(range(32)))
KEY = bytes(range(200, 232))
PASSPHRASE = 'corr"ect \\ horse\nbattery'


def wrapped(text: str, width: int) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))


def percent_all(data: bytes) -> str:
    return "".join(f"%{each:02x}" for each in data)


COLOUR, PLAIN = "\x1b[01;31m\x1b[K", "\x1b[m\x1b[K"  # as `grep --color=always` marks a match

FORMS = {
    "coloured": lambda data: (
        COLOUR + data[:3].decode("latin-1") + PLAIN + data[3:].decode("latin-1")
    ),
    "coloured, each": lambda data: "".join(COLOUR + chr(each) + PLAIN for each in data),
    "coloured in json": lambda data: msgspec.json.encode(
        data[:9].decode("latin-1") + "\x1b[38;5;9m" + data[9:].decode("latin-1")
    ).decode()[1:-1],
    "as written": lambda data: data.decode("latin-1"),
    "json": lambda data: msgspec.json.encode(data.decode("latin-1")).decode()[1:-1],
    "json in json": lambda data: msgspec.json.encode(
        msgspec.json.encode(data.decode("latin-1")).decode()
    ).decode(),
    "json of escapes": lambda data: "".join(f"\\u{each:04x}" for each in data),
    "json of escapes in json": lambda data: "".join(f"\\\\u{each:04X}" for each in data),
    "base64": lambda data: base64.b64encode(data).decode(),
    "base64, one before": lambda data: base64.b64encode(b"x" + data).decode(),
    "base64, two before": lambda data: base64.b64encode(b"xy" + data + b"z").decode(),
    "base64, urlsafe": lambda data: base64.urlsafe_b64encode(b"\xff\xfe" + data).decode(),
    "base64, no padding": lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
    "base64, wrapped": lambda data: wrapped(
        base64.b64encode(b"some text before it, " + data).decode(), 76
    ),
    "base64, wrapped in json": lambda data: msgspec.json.encode(
        wrapped(base64.b64encode(data).decode(), 19)
    ).decode(),
    "base64, percent": lambda data: urllib.parse.quote(
        base64.b64encode(data + b"\xff\xff").decode()
    ),
    "hex": lambda data: data.hex(),
    "HEX": lambda data: data.hex().upper(),
    "hex, mixed": lambda data: "".join(
        each.upper() if number % 3 else each for number, each in enumerate(data.hex())
    ),
    "hex, wrapped": lambda data: wrapped(data.hex(), 60),
    "hex of escapes": lambda data: "".join(f"\\x{each:02x}" for each in data),
    "hex of escapes in json": lambda data: "".join(f"\\\\x{each:02X}" for each in data),
    "percent, all": percent_all,
    "percent, ALL": lambda data: percent_all(data).upper(),
    "percent, some": lambda data: "".join(
        f"%{each:02X}" if number % 2 else chr(each) for number, each in enumerate(data)
    ),
}
SECRETS = {"token": (TOKEN, ()), "passphrase": (PASSPHRASE, (PASSPHRASE,)), "key": (KEY, (KEY,))}
TEXTUAL = [
    name
    for name in FORMS
    if name not in ("as written", "json", "json in json", "percent, some")
    and not name.startswith("coloured")
]
TABLE = [(secret, form) for secret in SECRETS for form in (TEXTUAL if secret == "key" else FORMS)]


def written(secret: str, form: str) -> tuple[Secrecy, str]:
    value, known_ones = SECRETS[secret]
    return secrecy_of(known_ones), FORMS[form](
        value if isinstance(value, bytes) else value.encode()
    )


@pytest.mark.parametrize(("secret", "form"), TABLE)
def test_each_form_of_a_secret_is_found_and_hidden(secret: str, form: str) -> None:
    secrecy, text = written(secret, form)
    around = f"before {text} after"
    assert secrecy.holds(around)
    assert secrecy.holds(around.encode())
    hidden = secrecy.hidden(around)
    assert (hidden.startswith("before "), hidden.endswith(" after"), HIDDEN in hidden) == (
        True,
        True,
        True,
    )
    assert not secrecy.holds(hidden)
    assert (
        len(hidden) < len("before [secret] after") + 40
    )  # what goes with it in one blob may stay, the secret's own characters do not


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 64])
@pytest.mark.parametrize(("secret", "form"), TABLE)
def test_no_cut_of_a_stream_lets_a_secret_out(secret: str, form: str, size: int) -> None:
    secrecy, text = written(secret, form)
    heard: list[str] = []
    streamed = secrecy.streamed(heard.append)
    around = f"before {text} after {text}"
    for start in range(0, len(around), size):
        streamed.hear(around[start : start + size])
    streamed.end()
    out = "".join(heard)
    assert (out.startswith("before "), " after " in out, HIDDEN in out) == (True, True, True)
    assert not secrecy.holds(out)
    assert len(out) < len("before [secret] after [secret]") + 70


def test_a_line_that_begins_no_secret_is_not_held_back() -> None:
    """Followers see a line when it is printed, not when the next one is."""
    heard: list[str] = []
    streamed = secrecy_of((PASSPHRASE, KEY)).streamed(heard.append)
    for line in (
        "ready to go now\n",
        "tick\n",
        "50 % done, it is fine.\n",
        "12346\n",
        "oh\n",
        "epoch\n",
        "a\r\n",
        "hf\n",
    ):
        heard.clear()
        streamed.hear(line)
        assert "".join(heard) == line


@given(st.binary(min_size=32, max_size=32))
def test_every_token_is_recognised_and_none_of_its_neighbours(random: bytes) -> None:
    token = token_of(random)
    assert (len(token), is_token(token), token.isascii()) == (TOKEN_CHARS, True, True)
    for at in (3, 20, TOKEN_CHARS - 1):
        other = next(each for each in string.ascii_letters if each != token[at])
        assert not secrecy_of(()).holds(token[:at] + other + token[at + 1 :])


def test_a_text_that_resembles_a_token_is_not_a_secret() -> None:
    for text in (
        "hf_" + "a" * 49,
        "hf_" + "a" * 34,
        TOKEN[:-1],
        TOKEN.removeprefix("hf_"),
        TOKEN.swapcase(),
    ):
        assert not secrecy_of(()).holds(text), text


@given(
    st.text()
    | st.binary().map(lambda data: base64.b64encode(data).decode())
    | st.binary().map(bytes.hex)
)
@example("%")
@example("\\u00")
@example("a%4")
def test_text_without_a_secret_comes_through_as_it_is(text: str) -> None:
    secrecy = secrecy_of((PASSPHRASE, KEY, "sk-" + "0123456789"))
    heard: list[str] = []
    streamed = secrecy.streamed(heard.append)
    for char in text:
        streamed.hear(char)
    streamed.end()
    assert ("".join(heard), secrecy.hidden(text)) == (text, text)


def test_words_are_not_secrets() -> None:
    assert SECRET_CHARS_MIN == 8
    assert not secrecy_of(("hunter2",)).holds("hunter2")
    assert secrecy_of(("hunter22",)).holds("hunter22")


def test_hidden_json_stays_valid_json() -> None:
    secrecy = secrecy_of((PASSPHRASE,))
    body = msgspec.json.encode({PASSPHRASE: [1, {"a": f"x {TOKEN}"}], "plain": None})
    assert msgspec.json.decode(secrecy.hidden_json(body)) == {
        HIDDEN: [1, {"a": f"x {HIDDEN}"}],
        "plain": None,
    }


@pytest.mark.parametrize("form", ["base64", "hex", "percent, all", "json of escapes"])
def test_no_record_is_written_that_holds_what_the_process_knows(form: str) -> None:
    """
    The last guard, below every store: `check_draft` is asked before each record of a session or of
    the home.
    """
    owner, secret = object(), "a secret " + os.urandom(8).hex()
    for value in (secret, TOKEN):
        body = msgspec.json.encode({"text": FORMS[form](value.encode())})
        learn(owner, (secret,))
        try:
            with pytest.raises(Refused) as refused:
                check_draft(Draft("input_accepted", 1, body))
            assert (refused.value.code, value in str(refused.value)) == ("secret", False)
        finally:
            forget(owner)
    check_draft(Draft("input_accepted", 1, msgspec.json.encode({"text": secret})))
    assert not known().holds(secret)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_secret_is_found_among_the_records_of_one_commit(form: str, place: int) -> None:
    """The bodies are looked at together first, which must not hide what one of them holds."""
    owner, secret = object(), "a secret " + os.urandom(8).hex()
    drafts = [Draft("note", 1, b'{"n":1}'), Draft("note", 1, b'{"text":"50% of 0a 0b 0c"}')]
    body = msgspec.json.encode({"text": FORMS[form](secret.encode())})
    drafts.insert(place, Draft("input_accepted", 1, body))
    learn(owner, (secret,))
    try:
        with pytest.raises(Refused, match="input_accepted"):
            check_drafts(drafts)
    finally:
        forget(owner)


@pytest.mark.parametrize("separator", [" ", ":", ", ", "  ", "-"])
@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
def test_hex_in_groups_is_found_and_no_piece_of_it_is_streamed(
    separator: str, piece_bytes: int
) -> None:
    """As `od -An -tx1` prints it: sixteen bytes to a line."""
    secret, seen = "correct horse battery", list[bytes]()
    digits = [f"{byte:02x}" for byte in secret.encode()]
    text = f" {separator.join(digits[:16])}\n {separator.join(digits[16:])}\nafter".encode()
    streamed = StreamedBytes(secrecy_of((secret,)), seen.append)
    for start in range(0, len(text), piece_bytes):
        streamed.hear(text[start : start + piece_bytes])
    streamed.end()
    assert b"".join(seen).replace(b"\n", b"").strip() == b"[secret]after"
    assert not secrecy_of((secret,)).holds(f"{separator.join(digits[:-1])} and more")


@pytest.mark.parametrize("secret", ["eleven 1", "eleven 11"])
@example([" "] * 8, str.lower, "")
@given(
    st.lists(st.text(alphabet=" :,-", min_size=1, max_size=9), min_size=8, max_size=8),
    st.sampled_from([str.lower, str.upper]),
    st.sampled_from(["", "f", "x", "0", " ", "::"]),
)
def test_hex_in_groups_is_found_with_any_separators(
    secret: str, separators: list[str], cased: Callable[[str], str], around: str
) -> None:
    digits = [f"{byte:02x}" for byte in secret.encode()]
    text = digits[0] + "".join(map("".join, zip(separators, digits[1:], strict=False)))
    assert secrecy_of((secret,)).holds(around + cased(text) + around)


SEVERAL_FORMATS = (
    ("od", "-tx1", "-c"),
    ("od", "-tx4", "-c"),
    ("od", "-ta", "-to1", "-tx2"),
    ("od", "-x", "-c", "-b"),
)
DUMPS = (
    *SEVERAL_FORMATS,
    *(("xxd",), ("xxd", "-c", "8"), ("xxd", "-c", "1"), ("xxd", "-g", "1"), ("xxd", "-g", "8")),
    *(("xxd", "-e"), ("xxd", "-u"), ("xxd", "-i"), ("xxd", "-o", "305419896"), ("hexdump", "-C")),
    *(("hexdump",), ("hexdump", "-b"), ("hexdump", "-c"), ("hexdump", "-o"), ("hexdump", "-x")),
    *(("od",), ("od", "-b"), ("od", "-c"), ("od", "-x"), ("od", "-tx1"), ("od", "-tx4")),
    *(("od", "-tx8"), ("od", "-ta"), ("od", "-to4"), ("od", "-A", "x", "-t", "x1z")),
    *(("od", "-An", "-x"), ("od", "-An", "-tx4"), ("od", "-A", "d", "-tx1", "-w8")),
)


def dumped(tool: tuple[str, ...], data: bytes) -> str:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    done = subprocess.run(tool, input=data, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("secret", [TOKEN, "a passphrase of four words"])
@pytest.mark.parametrize("before", [b"", b"token = ", b"1\n23456789 0123456789\n"])
@pytest.mark.parametrize("tool", DUMPS, ids=" ".join)
def test_a_dump_that_shows_a_secret_is_found_hidden_and_not_streamed(
    tool: tuple[str, ...], before: bytes, secret: str
) -> None:
    """S1: with offsets, in words of either byte order, in octal and as characters."""
    rest = b"\nthe lines behind it are of no interest to anybody\n"
    text = f"ready\n{dumped(tool, before + secret.encode() + rest)}after\n"
    secrecy = secrecy_of((secret,) if secret != TOKEN else ())
    body = msgspec.json.encode({"text": text})
    if secrecy.holds(body):
        assert not secrecy.holds(secrecy.hidden_json(body))
    else:  # escapes of JSON and the escapes of `-c` can't be told apart
        assert "-c" in tool
    assert secrecy.holds(text)
    hidden = secrecy.hidden(text)
    assert hidden.startswith("ready\n")
    assert hidden.endswith("after\n")
    assert not secrecy.holds(hidden)
    sizes = (1, 7, 1000) if (before, secret) == (b"", TOKEN) else (7, 1000)
    for size in sizes:
        heard: list[str] = []
        streamed = secrecy.streamed(heard.append)
        for start in range(0, len(text), size):
            streamed.hear(text[start : start + size])
        streamed.end()
        shown = "".join(heard)
        assert not secrecy.holds(shown)
        # A live stream may show the end of a secret in the second format of its last line.
        for line in text.splitlines() if tool not in SEVERAL_FORMATS else ():
            if line not in hidden.splitlines():
                assert line not in shown
        assert HIDDEN in shown


@pytest.mark.parametrize("tool", DUMPS, ids=" ".join)
def test_a_dump_that_ends_with_a_secret_is_found(tool: tuple[str, ...]) -> None:
    """The last group of a dump may be short, and stand far from the one before it."""
    for length in range(20, 36):
        secret = "a passphrase of seven words, or of eight"[:length].strip()
        assert secrecy_of((secret,)).holds(dumped(tool, secret.encode())), length


def test_a_dump_without_a_secret_comes_through_as_it_is() -> None:
    secrecy = secrecy_of((PASSPHRASE, KEY))
    data = bytes(range(199)) + b"nothing to see here\n" * 9
    for tool in DUMPS:
        text = dumped(tool, data)
        heard: list[str] = []
        streamed = secrecy.streamed(heard.append)
        for line in text.splitlines(keepends=True):
            streamed.hear(line)
        streamed.end()
        assert ("".join(heard), secrecy.hidden(text)) == (text, text)


@pytest.mark.parametrize("inside", ["%1b%5b31m", "\\u001b%5b31m"])
def test_a_text_in_which_a_secret_can_be_found_and_not_placed_is_hidden_whole(inside: str) -> None:
    """Escapes within escapes: which bytes of the text are the secret's is not known."""
    text = f"before {TOKEN[:9]}{inside}{TOKEN[9:]} after"
    assert secrecy_of(()).holds(text)
    assert secrecy_of(()).hidden(text) == HIDDEN


HOSTILE = {
    "blanks": b" " * 150_000 + b"x",
    "line ends": b"\n" * 150_000 + b"x",
    "backslashes": b"\\" * 150_000 + b"x\\u0041%41",
    "pairs and more": b"be " * 50_000 + b"abc",
    "offsets": b"0000000 " * 20_000 + b"x",
    "one offset and blanks": b"0000000" + b" " * 150_000 + b"x",
    "cells": b"0000000" + b"   h" * 40_000 + b"  x",
    "begun escapes": b"\x1b[" * 70_000 + b"x",
    "a long escape": b"\x1b[" + b"1;" * 70_000 + b"\n",
    "lines of a dump": b"0000000 1\n" * 15_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_makes_the_search_for_a_long_secret_slow(name: str) -> None:
    """Each takes a moment; one search that is quadratic takes minutes, and the test is cut off."""
    secrecy, data = secrecy_of(("-" + "k" * 4096,)), HOSTILE[name]
    assert not secrecy.holds(data)
    heard: list[bytes] = []
    streamed = StreamedBytes(secrecy, heard.append)
    for start in range(0, len(data), 50_000):
        streamed.hear(data[start : start + 50_000])
    streamed.end()
    assert b"".join(heard) == data
