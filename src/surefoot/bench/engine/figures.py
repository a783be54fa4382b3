"""The figures of `surefoot bench engine`."""

from collections.abc import Iterator, Mapping
from functools import partial

from surefoot.bench.engine.versus import OURS, WORKLOADS, Versus
from surefoot.bench.harness.engine_load import EngineLoad, FullSteps
from surefoot.bench.harness.figures import Measurements, MissingError, Question, Target, select
from surefoot.bench.harness.timing import BANDWIDTH, TimedSample, ratios
from surefoot.bench.peers.serving import PEERS


def engine_questions(measurements: Measurements, load: EngineLoad) -> Iterator[Question]:
    observed = load.observed

    def speed(requests: int) -> list[float]:
        (measurement,) = select(measurements, "mix", requests=requests)
        return [float(measurement.case.labels["tokens"]) / sample.seconds for sample in measurement.samples]

    def full_steps() -> list[tuple[FullSteps, TimedSample]]:
        """The totals of each measured run, with the timed sample around it."""
        (measurement,) = select(measurements, "mix", requests=32)
        runs = observed.full_steps[-len(measurement.samples) :]
        return [pair for pair in zip(runs, measurement.samples, strict=True) if pair[0].seconds]

    def of_limit() -> list[float]:
        return [steps.bytes / sample.limits[BANDWIDTH] / steps.seconds for steps, sample in full_steps()]

    def overhead() -> list[float]:
        return [1 - steps.native_seconds / steps.seconds for steps, _ in full_steps()]

    def last(values: list[float]) -> list[float]:
        """All but the first value, which is the warm-up."""
        if not values:
            raise MissingError("not measured within the time")
        return values[1:] or values

    yield Question("output_tps_8", "output tokens/s, 8 mixed requests at once", None, lambda: speed(8))
    yield Question("output_tps_32", "output tokens/s, 32 mixed requests at once", None, lambda: speed(32))
    yield Question("step_of_limit_32", "a step that decodes 32: its bytes over bandwidth", None, of_limit)
    yield Question(
        "gap_p99_over_median", "8 streams while a long prompt comes: worst hundredth of gaps over median",
        Target(3.0, at_least=False), lambda: last(observed.gaps),
    )  # fmt: skip
    yield Question(
        "overhead_share_32", "time of a step that decodes 32 outside of native code", Target(0.10, at_least=False),
        overhead,
    )  # fmt: skip


def versus_questions(versus: Versus | None, absent: Mapping[str, str]) -> Iterator[Question]:
    def ratio(peer: str, workload: str) -> list[float]:
        if versus is None or peer in absent:
            raise MissingError(absent[peer])
        theirs, ours = (select(versus.measurements, "versus", name, workload=workload) for name in (peer, OURS))
        return ratios(theirs, ours)

    def gap(peer: str) -> float:
        if versus is None or peer in absent:
            raise MissingError(absent[peer])
        ratio_or_reason = versus.gaps[peer]
        if isinstance(ratio_or_reason, str):
            raise MissingError(ratio_or_reason)
        return ratio_or_reason

    for peer in PEERS:
        meaning = f"the same at {peer}: 8 streams while a long prompt comes, worst hundredth of gaps over median"
        yield Question(f"gap_p99_over_median_{peer}", meaning, None, partial(gap, peer))
    for workload in WORKLOADS:
        for peer in PEERS:
            meaning = f"output tokens/s over {peer}, mixed requests: {workload.name}"
            answer = partial(ratio, peer, workload.name)
            yield Question(f"vs_{peer}_{workload.name}", meaning, Target(workload.target), answer)
