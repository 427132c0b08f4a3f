"""No cell of the export begins a formula, in any spelling that a spreadsheet reads as one."""

import pytest

from holdfast.gateway.routes.decisions import cell


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "|", "＝", "＋", "－", "＠", "﹦", "﹢"])
@pytest.mark.parametrize("before", ["", " ", "\t", "\r", "\n", "\0", "\u00a0", "\u200b", "\ufeff"])
def test_a_formula_is_quoted_also_behind_characters_that_nobody_sees(
    before: str, sign: str
) -> None:
    text = f"{before}{sign}1"
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "plain", " plain", "a=1", "'=1", "(-1)", "é"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert cell(text) == text
