"""Lists for people: nothing that they need to copy is cut off, however narrow the terminal."""

import pytest

from holdfast.cli.output import table
from holdfast.cli.output.call_text import in_brief

HEADS = ("ID", "SESSION", "MAY ANSWER", "WHAT")
ROW = ("a-3qi4jqm4tbv33rvamp6jp7hkp4", "ops/api", "alice, bob", "echo " + "x" * 60 + " done")


def shown(columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    return table._rich_table(HEADS, [ROW])


@pytest.mark.parametrize("columns", [200, 100, 80, 66, 65, 40, 20])
def test_every_cell_is_there_whole_in_a_terminal_of_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(columns, monkeypatch)
    assert [cell for cell in ROW[:-1] if cell not in text] == []
    assert "\u2026" not in text
    assert text.count("x") == 60


def test_where_the_last_column_has_no_room_a_row_is_lines_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(60, monkeypatch).splitlines() == [
        ROW[0],
        "  session     ops/api",
        "  may answer  alice, bob",
        f"  what        {ROW[3]}",
    ]
    assert shown(80, monkeypatch).splitlines()[0].split() == [
        "ID",
        "SESSION",
        "MAY",
        "ANSWER",
        "WHAT",
    ]


@pytest.mark.parametrize(
    "arguments",
    [{"command": "\uff52\uff4d -rf x"}, {"question": "\uff52\uff4d?"}, {"other": "\uff52\uff4d"}],
)
def test_nothing_in_a_list_of_prompts_passes_for_something_else(arguments: dict[str, str]) -> None:
    """P4: look-alikes are written out there too, as in the prompt itself."""
    told = in_brief(arguments)
    assert told.isascii()
    assert r"\uff52\uff4d" in told
    assert in_brief({"command": "ls  -l\n"}) == "ls -l"


def test_values_in_a_list_are_read_as_a_person_types_them() -> None:
    """As on the page. Text that could be taken for more than one value keeps its quotes."""
    given = {"service": "api", "note": "a b=c", "count": 2, "dry": False}
    assert in_brief(given) == 'service=api note="a b=c" count=2 dry=false'
