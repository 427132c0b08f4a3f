"""The parts that all adapters share."""

import pytest

import holdfast
from holdfast.integrations.gated_tools import current_turn, schema_tool, text_of


def test_a_tool_that_has_lost_its_turn_refuses_to_run() -> None:
    with pytest.raises(holdfast.Unusable) as refused:
        current_turn()
    assert refused.value.code == "no_turn"


def test_metadata_says_how_a_tool_is_treated_and_a_frameworks_own_wish_only_tightens() -> None:
    auto = {"holdfast": {"mode": "auto", "contract": "pure"}}
    assert schema_tool("look", {}, metadata=auto).definition.default_mode == "auto"
    assert schema_tool("look", {}, metadata=auto, must_ask=True).definition.default_mode == "ask"
    plain = schema_tool("act", {}).definition
    assert (plain.default_mode, plain.contract) == ("ask", "once")


def test_a_misspelt_setting_is_named_and_never_taken_for_none() -> None:
    with pytest.raises(holdfast.Unusable, match="approve"):
        schema_tool("act", {}, metadata={"holdfast": {"approve": "always"}})


def test_a_result_has_a_text_whatever_it_is() -> None:
    assert [text_of(each) for each in ("a", {"b": 1})] == ["a", '{"b": 1}']
    assert "object" in text_of(object())
