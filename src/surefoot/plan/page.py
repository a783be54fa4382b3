"""A plan as one HTML page: a roofline over rows, and a load curve over users."""

from html import escape

from surefoot.charts.lines import Axes, Series, line_plot
from surefoot.charts.page import document, figure
from surefoot.plan.machines import SizedMachine
from surefoot.plan.planning import ModelPlanner, Plan
from surefoot.plan.subject import SizedModel
from surefoot.speed.step_time import ChunkLoad, PredictedSteps

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CURVE_POINTS = 6  # numbers of users of the load curve


def plan_page(model: SizedModel, machine: SizedMachine, plan: Plan) -> str:
    planner = ModelPlanner(model, machine, plan.service)
    parts = [
        f"<p>{escape(plan.machine_source)}; {escape(plan.variant)} with {plan.threads} threads.</p>",
        roofline(planner.times),
        *([load_curve(planner, plan.num_users or 1)] if plan.memory.fits else []),
    ]
    return document(f"{plan.model} on {plan.machine}", parts)


def roofline(times: PredictedSteps) -> str:
    """Rows per second by rows of a step: as bandwidth alone allows, as arithmetic alone allows, and as predicted."""
    steps = [times.parts([ChunkLoad(rows, 0)], 1) for rows in ROWS]
    lines = [
        Series("memory bandwidth", [rows / step.memory for rows, step in zip(ROWS, steps, strict=True)]),
        Series("arithmetic", [rows / step.products for rows, step in zip(ROWS, steps, strict=True)]),
        Series("predicted", [rows / step.total for rows, step in zip(ROWS, steps, strict=True)]),
    ]
    axes = Axes("rows of a step", "tokens per second", logarithmic=True)
    return figure("Tokens per second by rows of a step", [f"{rows}" for rows in ROWS], lines, axes)


def load_curve(planner: ModelPlanner, num_users: int) -> str:
    """Time to first token by users, up to twice the number that is carried."""
    counts = sorted({max(1, round(2 * num_users * point / CURVE_POINTS)) for point in range(1, CURVE_POINTS + 1)})
    loads = [planner.load(count) for count in counts]
    lines = {
        "median": [(float(load.num_users), load.first_token_p50_s) for load in loads],
        "95 %": [(float(load.num_users), load.first_token_p95_s) for load in loads],
    }
    return line_plot("Time to first token under load", "users", "seconds", lines)
