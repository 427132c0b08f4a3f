"""
S1, at its one place: secrets are found however they are written, and hidden however they are cut.
"""

import base64
import os
import string
import urllib.parse

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import Refused
from holdfast.journal.record import Draft, check_draft
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


FORMS = {
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
    "percent, all": percent_all,
    "percent, ALL": lambda data: percent_all(data).upper(),
    "percent, some": lambda data: "".join(
        f"%{each:02X}" if number % 2 else chr(each) for number, each in enumerate(data)
    ),
}
SECRETS = {"token": (TOKEN, ()), "passphrase": (PASSPHRASE, (PASSPHRASE,)), "key": (KEY, (KEY,))}
TEXTUAL = [
    name for name in FORMS if name not in ("as written", "json", "json in json", "percent, some")
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


def test_what_only_looks_like_a_token_is_none() -> None:
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


def test_words_are_no_secrets() -> None:
    assert SECRET_CHARS_MIN == 8
    assert not secrecy_of(("hunter2",)).holds("hunter2")
    assert secrecy_of(("hunter22",)).holds("hunter22")


def test_what_is_json_stays_json_when_it_is_hidden() -> None:
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


@pytest.mark.parametrize("separator", [" ", ":", ", ", "  "])
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
