"""Pieces of a chart: scales, text, grid lines and lines, each as SVG text."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

# A page may restyle text and grid lines (`svg text`, `svg .grid`): style sheets win over these attributes.
INK, GRID = "#333", "#ddd"
COLOURS = ("#2471a3", "#c0392b", "#1e8449", "#b9770e", "#7d3c98", "#34495e", "#16a085", "#8e8e8e")
FONT_SIZE = 13

Points = Sequence[tuple[float, float]]
Spreads = Sequence[tuple[float, float, float]]  # an x, with the least and the largest y


@dataclass(frozen=True)
class Scale:
    """The scale of an axis."""

    low: float  # value at the start
    high: float  # value at the end
    is_logarithmic: bool = False

    def fraction(self, value: float) -> float:
        """The value's position on the axis: 0 at `low`, 1 at `high`."""
        if self.is_logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Panel:
    """The plotting area of a picture. Edges are in the picture's units, y downwards."""

    left: float
    right: float
    top: float
    bottom: float
    x: Scale
    y: Scale

    def to_pixels(self, x: float, y: float) -> tuple[float, float]:
        pixel_x = self.left + self.x.fraction(x) * (self.right - self.left)
        return pixel_x, self.bottom - self.y.fraction(y) * (self.bottom - self.top)

    def grid(self, labels: Mapping[float, str], strokes: Mapping[float, str] | None = None) -> Iterator[str]:
        """Horizontal lines, each with its label at the left. strokes: colours other than the grid's."""
        for value, label in labels.items():
            y = self.to_pixels(self.x.low, value)[1]
            stroke = (strokes or {}).get(value, GRID)
            ends = f'x1="{self.left:.1f}" x2="{self.right:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            yield f'<line {ends} class="grid" stroke="{stroke}"/>'
            yield text(self.left - 6, y + 4, label, "end")

    def marks(self, labels: Mapping[float, str]) -> Iterator[str]:
        """Labels below the panel."""
        for value, label in labels.items():
            yield text(self.to_pixels(value, self.y.low)[0], self.bottom + 18, label, "middle")

    def line(self, points: Points, colour: str, has_dots: bool = False) -> Iterator[str]:
        pixels = [self.to_pixels(*point) for point in points]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
        yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for x, y in pixels if has_dots else ():
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'

    def spreads(self, spreads: Spreads, colour: str) -> Iterator[str]:
        """Upright lines from the least to the largest value."""
        for x, low, high in spreads:
            (left, bottom), (_, top) = self.to_pixels(x, low), self.to_pixels(x, high)
            ends = f'x1="{left:.1f}" x2="{left:.1f}" y1="{bottom:.1f}" y2="{top:.1f}"'
            yield f'<line {ends} stroke="{colour}" stroke-width="6" stroke-opacity="0.3"/>'


def picture(width: float, height: float, parts: Sequence[str], background: str | None = None) -> str:
    """An SVG file. background: its colour; None: that of the page."""
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
    filled = [] if background is None else [f'<rect width="{width:g}" height="{height:g}" fill="{background}"/>']
    return "\n".join([f'{opening} font-family="sans-serif">', *filled, *parts, "</svg>", ""])


def text(x: float, y: float, words: str, anchor: str, colour: str = INK, size: int = FONT_SIZE) -> str:
    attributes = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f"<text {attributes}>{escape(words)}</text>"


def colour_of(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def round_ticks(high: float) -> list[float]:
    """Three to six round numbers from 0 up to `high` or just beyond it."""
    high = high or 1.0
    power = 10.0 ** math.floor(math.log10(high / 4))
    step = next(power * factor for factor in (1, 2, 5, 10) if high / (power * factor) <= 5)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """At least two powers of ten, from `low` or just below it to `high` or just beyond it."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high) + 1e-9)
    return [10.0**exponent for exponent in range(first, last + 1)]
