"""The names that users import: each is there, and so is everything that a public one is made of."""

from pathlib import Path
from typing import get_args

import holdfast

DOCS = Path(__file__).parents[2] / "docs"


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in holdfast.__all__ if not hasattr(holdfast, name)] == []


def test_every_type_that_follow_yields_is_public_and_documented() -> None:
    """Else nobody could tell one from the other without reaching inside."""
    yields = get_args(holdfast.Followed)
    assert len(yields) == 3
    explained = (DOCS / "reference/library.md").read_text()
    for kind in yields:
        assert getattr(holdfast, kind.__name__) is kind
        assert f"`holdfast.{kind.__name__}`" in explained
