"""`surefoot bench ops`: prepares the cases, runs them in one interleaved run, and gathers the results."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from surefoot import machine
from surefoot.bench.attention import attention_cases
from surefoot.bench.disturbance import usage
from surefoot.bench.facts import facts_of_run, machine_facts, progress
from surefoot.bench.figures import Figure, Figures, Measurements
from surefoot.bench.limits import gauges, other_peaks
from surefoot.bench.linear import LinearCases, make_pools
from surefoot.bench.overhead import overhead_cases
from surefoot.bench.peers.cases import RunningPeer
from surefoot.bench.peers.install import Peer, find_llama, find_torch, install_llama, install_torch
from surefoot.bench.peers.process import PeerError
from surefoot.bench.settings import FORMATS, Settings
from surefoot.bench.timing import Budget, Case, Interleaver
from surefoot.ops import Backend

Say = Callable[[str], None]

NO_PEERS = "left out by --no-peers"
NOT_INSTALLED = "not installed: `surefoot bench ops --peers` installs it"
NOT_QUICK = "left out of --quick: add --peers"


@dataclass(frozen=True)
class Results:
    settings: Settings
    measurements: Measurements
    figures: list[Figure]
    peers: dict[str, dict[str, Any]]
    absent: dict[str, str]
    machine: dict[str, Any]


@dataclass(frozen=True)
class PeerChoice:
    """Which peers take part: those to install and use, those used if they are there; the others with a reason."""

    wanted: bool | None  # None: those that are installed
    quick: bool

    def resolve(self, say: Say) -> tuple[list[Peer], dict[str, str]]:
        peers, absent = [], {}
        known: dict[str, tuple[Callable[[], Peer | None], Callable[[Say], Peer]]] = {
            "torch": (find_torch, install_torch),
            "llama.cpp": (find_llama, install_llama),
        }
        for name, (find, install) in known.items():
            found = self._one(name, find, install, say)
            if isinstance(found, Peer):
                peers.append(found)
            else:
                absent[name] = found
        return peers, absent

    def _one(self, name: str, find: Callable[[], Peer | None], install: Callable[[Say], Peer], say: Say) -> Peer | str:
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


def run_ops(settings: Settings, variant: str | None, threads: int | None, choice: PeerChoice, say: Say) -> Results:
    """Everything that `surefoot bench ops` measures. Installing peers does not count against the time."""
    peers, absent = choice.resolve(say)
    start = time.perf_counter()
    backend = Backend(variant, threads)
    facts, before = machine_facts(backend), usage()
    check_memory(settings, [peer.name for peer in peers])
    with ExitStack() as stack:
        running = [stack.enter_context(RunningPeer.start(peer, backend.threads)) for peer in peers]
        limits = gauges(backend, settings.footprint_bytes)
        int8_peak = 1 / min(limits[1].run() for _ in range(3))
        cases = list(_own_cases(backend, settings, int8_peak, say))
        described = _add_peers(cases, running, settings, int8_peak, absent, say)
        # Cases of one row count lie together, ours and the peers', so that they meet the same disturbance.
        cases.sort(key=lambda case: int(case.labels.get("rows", 0)))
        left = settings.seconds - (time.perf_counter() - start)
        interleaver = Interleaver(limits, Budget(left), report=lambda *at: say(progress(*at)))
        measurements = interleaver.run(cases)
    absent |= interleaver.failures
    facts |= facts_of_run(before, start)
    return Results(settings, measurements, Figures(measurements, settings, absent).compute(), described, absent, facts)


def _own_cases(backend: Backend, settings: Settings, int8_peak: float, say: Say) -> Iterator[Case]:
    yield from other_peaks(backend)
    yield from LinearCases(backend, settings, make_pools(backend, settings, say), int8_peak).cases()
    say("filling KV caches")
    yield from attention_cases(backend, settings)
    say("preparing decode steps")
    yield from overhead_cases(backend, settings)


def _add_peers(
    cases: list[Case], running: list[RunningPeer], settings: Settings, peak: float, absent: dict[str, str], say: Say
) -> dict[str, dict[str, Any]]:
    """Appends the peers' cases, or says why there are none; what the peers tell of themselves."""
    described = {}
    for peer in running:
        say(f"preparing {peer.name}")
        try:
            cases += peer.cases(settings, peak)
            described[peer.name] = peer.describe()
        except PeerError as failure:
            absent[peer.name] = str(failure)
    return described


def check_memory(settings: Settings, peers: Sequence[str]) -> None:
    """Raise before the machine swaps or the kernel kills us."""
    needed, limit = needed_bytes(settings, peers), machine.memory().limit_bytes
    if needed > 0.8 * limit:
        raise MemoryError(f"this run needs {needed / 1e9:.0f} GB, the machine allows {limit / 1e9:.0f}: try --quick")


def needed_bytes(settings: Settings, peers: Sequence[str]) -> float:
    """The gauge's footprint, the KV caches, the arrays of the most rows, and every engine's matrices at its bytes per
    weight."""
    ours = sum(FORMATS[name].bits / 8 * 1.2 for name in settings.formats)
    theirs = {"torch": 2.0, "llama.cpp": 1.7}
    weights = sum(max(2 * n * k, settings.pool_bytes) for model in settings.models for n, k in model.matrices.values())
    most_rows, most_columns = max(*settings.rows, *settings.prefills), max(2 * model.ffn for model in settings.models)
    rows = 3 * 4 * most_rows * most_columns
    matrices = weights * (ours + sum(theirs[peer] for peer in peers))
    return settings.footprint_bytes + settings.kv_bytes + rows + matrices


def with_seconds(settings: Settings, seconds: float | None) -> Settings:
    return settings if seconds is None else replace(settings, seconds=seconds)
