"""
Every parser takes any bytes; see `proof.fuzz.command`. Here driven by Hypothesis, a few hundred
examples each; in `make test-long` by thousands, and by atheris, which is guided by coverage. `make
fuzz` goes on for as long as it is let.
"""

import errno
import importlib.util
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proof.fuzz import parsers
from proof.fuzz.command import TARGETS
from proof.fuzz.http import the_gateway
from proof.fuzz.parsers import Found

from holdfast.runtime.service import Service

PIECES = [
    b'{"', b'":', b'"}', b"[", b"]", b"\\u202e", b"\\ud800", b"1e999", b"NaN", b"null", b"true", b'"call":', b'"say":', b'"tool":', b'"text":', b'"what":', b"$(", b"`",
    b"\x00", b"\xff", b"\xc3\x28", b"\n", b"\r\n", b" HTTP/1.1", b"Host: ", b"Content-Length: ", b"Transfer-Encoding: chunked", b"%2e%2e/", b"9" * 30, b"<(",
]  # fmt: skip
DATA = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=6)), max_size=30).map(b"".join),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Every request that can't be read would be told."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_any_bytes_are_read_or_refused(name: str) -> None:
    """D4, D8, P4, G1: never a failure of our own, never a wrong result."""

    @settings(max_examples=settings().max_examples * 5, deadline=None)
    @given(data=DATA)
    def fuzz(data: bytes) -> None:
        TARGETS[name](data)

    fuzz()


def test_a_parser_that_believes_anything_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target notices a parser that accepts everything."""
    monkeypatch.setattr(parsers, "believe", lambda *_: object())
    with pytest.raises(Found, match="believed"):
        TARGETS["record"](b"x")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_coverage_leads_to_nothing_else(tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: `make fuzz` installs it")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "proof.fuzz.command",
            name,
            "--seconds",
            "60",
            "--corpus",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_disk_that_refuses_to_be_read_is_reported_as_something_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    An error of the system's in a request is not a bug of ours, and its path is nobody's business.
    """

    async def refused(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/somewhere/secret")

    gateway = the_gateway()
    monkeypatch.setattr(Service, "show", refused)
    said = gateway.answers(
        f"GET /v1/sessions/ops/api HTTP/1.1\r\nHost: 127.0.0.1:8321\r\nAuthorization: Bearer {gateway.token}\r\n\r\n".encode()
    )
    assert (said.split(b" ", 2)[1], b'"code":"io"' in said, b"secret" in said) == (
        b"503",
        True,
        False,
    )
