"""
Strict JSON: what could mean two things to two readers is refused before it is digested, and no
input harms the reader.
"""

import pytest

from holdfast.errors import Refused
from holdfast.journal.strict import strict_json
from holdfast.limits import INTEGER_MAX, JSON_DEPTH_MAX


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"cmd":"ls","cmd":"rm"}', "twice"),
        ('{"a":{"b":1,"b":1}}', "twice"),
        ('{"a":1,"\\u0061":2}', "twice"),
        ("NaN", "NaN"),
        ("[Infinity]", "Infinity"),
        ("[-Infinity]", "Infinity"),
        ("1e999", "beyond"),
        ("-1e999", "beyond"),
        (str(INTEGER_MAX + 1), "2**53"),
        ("9" * 5000, "2**53"),
        ('{"n":-' + "9" * 5000 + "}", "2**53"),
        ('"\\ud800"', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        ("[" * (JSON_DEPTH_MAX + 1) + "]" * (JSON_DEPTH_MAX + 1), "deeper"),
        ("[" * 100_000, "deeper"),
        ('{"a":' * 100_000, "deeper"),
        ("", "JSON"),
        ("{", "JSON"),
        ("{} {}", "JSON"),
        ("{'a':1}", "JSON"),
        ("\ufeff{}", "JSON"),
        ('"\ud800"', "UTF-8"),
        (b'"\xff"', "UTF-8"),
        (b'"\xed\xa0\x80"', "UTF-8"),
    ],
    ids=lambda value: f"{len(value)} {value[:30]!r}",
)
def test_refused_with_a_reason(text: str | bytes, why: str) -> None:
    with pytest.raises(Refused, match=why.replace("*", r"\*")) as caught:
        strict_json(text, what="the arguments")
    assert caught.value.code == "malformed"


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a": [1, 2.5, null, true, "x"]}',
        f"[{INTEGER_MAX}, -{INTEGER_MAX}]",
        '"\\ud83d\\ude00"',
        '"\u2028"',
        "1e10",
        "[0.1]",
    ],
)
def test_plain_json_is_taken(text: str) -> None:
    import json

    assert strict_json(text, what="x") == json.loads(text)
    assert strict_json(text.encode(), what="x") == json.loads(text)


def test_the_deepest_allowed_nesting_is_taken() -> None:
    strict_json("[" * JSON_DEPTH_MAX + "]" * JSON_DEPTH_MAX, what="x")


def test_depth_is_counted_and_brackets_are_not() -> None:
    """
    As deep as allowed beside many that are flat is taken; one deeper is not, however many were
    closed before it.
    """
    deepest, flat = "[" * (JSON_DEPTH_MAX - 1) + "]" * (JSON_DEPTH_MAX - 1), "[]," * 200
    assert len(strict_json(f"[{flat}{deepest}]", what="x")) == 201
    with pytest.raises(Refused, match="deeper"):
        strict_json(f"[{flat}[{deepest}]]", what="x")


def test_the_key_that_stands_twice_is_named() -> None:
    with pytest.raises(Refused, match=r"key 'cmd' stands twice$"):
        strict_json('{"a":1,"cmd":"ls","b":2,"cmd":"rm"}', what="the arguments")


def test_brackets_in_strings_do_not_nest() -> None:
    assert strict_json('["' + "[" * 1000 + '"]', what="x") == ["[" * 1000]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["[" * 500_000, '{"a":[' * 200_000])
def test_hostile_input_is_refused_without_recursion_or_blow_up(text: str) -> None:
    """Quadratic work would take minutes, recursion would crash the interpreter."""
    with pytest.raises(Refused, match=r"nested|deep"):
        strict_json(text, what="x")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("text", ["[" + "[]," * 300_000 + "[]]", '"' + '\\"' * 300_000 + '"'])
def test_long_but_flat_input_is_read_in_one_go(text: str) -> None:
    assert len(strict_json(text, what="x")) >= 300_000
