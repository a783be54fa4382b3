"""Lines over points as SVG, for the documents."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 360, 60, 45, 40, 20
COLOURS = ("#2471a3", "#c0392b", "#1e8449", "#b9770e")

Points = Sequence[tuple[float, float]]


def goodput_plot(model: Mapping[str, Any]) -> str:
    """model: what a serving benchmark says of it."""
    lines = defaultdict(list)
    for one in model["points"]:
        lines[one["engine"]].append((one["rate"], one["goodput"]))
    title = f"{model['path']}: requests/s with first text within 2 s, gaps within 200 ms"
    return line_plot(title, "requests that arrive a second", "good requests a second", lines)


def line_plot(title: str, across: str, up: str, lines: Mapping[str, Points]) -> str:
    """Every x of the first line is marked below."""
    most_x = max(x for points in lines.values() for x, _ in points)
    most_y = max(y for points in lines.values() for _, y in points) * 1.05 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        right = LEFT + x / most_x * (WIDTH - LEFT - RIGHT)
        return right, HEIGHT - BOTTOM - y / most_y * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 22, title, "middle", size=15),
        _text((WIDTH + LEFT) / 2, HEIGHT - 8, across, "middle"),
        _text(8, TOP - 8, up, "start"),
    ]
    for tick in _ticks(most_y):
        (x0, y), (x1, _) = place(0, tick), place(most_x, tick)
        parts.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x1}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{tick:g}", "end"))
    for x, _ in next(iter(lines.values())):
        right, bottom = place(x, 0)
        parts.append(_text(right, bottom + 18, f"{x:.3g}", "middle"))
    for number, ((name, points), colour) in enumerate(zip(lines.items(), COLOURS, strict=False)):
        parts += _line([place(*point) for point in points], colour)
        parts.append(_text(LEFT + 16, TOP + 18 + 20 * number, name, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _line(points: Points, colour: str) -> list[str]:
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    circles = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    return [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>', *circles]


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333", size: int = 13) -> str:
    words = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f"<text {words}>{escape(text)}</text>"


def _ticks(most: float) -> list[float]:
    step = next(step * 10**power for power in range(-3, 6) for step in (1, 2, 5) if most / (step * 10**power) <= 6)
    return [number * step for number in range(int(most / step) + 1)]
