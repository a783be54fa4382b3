"""Speed-up over acceptance, for some depths and batches: measured costs of steps, and theory's tokens a pass."""

from collections.abc import Iterator, Mapping, Sequence

from surefoot.bench.model_results import ModelResults

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 300, 44, 12, 58, 44
COLOURS = ("#c0392b", "#d68910", "#229954", "#2471a3", "#7d3c98", "#34495e", "#16a085", "#8e8e8e")
POINTS = [number / 50 for number in range(51)]


def tokens_per_pass(alpha: float, depth: int) -> float:
    """If every guess is right with this chance."""
    return float(depth + 1) if alpha == 1 else (1 - alpha ** (depth + 1)) / (1 - alpha)


def draw_speedups(results: ModelResults) -> str:
    """An SVG with a part for each batch and a line for each depth."""
    costs: Sequence[Mapping[str, float]] = results.model["costs"]
    batches = sorted({int(cost["num_requests"]) for cost in costs})
    depths = sorted({int(cost["depth"]) for cost in costs} - {0})
    curves = {batch: dict(_curves(costs, batch)) for batch in batches}
    most = max(max(line) for lines in curves.values() for line in lines.values())
    title = f"{results.model['path']}, {results.machine['variant']}, {results.machine['threads']} threads"
    width = WIDTH * len(batches)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif">',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
        _text(width / 2, 20, f"Speed over speculation off: {title}", "middle", size=15),
    ]
    for number, batch in enumerate(batches):
        parts += _panel(number * WIDTH, batch, curves[batch], depths, most)
    return "\n".join([*parts, "</svg>", ""])


def _curves(costs: Sequence[Mapping[str, float]], batch: int) -> Iterator[tuple[int, list[float]]]:
    ms = {int(cost["depth"]): cost["ms"] for cost in costs if cost["num_requests"] == batch}
    for depth, cost in ms.items():
        if depth:
            yield depth, [tokens_per_pass(alpha, depth) * ms[0] / cost for alpha in POINTS]


def _panel(
    x0: float, batch: int, lines: Mapping[int, list[float]], depths: Sequence[int], most: float
) -> Iterator[str]:
    def place(alpha: float, speed: float) -> tuple[float, float]:
        across = x0 + LEFT + alpha * (WIDTH - LEFT - RIGHT)
        return across, HEIGHT - BOTTOM - speed / most * (HEIGHT - BOTTOM - TOP)

    yield _text(x0 + (WIDTH + LEFT) / 2, 42, f"{batch} request{'s' * (batch > 1)} at once", "middle")
    yield _text(x0 + (WIDTH + LEFT) / 2, HEIGHT - 8, "share of guesses that are right", "middle")
    for speed in range(int(most) + 1):
        (left, y), (right, _) = place(0, speed), place(1, speed)
        yield f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{"#888" if speed == 1 else "#ddd"}"/>'
        yield _text(left - 6, y + 4, f"{speed}", "end")
    for alpha in (0, 0.5, 1):
        yield _text(place(alpha, 0)[0], HEIGHT - BOTTOM + 16, f"{alpha:g}", "middle")
    for depth, speeds in lines.items():
        colour = COLOURS[depths.index(depth) % len(COLOURS)]
        points = [place(alpha, speed) for alpha, speed in zip(POINTS, speeds, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for row, depth in enumerate(lines):
        colour = COLOURS[depths.index(depth) % len(COLOURS)]
        yield _text(x0 + LEFT + 8, TOP + 12 + 15 * row, f"depth {depth}", "start", colour, 11)


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#333", size: int = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{text}</text>'
