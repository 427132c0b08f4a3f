"""Rows as a table that fits the terminal, or as blocks on a narrow one."""

import sys
from collections.abc import Sequence

# More than anyone reads without a pager. Fitting ten thousand rows to a terminal's width takes
# seconds.
_FITTED_ROWS_MAX = 500


_GAP = "  "


_LAST_COLUMN_LEAST = 16  # a narrower column folds text into single syllables


def table_text(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if sys.stdout is not None and sys.stdout.isatty() and len(rows) <= _FITTED_ROWS_MAX:
        return _rich_table(heads, rows)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in (heads, *rows)]
    return "\n".join(lines) + "\n"


def _rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """
    Return a table made by Rich, which knows the terminal's width and NO_COLOR. Nothing is cut off:
    an id is there to be copied, and a detail to be read.

    Only the last column is folded. If the others leave no room for it, each row becomes a few
    lines.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    widths = [max(cell_len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    if (
        sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + min(widths[-1], _LAST_COLUMN_LEAST)
        > console.width
    ):
        return "".join(_block(heads, row) for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads[:-1]:
        table.add_column(head, no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def _block(heads: Sequence[str], row: Sequence[str]) -> str:
    width = max(map(len, heads[1:]), default=0)
    rest = [
        f"{_GAP}{head.lower().ljust(width)}{_GAP}{cell}"
        for head, cell in zip(heads[1:], row[1:], strict=True)
        if cell
    ]
    return "\n".join([row[0], *rest]) + "\n"
