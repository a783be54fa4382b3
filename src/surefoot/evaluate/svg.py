"""Line charts as SVG text, with nothing from outside."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 300, 64, 40, 16, 16
COLOURS = ("#1f5fa8", "#c2571a", "#3b8a3e", "#8a3b86", "#6b6b6b")


@dataclass(frozen=True)
class Line:
    name: str
    ys: Sequence[float]


def chart(xs: Sequence[str], lines: Sequence[Line], logarithmic: bool = False) -> str:
    """xs: labels of the points, evenly apart."""
    values = [y for line in lines for y in line.ys if y > 0 or not logarithmic]
    if not values:
        return ""
    low, high = (min(values), max(values)) if logarithmic else (0.0, max(values) or 1.0)
    if logarithmic:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high) + 1e-9)

    def x_of(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / max(1, len(xs) - 1))

    def y_of(y: float) -> float:
        part = math.log(max(y, low) / low) / math.log(high / low) if logarithmic else (y - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">']
    for tick in _ticks(low, high, logarithmic):
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(tick):.1f}" y2="{y_of(tick):.1f}" class="grid"/>'
            f'<text x="{LEFT - 6}" y="{y_of(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    step = max(1, len(xs) // 10)
    for i in range(0, len(xs), step):
        parts.append(f'<text x="{x_of(i):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(xs[i])}</text>')
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x_of(i):.1f},{y_of(y):.1f}" for i, y in enumerate(line.ys))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = TOP + 14 + 16 * number
        parts.append(f'<text x="{LEFT + 10}" y="{y}" fill="{colour}">{escape(line.name)}</text>')
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    if not logarithmic:
        return [low + (high - low) * i / 4 for i in range(5)]
    return [10.0**e for e in range(round(math.log10(low)), round(math.log10(high)) + 1)]
