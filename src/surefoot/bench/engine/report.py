"""The results of `surefoot bench engine` as tables."""

from rich.console import Console, Group
from rich.table import Table

from surefoot.bench.engine.step_profile import StepProfile
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.tables import make_table, model_parts, model_title, title


def show_engine(results: BenchResults, console: Console) -> None:
    console.print(
        Group(
            *model_parts(results, _engine_times(results), _step_profile(StepProfile(**results.model["step_profile"])))
        )
    )


def _engine_times(results: BenchResults) -> Table:
    table = make_table(model_title(results.model), "case", "lengths", "best s", "median", "output tokens/s")
    for m in results.measurements.values():
        if m.case.kind != "limit" and m.best and m.median:
            tokens = float(m.case.labels.get("tokens", 0)) if m.case.kind in ("mix", "versus") else 0.0
            speed = f"{tokens / m.median:,.1f}" if tokens else ""
            table.add_row(title(m), f"{m.case.labels['percent']} %", f"{m.best:.3f}", f"{m.median:.3f}", speed)
    return table


def _step_profile(profile: StepProfile) -> Table:
    heading = f"A step that decodes {profile.num_requests}: {profile.total * 1e3:.2f} ms"
    table = make_table(heading, "part", "µs", "share")
    for name, seconds in profile.parts.items():
        table.add_row(name, f"{seconds * 1e6:,.0f}", f"{seconds / profile.total:.1%}")
    table.add_row("of sampling, native", f"{profile.sampling_native * 1e6:,.0f}", "")
    return table
