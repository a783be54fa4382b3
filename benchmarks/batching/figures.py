"""The figures of `python -m benchmarks batching`."""

from collections.abc import Iterator
from functools import partial

from surefoot.api import SamplingParams
from surefoot.bench.harness.figures import Measurements, Question, Target, select
from surefoot.bench.harness.timing import Label, ratios
from surefoot.bench.harness.workloads import mixed
from surefoot.core import Output, Request, StepResult
from surefoot.engine import Capacity
from surefoot.kv import KvManager
from surefoot.scheduler import Scheduler

SNAPSHOTS_PROMPT = 256  # tokens of the prompt that is read with snapshots of states and without


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


def batching_questions(measurements: Measurements, capacity: Capacity, vocab: int) -> Iterator[Question]:
    for name, lengths, bound in (("", "log-uniform", 2.0), ("50_200_", "50 or 200", 1.5), ("equal_", "equal", 0.95)):
        meaning = f"continuous batching over static, 8 slots, lengths {lengths}"
        answer = partial(_ratio, measurements, "batching", "static", "continuous", lengths=lengths)
        yield Question(f"static_batching_{name}ratio", meaning, Target(bound), answer)
    yield Question(
        "static_batching_dropping_ratio", "continuous batching over static that does not compute what has ended",
        None, partial(_ratio, measurements, "batching", "dropping", "continuous", lengths="log-uniform"),
    )  # fmt: skip
    yield Question(
        "prefix_cache_ratio", "32 that share a prompt: with the prefix cache over without", Target(5.0),
        lambda: _ratio(measurements, "prefix", "cold", "cached"),
    )  # fmt: skip
    yield from _snapshot_questions(measurements)
    limit = Target(0.04, at_least=False)
    yield Question("kv_waste", "slots held that hold no token", limit, lambda: kv_waste(capacity, vocab))


def _snapshot_questions(measurements: Measurements) -> Iterator[Question]:
    """For models with states. By the best times: the difference is smaller than what other programs add to most."""

    def share() -> float:
        taken, none = (min(select(measurements, "snapshots", taken=taken)[0].seconds) for taken in ("yes", "no"))
        return taken / none - 1

    if any(m.case.kind == "snapshots" for m in measurements.values()):
        meaning = f"prefill of {SNAPSHOTS_PROMPT} tokens: snapshots of states, and entering the tree, of the time"
        yield Question("snapshots_share", meaning, Target(0.02, at_least=False), share)


def _ratio(measurements: Measurements, kind: str, slow: str, fast: str, **labels: Label) -> list[float]:
    """The duration with `slow` over the duration with `fast`, in each round."""
    return ratios(*(select(measurements, kind, "surefoot", **labels, way=way) for way in (slow, fast)))
