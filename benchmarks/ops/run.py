"""Prepares the cases of `python -m benchmarks ops`, runs them interleaved, and collects the results."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.ops.attention import attention_cases
from benchmarks.ops.figures import Figures
from benchmarks.ops.linear import LinearCases, make_pools
from benchmarks.ops.overhead import overhead_cases
from benchmarks.ops.peer_install import Peer, find_llama, find_torch, install_llama, install_torch
from benchmarks.ops.peers import RunningPeer
from benchmarks.ops.settings import FORMATS, QUICK, OpsSettings
from surefoot import machine
from surefoot.bench.harness.loaded_model import RunFacts, gauges, peak_case
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.harness.timing import Case, Interleaver, TimeBudget
from surefoot.bench.peers.install import PeerError
from surefoot.ops import Backend
from surefoot.ops.backend import supported_variants
from surefoot.ops.probe import PeakKind

NO_PEERS = "left out by --no-peers"
NOT_INSTALLED = "not installed: `python -m benchmarks ops --peers` installs it"
NOT_QUICK = "left out of --quick: add --peers"


@dataclass(frozen=True)
class PeerChoice:
    """Which peers take part."""

    wanted: bool | None  # True: install missing peers. None: use installed peers. False: none
    quick: bool  # leaves out llama.cpp unless peers are wanted

    def resolve(self, say: Say) -> tuple[list[Peer], dict[str, str]]:
        """The peers that take part, and reasons by peer that does not."""
        peers, absent = [], {}
        known: dict[str, tuple[Callable[[], Peer | None], Callable[[Say], Peer]]] = {
            "torch": (find_torch, install_torch),
            "llama.cpp": (find_llama, install_llama),
        }
        for name, (find, install) in known.items():
            peer_or_reason = self._get(name, find, install, say)
            if isinstance(peer_or_reason, Peer):
                peers.append(peer_or_reason)
            else:
                absent[name] = peer_or_reason
        return peers, absent

    def _get(self, name: str, find: Callable[[], Peer | None], install: Callable[[Say], Peer], say: Say) -> Peer | str:
        if self.wanted is False:
            return NO_PEERS
        if self.wanted is None and self.quick and name != "torch":
            return NOT_QUICK
        if self.wanted is None:
            return find() or NOT_INSTALLED
        try:
            return install(say)
        except (PeerError, OSError) as failure:
            return str(failure)


def run_ops(
    settings: OpsSettings, variant: str | None, threads: int | None, choice: PeerChoice, say: Say
) -> BenchResults:
    """Runs the benchmark. Installing peers does not count against the time."""
    peers, absent = choice.resolve(say)
    run, backend = RunFacts(), Backend(variant, threads)
    check_memory(settings, [peer.name for peer in peers])
    with ExitStack() as stack:
        running = [stack.enter_context(RunningPeer.start(peer, backend.threads)) for peer in peers]
        limits = gauges(backend, settings.footprint_bytes)
        int8_peak = 1 / min(limits[1].run() for _ in range(3))
        cases = list(_own_cases(backend, settings, int8_peak, say))
        described = _add_peers(cases, running, settings, int8_peak, absent, say)
        # Our cases and the peers' with the same row count are neighbours, so that noise hits them alike.
        cases.sort(key=lambda case: int(case.labels.get("rows", 0)))
        remaining = settings.seconds - run.seconds
        interleaver = Interleaver(limits, TimeBudget(remaining), report=lambda *at: say(progress(*at)))
        measurements = interleaver.run(cases)
    absent |= interleaver.failures
    figures = Figures(measurements, settings, absent).compute()
    return BenchResults(measurements, figures, {}, described, absent, run.facts(backend))


def _own_cases(backend: Backend, settings: OpsSettings, int8_peak: float, say: Say) -> Iterator[Case]:
    yield from _other_peaks(backend)
    yield from LinearCases(backend, settings, make_pools(backend, settings, say), int8_peak).cases()
    say("filling KV caches")
    yield from attention_cases(backend, settings)
    say("preparing decode steps")
    yield from overhead_cases(backend, settings)


def _add_peers(
    cases: list[Case], running: list[RunningPeer], settings: OpsSettings, peak: float, absent: dict[str, str], say: Say
) -> dict[str, dict[str, Any]]:
    """Appends the peers' cases, or adds the reason to `absent`. Returns facts about each peer."""
    described = {}
    for peer in running:
        say(f"preparing {peer.name}")
        try:
            cases += peer.cases(settings, peak)
            described[peer.name] = peer.describe()
        except PeerError as failure:
            absent[peer.name] = str(failure)
    return described


def check_memory(settings: OpsSettings, peers: Sequence[str]) -> None:
    """Raises MemoryError if the run would make the machine swap or the kernel kill it."""
    needed, limit = needed_bytes(settings, peers), machine.memory().limit_bytes
    if needed > 0.8 * limit:
        advice = ": try --quick" if needed_bytes(QUICK, peers) <= min(0.8 * limit, needed) else ""
        raise MemoryError(f"this run needs {needed / 1e9:.1f} GB, the machine allows {limit / 1e9:.1f}{advice}")


def needed_bytes(settings: OpsSettings, peers: Sequence[str]) -> float:
    """Bytes of the bandwidth gauge's footprint, the KV caches, the largest rows, and every engine's matrices."""
    ours = sum(FORMATS[name].bits / 8 * 1.2 for name in settings.formats)
    theirs = {"torch": 2.0, "llama.cpp": 1.7}
    weights = sum(max(2 * n * k, settings.pool_bytes) for model in settings.models for n, k in model.matrices.values())
    max_rows, max_columns = max(*settings.rows, *settings.prefills), max(2 * model.ffn for model in settings.models)
    rows = 3 * 4 * max_rows * max_columns
    matrices = weights * (ours + sum(theirs[peer] for peer in peers))
    return settings.footprint_bytes + settings.kv_bytes + rows + matrices


def _other_peaks(backend: Backend) -> list[Case]:
    """Cases for other peaks (VNNI, floating point), for information."""
    cases = [peak_case(backend, "float32_peak", PeakKind.FLOAT)]
    if backend.variant == "amx":
        cases.append(peak_case(backend, "bf16_peak", PeakKind.BF16_MATRIX))
    if backend.variant != "avx512" and "avx512" in supported_variants():
        cases.append(peak_case(Backend("avx512", backend.threads), "vnni_peak", PeakKind.INT8))
    return cases
