"""The figures of `surefoot bench engine`."""

from collections.abc import Iterator, Mapping
from functools import partial

from surefoot.api import SamplingParams
from surefoot.bench.engine.versus import OURS, WORKLOADS, Versus
from surefoot.bench.harness.engine_load import EngineLoad, FullSteps
from surefoot.bench.harness.figures import Measurements, MissingError, Question, Target, select
from surefoot.bench.harness.timing import BANDWIDTH, Label, TimedSample, ratios
from surefoot.bench.harness.workloads import mixed
from surefoot.bench.peers.serving import PEERS
from surefoot.core import Output, Request, StepResult
from surefoot.engine import Capacity
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler


def kv_waste(capacity: Capacity, vocab: int) -> float:
    """Share of allocated KV slots without a token, over all steps of the mixed workload. It depends on lengths alone,
    so this simulates the steps: no model runs, and durations come from a formula."""
    scheduler = Scheduler(capacity.scheduling, KvManager(capacity.layout))
    for number, task in enumerate(mixed(32, vocab, 0)):
        scheduler.add(Request(f"{number}", task.prompt, SamplingParams(max_tokens=task.num_new, ignore_eos=True)))
    unused = held = 0
    while scheduler.has_work:
        plan = scheduler.schedule()
        outputs = [Output(chunk.key, (0,)) for chunk in plan.chunks if chunk.samples]
        scheduler.commit(StepResult(outputs, 10 + 0.5 * plan.num_tokens))
        usages = scheduler.kv.usage()
        unused += sum(usage.unused_slots for usage in usages)
        held += sum(usage.num_held for usage in usages) * capacity.layout.block_size
    return unused / held


def engine_questions(measurements: Measurements, load: EngineLoad) -> Iterator[Question]:
    observed, capacity = load.observed, load.llm.capacity

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
    yield from _batching_questions(measurements)
    yield Question(
        "prefix_cache_ratio", "32 that share a prompt: with the prefix cache over without", Target(5.0),
        lambda: _ratio(measurements, "prefix", "cold", "cached"),
    )  # fmt: skip
    yield Question(
        "gap_p99_over_median", "8 streams while a long prompt comes: worst hundredth of gaps over median",
        Target(3.0, at_least=False), lambda: last(observed.gaps),
    )  # fmt: skip
    yield Question(
        "overhead_share_32", "time of a step that decodes 32 outside of native code", Target(0.10, at_least=False),
        overhead,
    )  # fmt: skip
    limit = Target(0.04, at_least=False)
    yield Question("kv_waste", "slots held that hold no token", limit, lambda: kv_waste(capacity, load.vocab))


def _batching_questions(measurements: Measurements) -> Iterator[Question]:
    for name, lengths, bound in (("", "log-uniform", 2.0), ("50_200_", "50 or 200", 1.5), ("equal_", "equal", 0.95)):
        meaning = f"continuous batching over static, 8 slots, lengths {lengths}"
        answer = partial(_ratio, measurements, "batching", "static", "continuous", lengths=lengths)
        yield Question(f"static_batching_{name}ratio", meaning, Target(bound), answer)
    yield Question(
        "static_batching_dropping_ratio", "continuous batching over static that does not compute what has ended",
        None, partial(_ratio, measurements, "batching", "dropping", "continuous", lengths="log-uniform"),
    )  # fmt: skip


def _ratio(measurements: Measurements, kind: str, slow: str, fast: str, **labels: Label) -> list[float]:
    """The duration with `slow` over the duration with `fast`, in each round."""
    return ratios(*(select(measurements, kind, "surefoot", **labels, way=way) for way in (slow, fast)))


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
