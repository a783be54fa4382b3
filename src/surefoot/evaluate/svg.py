"""Line charts as SVG text, with nothing from outside."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

# Narrow enough that its text can still be read where a phone's screen shrinks it. The margins hold the widest labels.
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 440, 300, 66, 52, 34, 28
FONT = 13
LABELS = 10  # along the x axis, at most
COLOURS = ("#1f5fa8", "#c2571a", "#3b8a3e", "#8a3b86", "#6b6b6b")


@dataclass(frozen=True)
class Line:
    name: str
    ys: Sequence[float]


@dataclass(frozen=True)
class Axes:
    """What stands below and at the side, and how a value reads there."""

    x: str
    y: str
    logarithmic: bool = False
    label: Callable[[float], str] = "{:.3g}".format


def colour_of(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def chart(xs: Sequence[str], lines: Sequence[Line], axes: Axes) -> str:
    """xs: labels of the points, evenly apart. Empty where there is nothing to draw."""
    values = [y for line in lines for y in line.ys if y > 0 or not axes.logarithmic]
    if not values:
        return ""
    ticks = _decades(min(values), max(values)) if axes.logarithmic else _even(max(values))

    def x_of(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (i / max(1, len(xs) - 1))

    def y_of(y: float) -> float:
        low, high = ticks[0], ticks[-1]
        part = math.log(max(y, low) / low) / math.log(high / low) if axes.logarithmic else (y - low) / (high - low)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part

    parts = [_text(4, FONT + 3, axes.y, "start"), _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, axes.x, "middle")]
    for tick in ticks:
        y = y_of(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(LEFT - 6, y + 4, axes.label(tick), "end"))
    for i in range(0, len(xs), -(-len(xs) // LABELS)):
        parts.append(_text(x_of(i), HEIGHT - BOTTOM + 20, xs[i], "middle"))
    for number, line in enumerate(lines):
        points = " ".join(f"{x_of(i):.1f},{y_of(y):.1f}" for i, y in enumerate(line.ys))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour_of(number)}" stroke-width="2"/>')
    opening = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" font-size="{FONT}" role="img" xmlns="http://www.w3.org/2000/svg">'
    return "".join([opening, *parts, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _decades(low: float, high: float) -> list[float]:
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9) + 1)]


def _even(high: float) -> list[float]:
    """From 0 up to the value or beyond, four to six of them, at round numbers."""
    power = 10.0 ** math.floor(math.log10((high or 1.0) / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high or 1.0) / (power * factor) <= 5)
    return [step * i for i in range(math.ceil((high or 1.0) / step - 1e-9) + 1)]
