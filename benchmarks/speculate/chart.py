"""Charts the speed-up over the acceptance rate: expected tokens per pass over the measured cost of a step."""

from collections.abc import Iterator, Mapping, Sequence

from surefoot.bench.harness.results import BenchResults
from surefoot.charts.svg import Panel, Scale, colour_of, picture, round_ticks, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 300, 44, 12, 58, 44  # size of a panel, and its margins
RATES = [number / 50 for number in range(51)]  # acceptance rates

Curves = Mapping[int, Sequence[float]]  # speed-up at each of RATES, by depth


def tokens_per_pass(acceptance_rate: float, depth: int) -> float:
    """The expected tokens of a pass that verifies `depth` drafted tokens, each accepted at this rate."""
    if acceptance_rate == 1:
        return float(depth + 1)
    return (1 - acceptance_rate ** (depth + 1)) / (1 - acceptance_rate)


def draw_speedups(results: BenchResults) -> str:
    """An SVG with a panel for each batch size and a line for each depth."""
    costs: Sequence[Mapping[str, float]] = results.model["costs"]
    batches = sorted({int(cost["num_requests"]) for cost in costs})
    depths = sorted({int(cost["depth"]) for cost in costs} - {0})
    curves = {batch: dict(_curves(costs, batch)) for batch in batches}
    max_speedup = max(max(line) for lines in curves.values() for line in lines.values())
    title = f"{results.model['path']}, {results.machine['variant']}, {results.machine['threads']} threads"
    width = WIDTH * len(batches)
    parts = [text(width / 2, 20, f"Speed over speculation off: {title}", "middle", size=15)]
    for number, batch in enumerate(batches):
        parts += _panel(number * WIDTH, batch, curves[batch], depths, max_speedup)
    return picture(width, HEIGHT, parts, "white")


def _curves(costs: Sequence[Mapping[str, float]], batch: int) -> Iterator[tuple[int, list[float]]]:
    ms = {int(cost["depth"]): cost["ms"] for cost in costs if cost["num_requests"] == batch}
    for depth, cost in ms.items():
        if depth:
            yield depth, [tokens_per_pass(rate, depth) * ms[0] / cost for rate in RATES]


def _panel(start: float, batch: int, curves: Curves, depths: Sequence[int], max_speedup: float) -> Iterator[str]:
    """start: the panel's left edge in the picture. depths: of all panels, so that a depth keeps its colour."""
    left, middle = start + LEFT, start + (WIDTH + LEFT) / 2
    panel = Panel(left, start + WIDTH - RIGHT, TOP, HEIGHT - BOTTOM, Scale(0, 1), Scale(0, max_speedup))
    yield text(middle, 42, f"{batch} request{'s' * (batch > 1)} at once", "middle")
    yield text(middle, HEIGHT - 8, "acceptance rate", "middle")
    speeds = sorted({1.0, *(tick for tick in round_ticks(max_speedup) if tick <= max_speedup)})
    yield from panel.grid({speed: f"{speed:g}" for speed in speeds}, strokes={1.0: "#888"})
    yield from panel.marks({0: "0", 0.5: "0.5", 1: "1"})
    for depth, curve in curves.items():
        yield from panel.line(list(zip(RATES, curve, strict=True)), colour_of(depths.index(depth)))
    for row, depth in enumerate(curves):
        yield text(left + 8, TOP + 12 + 15 * row, f"depth {depth}", "start", colour_of(depths.index(depth)), 11)
