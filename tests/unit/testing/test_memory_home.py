"""The parts that users' own tests rely on: mistakes in its use are said in words."""

from typing import Any

import pytest

from holdfast.errors import Unusable
from holdfast.session.events import ToolStarted
from holdfast.testing import crash_after


@pytest.mark.parametrize(("kind", "times"), [("ToolStarted", 1), (int, 1), (ToolStarted, 0)])
def test_a_crash_after_what_never_comes_is_refused_with_the_next_step(
    kind: Any, times: int
) -> None:
    with pytest.raises(Unusable) as caught:
        crash_after(kind, times=times)
    assert "holdfast.session.events" in caught.value.hint
