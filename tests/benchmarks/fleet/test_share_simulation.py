"""A user who floods a small fleet in simulated time: the real router and the real schedulers."""

import functools
from dataclasses import replace

from benchmarks.fleet.simulation.shares import ShareFigures, ShareShape, ShareSimulation

SHAPE = ShareShape(
    num_replicas=3, num_steady=3, num_light=6, flood_requests=90, pause_s=5.0, warm_up_s=10.0, duration_s=60.0
)
FAIR = 1 / 4


@functools.cache
def run(shape: ShareShape) -> ShareFigures:
    return ShareSimulation(shape).run()


def test_a_flood_gets_a_fair_share_of_the_fleet() -> None:
    assert run(SHAPE).flood_share < 1.25 * FAIR


def test_a_flood_gets_it_too_where_others_stay_at_one_server() -> None:
    pinned = replace(SHAPE, is_pinned=True)
    assert run(pinned).flood_share < 1.25 * FAIR
    assert run(replace(pinned, is_divided=False)).flood_share > 1.5 * FAIR  # what it would be


def test_light_users_do_not_feel_the_flood() -> None:
    calm, flooded = (sorted(run(shape).light_first_token_s) for shape in (replace(SHAPE, flood_requests=0), SHAPE))
    assert flooded[len(flooded) // 2] < 1.25 * calm[len(calm) // 2]
