"""What a user who floods gets of a busy fleet, and what the others feel.

Without the flood, with fairness on each server alone, and with weights that are divided over the servers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from surefoot.bench.harness.figures import percentile
from surefoot.fleet.share_simulation import ShareShape, ShareSimulation

CALM, LOCAL, DIVIDED = "no flood", "flood, fair on each server", "flood, fair over the fleet"


@dataclass(frozen=True)
class ShareRow:
    """One run."""

    name: str
    flood_of_fair: float  # work for the user who floods, of an equal part among the busy users
    least_of_fair: float  # work for the steady user with least, of the same
    light_first_token_s_p50: float
    light_first_token_s_p90: float
    num_light: int  # requests of light users


def measure_shares(shape: ShareShape, say: Callable[[str], None]) -> list[ShareRow]:
    shapes = {
        CALM: replace(shape, flood_requests=0),
        LOCAL: replace(shape, is_divided=False),
        DIVIDED: shape,
    }
    rows = []
    for name, own in shapes.items():
        say(f"simulating users of {shape.num_replicas} busy replicas: {name}")
        rows.append(_run(name, own))
    return rows


def _run(name: str, shape: ShareShape) -> ShareRow:
    figures = ShareSimulation(shape).run()
    num_busy = shape.num_steady + bool(shape.flood_requests)
    fair = (figures.flood_work + sum(figures.steady_work)) / num_busy
    times = figures.light_first_token_s
    return ShareRow(
        name=name,
        flood_of_fair=figures.flood_work / fair,
        least_of_fair=figures.steady_work[0] / fair,
        light_first_token_s_p50=percentile(times, 0.5) or 0.0,
        light_first_token_s_p90=percentile(times, 0.9) or 0.0,
        num_light=len(times),
    )
