"""What a user who floods gets of a busy fleet, and what the others feel.

Without the flood, with fairness on each server alone, and with weights that are divided over the servers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.fleet.simulation.shares import ShareShape, ShareSimulation
from surefoot.bench.harness.figures import percentile


@dataclass(frozen=True)
class ShareRow:
    """One run. Its name in tables is `label`."""

    is_flooded: bool
    is_divided: bool  # False: fairness on each server alone
    is_pinned: bool  # steady users stay at one server each: the worst case of routing by what a server holds
    flood_of_fair: float  # work for the user who floods, of an equal part among the busy users
    least_of_fair: float  # work for the steady user with least, of the same
    light_first_token_s_p50: float
    light_first_token_s_p90: float
    num_light: int  # requests of light users

    @property
    def label(self) -> str:
        if not self.is_flooded:
            return "no flood"
        fairness = "over the fleet" if self.is_divided else "on each server alone"
        return f"flood, fair {fairness}{', others at one server each' if self.is_pinned else ''}"


def measure_shares(shape: ShareShape, say: Callable[[str], None]) -> list[ShareRow]:
    """Without a flood, with fairness on each server, and with divided weights; then the last two for pinned users."""
    shapes = [
        replace(shape, flood_requests=0),
        *(
            replace(shape, is_divided=is_divided, is_pinned=is_pinned)
            for is_pinned in (False, True)
            for is_divided in (False, True)
        ),
    ]
    rows = []
    for number, own in enumerate(shapes, 1):
        say(f"simulating users of {shape.num_replicas} busy replicas: {number} of {len(shapes)}")
        rows.append(_run(own))
    return rows


def _run(shape: ShareShape) -> ShareRow:
    figures = ShareSimulation(shape).run()
    num_busy = shape.num_steady + bool(shape.flood_requests)
    fair = (figures.flood_work + sum(figures.steady_work)) / num_busy
    times = figures.light_first_token_s
    return ShareRow(
        is_flooded=shape.flood_requests > 0,
        is_divided=shape.is_divided,
        is_pinned=shape.is_pinned,
        flood_of_fair=figures.flood_work / fair,
        least_of_fair=figures.steady_work[0] / fair,
        light_first_token_s_p50=percentile(times, 0.5) or 0.0,
        light_first_token_s_p90=percentile(times, 0.9) or 0.0,
        num_light=len(times),
    )
