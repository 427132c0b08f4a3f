"""Tokens and costs in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.session.view.messages import Usage

_MICRO = 1_000_000
_SHOWN_MIN = 100  # a smaller cost would be shown as zero


def usage_text(usage: "Usage") -> str | None:
    """
    Return the tokens and the cost, or None if no provider reported any.

    >>> from holdfast.session.view.messages import Usage
    >>> usage_text(Usage(input_tokens=1200, output_tokens=30, cost_microusd=4500))
    '1,200 tokens in, 30 out, $0.0045'
    >>> usage_text(Usage(input_tokens=5, output_tokens=2, cost_microusd=32))
    '5 tokens in, 2 out, less than $0.0001'
    """
    if not (usage.input_tokens or usage.output_tokens or usage.cost_microusd):
        return None
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    tokens = f"{usage.input_tokens:,} tokens in{cached}, {usage.output_tokens:,} out"
    if not usage.cost_microusd:
        return tokens
    if usage.cost_microusd < _SHOWN_MIN:
        return f"{tokens}, less than $0.0001"
    return f"{tokens}, ${usage.cost_microusd / _MICRO:.4f}"
