"""The figures of `python -m benchmarks speculate`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from benchmarks.speculate.answers import Used, total_used
from benchmarks.speculate.peers import speculating
from benchmarks.speculate.versus import KIND, LOADS, OURS, SpeculateVersus
from surefoot.bench.harness.figures import Measurements, MissingError, Question, Target, median, select
from surefoot.bench.harness.timing import Measurement, ratios
from surefoot.bench.peers.serving import PEERS

# Minimum speed-up, by kind of prompt and requests at once.
TARGETS = {("edit", 1): 3.0, ("edit", 8): 1.5, ("chat", 1): 0.98, ("chat", 32): 0.98}
NAMES = {"edit": "edits and extraction", "chat": "free chat"}


def speculate_questions(measurements: Measurements, used: Mapping[str, Sequence[Used]]) -> Iterator[Question]:
    """used: token counts of each case, one per run."""

    def speedup(kind: str, num_requests: int) -> list[float]:
        off, on = (select(measurements, kind, requests=num_requests, way=way) for way in ("off", "on"))
        return ratios(off, on)

    def tokens_per_pass() -> float:
        runs = used.get("edit 1", [])
        if not runs:
            raise MissingError("not measured within the time: give more with --seconds")
        total = total_used(runs[1:] or runs)  # the first run learnt the cost of steps
        return total.num_tokens / total.num_passes

    for (kind, num_requests), bound in TARGETS.items():
        meaning = f"{NAMES[kind]}, {num_requests} at once: speed over speculation off"
        answer = partial(speedup, kind, num_requests)
        yield Question(f"speedup_{kind}_{num_requests}", meaning, Target(bound), answer)
    yield Question("tokens_per_pass_edit", "edits, one by one: tokens a pass", None, tokens_per_pass)


def speculate_versus_questions(versus: SpeculateVersus | None, absent: Mapping[str, str]) -> Iterator[Question]:
    def measured(name: str, kind: str, at_once: int) -> list[Measurement]:
        if versus is None or name in absent:
            raise MissingError(absent[name])
        return select(versus.measurements, KIND, name, task=kind, requests=at_once)

    def speedup(peer: str, kind: str, at_once: int) -> list[float]:
        off, on = (measured(name, kind, at_once) for name in (peer, speculating(peer)))
        return ratios(off, on)

    def over_best(peer: str, kind: str, at_once: int) -> float:
        endpoints = versus.peers.endpoints if versus else {}
        servers = [name for name in (peer, speculating(peer)) if name in endpoints and name not in absent] or [peer]
        ours = partial(measured, OURS, kind, at_once)
        return min(median(ratios(measured(name, kind, at_once), ours())) for name in servers)

    for peer in PEERS:
        for kind, at_once in LOADS:
            load, name = f"{NAMES[kind]}, {at_once} at once", f"{kind}_{at_once}"
            meaning = f"{load}: {peer}'s speed with its speculation over without"
            yield Question(f"{peer}_speedup_{name}", meaning, None, partial(speedup, peer, kind, at_once))
            meaning = f"{load}: our tokens/s over {peer}'s, the better of its two"
            yield Question(f"vs_{peer}_{name}", meaning, None, partial(over_best, peer, kind, at_once))
