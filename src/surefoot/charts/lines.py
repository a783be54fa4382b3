"""Line charts: `line_plot` over numbers, as a picture of its own, and `category_chart` over labels, for a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from surefoot.charts.svg import (
    FONT_SIZE,
    Panel,
    Points,
    Scale,
    Spreads,
    colour_of,
    decades,
    picture,
    round_ticks,
    text,
)

MAX_LABELS = 10  # along the x axis


@dataclass(frozen=True)
class Series:
    """A line over labels."""

    name: str
    ys: Sequence[float]  # one for each label


@dataclass(frozen=True)
class Axes:
    """Titles and labels of the axes."""

    x: str  # title
    y: str  # title
    logarithmic: bool = False  # the y axis
    label: Callable[[float], str] = "{:.3g}".format  # of a value on the y axis


def line_plot(
    title: str,
    x_title: str,
    y_title: str,
    lines: Mapping[str, Points],
    spreads: Mapping[str, Spreads] = MappingProxyType({}),
) -> str:
    """A chart of lines over numbers from 0 on, with a title and a legend. Every x of the first line has a label."""
    width, height, left, right = 640, 360, 60, 20
    tops = [y for points in lines.values() for _, y in points] + [y for each in spreads.values() for *_, y in each]
    ticks = round_ticks(max(tops))
    max_x = max(x for points in lines.values() for x, _ in points)
    panel = Panel(left, width - right, 54, height - 45, Scale(0, max_x), Scale(0, ticks[-1]))
    parts = [
        text(width / 2, 22, title, "middle", size=15),
        text((width + left) / 2, height - 8, x_title, "middle"),
        text(8, panel.top - 16, y_title, "start"),
        *panel.grid({tick: f"{tick:g}" for tick in ticks}),
        *panel.marks({x: f"{x:.3g}" for x, _ in next(iter(lines.values()))}),
    ]
    for number, (name, points) in enumerate(lines.items()):
        parts += panel.spreads(spreads.get(name, ()), colour_of(number))
        parts += panel.line(points, colour_of(number), has_dots=True)
        parts.append(text(left + 16, panel.top + 18 + 20 * number, name, "start", colour_of(number)))
    return picture(width, height, parts, "white")


def category_chart(xs: Sequence[str], lines: Sequence[Series], axes: Axes) -> str:
    """A chart of lines over evenly spaced labels, without a legend. Empty if there are no values."""
    values = [y for line in lines for y in line.ys if y > 0 or not axes.logarithmic]
    if not values:
        return ""
    # Narrow enough to be legible on a phone. The margins have room for the widest labels.
    width, height, left, right = 440, 300, 66, 28
    ticks = decades(min(values), max(values)) if axes.logarithmic else round_ticks(max(values))
    scale = Scale(ticks[0], ticks[-1], axes.logarithmic)
    panel = Panel(left, width - right, 34, height - 52, Scale(0, max(1, len(xs) - 1)), scale)
    parts = [
        text(4, FONT_SIZE + 3, axes.y, "start"),
        text((left + width - right) / 2, height - 8, axes.x, "middle"),
        *panel.grid({tick: axes.label(tick) for tick in ticks}),
        *panel.marks({number: xs[number] for number in range(0, len(xs), -(-len(xs) // MAX_LABELS))}),
    ]
    for number, line in enumerate(lines):
        parts += panel.line(list(enumerate(line.ys)), colour_of(number))
    return picture(width, height, parts)
