"""One picture, drawn by hand: what an append costs against how long the history is, both axes logarithmic."""

import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 78, 190, 40, 56
COLOURS = ("#0b6e4f", "#7a7a7a", "#c8553d", "#3d5a80", "#b38a00", "#7b2d8b")

Series = Mapping[str, Sequence[tuple[float, float]]]


def picture(series: Series, title: str) -> str:
    """An SVG that reads on light and dark pages alike."""
    points = [point for line in series.values() for point in line]
    x_axis = _decades([x for x, _ in points])
    y_axis = _decades([y for _, y in points])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (math.log10(point[0]) - x_axis[0]) / (x_axis[-1] - x_axis[0]) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (math.log10(point[1]) - y_axis[0]) / (y_axis[-1] - y_axis[0]) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15" fill="#222222">{title}</text>',
    ]
    for power in x_axis:
        x, _ = place((10**power, 10 ** y_axis[0]))
        drawn.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{HEIGHT - BOTTOM}" stroke="#dddddd"/>')
        drawn.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#444444">{10**power:,}</text>')
    for power in y_axis:
        _, y = place((10 ** x_axis[0], 10**power))
        drawn.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#444444">{_duration(10**power)}</text>')
    drawn.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle" fill="#444444">records or messages in the session</text>'
    )
    drawn += _lines(series, place)
    return "\n".join([*drawn, "</svg>", ""])


def _lines(series: Series, place) -> list[str]:
    drawn = []
    ends = sorted((place(line[-1])[1], name) for name, line in series.items())
    labels: dict[str, float] = {}
    lowest = float(TOP - 14)
    for y, name in ends:  # labels never on top of each other
        lowest = labels[name] = max(y + 4, lowest + 16)
    for (name, line), colour in zip(series.items(), COLOURS * 3, strict=False):
        placed = [place(point) for point in line]
        path = " ".join(f"{x},{y}" for x, y in placed)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        drawn += [f'<circle cx="{x}" cy="{y}" r="3.4" fill="{colour}"/>' for x, y in placed]
        drawn.append(f'<text x="{WIDTH - RIGHT + 10}" y="{labels[name]}" fill="{colour}">{name}</text>')
    return drawn


def _decades(values: Sequence[float]) -> list[int]:
    lowest, highest = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return list(range(lowest, max(highest, lowest + 1) + 1))


def _duration(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:g} µs"
    return f"{microseconds / 1000:g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:g} s"
