"""Signatures of Standard Webhooks: the standard's own example, and everything that is off by one."""

import base64
from typing import Any

import pytest

from holdfast.gateway.routes.hooks import TAKEN_AT_ONCE, TAKEN_PER_SECOND
from holdfast.limits import DEDUP_INPUTS
from holdfast.webhook_signature import WINDOW_SECONDS, is_signed, secret_bytes, signature

# The example of the specification, version 1.0.0.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def key() -> bytes:
    found = secret_bytes(SECRET)
    assert found is not None
    return found


def check(**changed: Any) -> bool:
    given: dict[str, Any] = {
        "ident": ID,
        "timestamp": str(AT),
        "signatures": SIGNED,
        "body": BODY,
        "now_seconds": AT,
    }
    return is_signed((key(),), **(given | changed))


def test_the_example_of_the_standard_holds() -> None:
    assert signature(key(), ident=ID, timestamp=AT, body=BODY) == SIGNED
    assert check()


@pytest.mark.parametrize(
    "changed",
    [
        {"ident": "msg_other"},
        {"ident": None},
        {"ident": ""},
        {"ident": "msg.p5"},
        {"ident": "x" * 201},
        {"timestamp": str(AT + 1)},
        {"timestamp": "now"},
        {"timestamp": f"+{AT}"},
        {"timestamp": f" {AT}"},
        {"timestamp": None},
        {"timestamp": "9" * 400},
        {"signatures": None},
        {"signatures": ""},
        {"signatures": SIGNED.removeprefix("v1,")},
        {"signatures": SIGNED.replace("v1,", "v1a,")},
        {"signatures": SIGNED.replace("v1,", "v2,")},
        {"signatures": "v1,"},
        {"signatures": "v1,\u00e9"},
        {"signatures": SIGNED.lower()},
        {"signatures": " ".join(["v1,AAAA"] * 8 + [SIGNED])},
        {"body": BODY + b" "},
        {"body": b""},
        {"now_seconds": AT + 301},
        {"now_seconds": AT - 301},
    ],
    ids=str,
)
def test_everything_else_is_refused(changed: dict[str, Any]) -> None:
    assert not check(**changed)


@pytest.mark.parametrize(
    "changed",
    [
        {"now_seconds": AT + 300},
        {"now_seconds": AT - 300},
        {"signatures": f"v1,AAAA {SIGNED}"},
        {"signatures": f"v1a,AAAA {SIGNED} v2,x"},
    ],
    ids=str,
)
def test_a_changing_key_and_a_clock_that_is_a_little_off_are_fine(changed: dict[str, Any]) -> None:
    assert check(**changed)


def test_an_id_cannot_be_moved_into_the_timestamp() -> None:
    """`a.1` with `2` and `a` with `1.2` would be the same signed bytes."""
    moved = signature(key(), ident=f"{ID}.{AT}", timestamp=AT, body=BODY)
    assert not check(ident=f"{ID}.{AT}", signatures=moved)


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "whsec_QUJD", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_*", "whsec_é"],
)
def test_a_malformed_secret_is_refused(text: str) -> None:
    assert secret_bytes(text) is None


def test_a_secret_of_the_standards_least_length_is_taken() -> None:
    assert secret_bytes("whsec_" + base64.b64encode(bytes(24)).decode()) == bytes(24)
    assert secret_bytes("whsec_" + base64.b64encode(bytes(23)).decode()) is None


def test_no_key_is_forgotten_while_its_signature_holds() -> None:
    """A recorded request that is sent again is the same message, however many came between."""
    window_seconds = 2 * WINDOW_SECONDS
    assert TAKEN_AT_ONCE + TAKEN_PER_SECOND * window_seconds < DEDUP_INPUTS
