"""A long reply in numbered parts: nothing is lost, and each part fits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.channels.chat_sizes import slack_size, utf16_units
from holdfast.runtime.drive.reply_parts import PARTS_MAX, reply_parts

SIZES = (len, utf16_units, slack_size)


@given(st.text(alphabet="ab \n&<`\N{GRINNING FACE}", max_size=1_500), st.integers(80, 400))
@pytest.mark.parametrize("size", SIZES)
def test_parts_fit_and_are_the_whole_text(size: object, text: str, room: int) -> None:
    assert callable(size)
    parts = reply_parts(text, room, size)
    assert all(size(part) <= room for part in parts)
    if len(parts) == 1 and size(text) <= room:
        assert parts == (text,)
        return
    numbers = [re.match(r"\((\d+)/(\d+)\)\n", part) for part in parts]
    assert [found and found.group(0) for found in numbers] == [
        f"({at}/{len(parts)})\n" for at in range(1, len(parts) + 1)
    ]
    if "```" not in text:
        joined = "".join(part.partition("\n")[2] for part in parts)
        assert joined == text


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    text = "```\n" + "line\n" * 60 + "```\nend"
    parts = reply_parts(text, 120, len)
    assert all(part.count("```") % 2 == 0 for part in parts)


def test_a_reply_without_end_says_how_much_is_missing() -> None:
    parts = reply_parts("x" * 100_000, 100, len)
    assert len(parts) == PARTS_MAX
    assert "more characters are in the conversation" in parts[-1]
