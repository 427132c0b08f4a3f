"""
One picture, drawn by hand: what an append costs against how long the history is, both axes
logarithmic. Once for light pages, once for dark ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 860, 440
LEFT, RIGHT, TOP, BOTTOM = 72, 232, 54, 60
LABEL_HEIGHT = 18
OURS = "Holdfast"  # drawn last, and thicker
LIMITS = frozenset(
    {"write + fdatasync alone", "write+fdatasync"}
)  # what nobody who syncs can be below: dashed

Series = Mapping[str, Sequence[tuple[float, float]]]
Place = Callable[[tuple[float, float]], tuple[float, float]]


class Colours(NamedTuple):
    page: str
    ink: str
    faint: str
    grid: str
    ours: str
    limit: str
    others: tuple[str, ...]


# The others' are the ones of Okabe and Ito, which people who do not see all colours can tell apart;
# lighter on a dark page.
LIGHT = Colours(
    "#ffffff",
    "#1f2328",
    "#59636e",
    "#e4e7eb",
    "#007a53",
    "#8b949e",
    ("#d55e00", "#0072b2", "#b3579a", "#a67c00", "#3f8fc4", "#7a5230"),
)
DARK = Colours(
    "#0d1117",
    "#e6edf3",
    "#9198a1",
    "#262c36",
    "#3ddc97",
    "#767e89",
    ("#ff9248", "#58a6ff", "#e39ccb", "#e3b341", "#8ad0f5", "#c99a6b"),
)


def picture(series: Series, title: str, colours: Colours = LIGHT) -> str:
    """An SVG on a ground of its own, so that it reads wherever it is shown."""
    points = [point for line in series.values() for point in line]
    x_axis = _decades([x for x, _ in points])
    y_axis = _decades([y for _, y in points])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (math.log10(point[0]) - x_axis[0]) / (x_axis[-1] - x_axis[0]) * (
            WIDTH - LEFT - RIGHT
        )
        y = (
            HEIGHT
            - BOTTOM
            - (math.log10(point[1]) - y_axis[0])
            / (y_axis[-1] - y_axis[0])
            * (HEIGHT - TOP - BOTTOM)
        )
        return round(x, 1), round(y, 1)

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colours.page}"/>',
        f'<text x="{LEFT}" y="30" font-size="16" font-weight="600" fill="{colours.ink}">{escape(title)}</text>',
        *_grid(x_axis, y_axis, place, colours),
        *_lines(series, place, colours),
    ]
    return "\n".join([*drawn, "</svg>", ""])


def _grid(x_axis: list[int], y_axis: list[int], place: Place, colours: Colours) -> list[str]:
    drawn = []
    for power in x_axis:
        x, _ = place((10**power, 10 ** y_axis[0]))
        drawn.append(
            f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="{colours.grid}"/>'
        )
        drawn.append(
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" fill="{colours.faint}">{10**power:,}</text>'
        )
    for power in y_axis:
        _, y = place((10 ** x_axis[0], 10**power))
        drawn.append(
            f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="{colours.grid}"/>'
        )
        drawn.append(
            f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" fill="{colours.faint}">{_duration(10**power)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    drawn.append(
        f'<text x="{middle}" y="{HEIGHT - 16}" text-anchor="middle" fill="{colours.faint}">records or messages in the session</text>'
    )
    return drawn


def _lines(series: Series, place: Place, colours: Colours) -> list[str]:
    others = iter(colours.others * 3)
    coloured = {name: _colour(name, colours) or next(others) for name in series}
    labels = _labels({name: place(line[-1])[1] for name, line in series.items()})
    drawn = []
    for name, line in sorted(series.items(), key=lambda each: each[0] == OURS):
        colour, placed = coloured[name], [place(point) for point in line]
        width, dashes = (
            (3.4 if name == OURS else 2),
            (' stroke-dasharray="5 5"' if name in LIMITS else ""),
        )
        path = " ".join(f"{x},{y}" for x, y in placed)
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{dashes}/>'
        )
        if name not in LIMITS:
            drawn += [
                f'<circle cx="{x}" cy="{y}" r="{width + 1}" fill="{colour}"/>' for x, y in placed
            ]
        beside, (end_x, end_y) = WIDTH - RIGHT + 16, placed[-1]
        lead = f'<polyline points="{end_x},{end_y} {beside - 4},{labels[name] - 4}" fill="none" stroke="{colour}" stroke-width="1" opacity="0.45"/>'
        weight = ' font-weight="700"' if name == OURS else ""
        drawn += [
            lead,
            f'<text x="{beside}" y="{labels[name]}" fill="{colour}"{weight}>{escape(name)}</text>',
        ]
    return drawn


def _colour(name: str, colours: Colours) -> str | None:
    return colours.ours if name == OURS else colours.limit if name in LIMITS else None


def _labels(ends: Mapping[str, float]) -> dict[str, float]:
    """Beside the ends of their lines, never on top of each other, never below the axis."""
    labels: dict[str, float] = {}
    lowest = float(TOP - LABEL_HEIGHT)
    for name, y in sorted(ends.items(), key=lambda each: each[1]):
        lowest = labels[name] = max(y + 4, lowest + LABEL_HEIGHT)
    highest = float(HEIGHT - BOTTOM + LABEL_HEIGHT)
    for name in reversed(labels):
        highest = labels[name] = min(labels[name], highest - LABEL_HEIGHT)
    return labels


def _decades(values: Sequence[float]) -> list[int]:
    lowest, highest = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return list(range(lowest, max(highest, lowest + 1) + 1))


def _duration(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:g} µs"
    return f"{microseconds / 1000:g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:g} s"
