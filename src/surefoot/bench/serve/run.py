"""Runs `surefoot bench serve`: a real server process under load, compared with peers' servers."""

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count, product
from pathlib import Path

from surefoot import machine
from surefoot.api.opening import open_model
from surefoot.bench.harness.figures import Measurements
from surefoot.bench.harness.http_load import open_loop, poisson, streams_s
from surefoot.bench.harness.loaded_model import RunFacts
from surefoot.bench.harness.progress import Say, progress
from surefoot.bench.harness.results import BenchResults, describe_model
from surefoot.bench.harness.server_process import SUREFOOT, RunningServer, free_port, own_launch, running
from surefoot.bench.harness.timing import Case, EngineError, Interleaver, Label, TimeBudget
from surefoot.bench.harness.workloads import Task, ids, mixed, num_tokens
from surefoot.bench.peers.install import run as run_command
from surefoot.bench.peers.serving import PeerLimits, ServingPeer, StartedPeers, start_peers
from surefoot.bench.serve.fairness import Fairness, Others, measure_fairness
from surefoot.bench.serve.figures import Served, serve_questions
from surefoot.bench.serve.goodput import LoadPoint, point
from surefoot.models import read_config
from surefoot.ops import Backend

NUM_STREAMS, NUM_GREEDY = 32, 50
STREAMS = f"streams/{NUM_STREAMS}"  # the case
MANY, ONE = "many", "one"  # users: one with many requests in flight, and one with a single request
CONTEXT = 1024
TRIAL, MIN_SIZE = 1 / 16, 1 / 16  # of the lengths of requests
PROBE_PROMPT, PROBE_NEW = 64, 8
GRACE_S = 20.0  # after the last arrival, for requests to end; those that do not are not good
SHARE_OF_STREAMS, SHARE_OF_SWEEP = 0.4, 0.4  # of ServeSettings.seconds


@dataclass(frozen=True)
class ServeSettings:
    """How much to measure."""

    seconds: float = 300  # for the run, without loading and peers
    rounds: int = 3
    rates: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)  # of arrivals, as shares of the capacity
    num_probes: int = 40  # requests of the single user in the fairness test
    num_starts: int = 3  # server starts, to time how long it takes to get ready
    rate_s: float | None = None  # how long requests arrive at each rate; None: a part of `seconds`
    sweep_rounds: int = 1  # over all rates and servers, in turns


QUICK = ServeSettings(seconds=30, rounds=2, rates=(1 / 4, 1 / 2), num_probes=8, num_starts=1)
# Only goodput, long enough to rest a claim on.
GOODPUT = ServeSettings(
    seconds=240, rounds=1, rates=(1 / 8, 1 / 4, 1 / 2, 3 / 4, 1), num_probes=0, num_starts=1, rate_s=60,
    sweep_rounds=3,
)  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """The state that all measurements share."""

    server: RunningServer
    keys: Mapping[str, str]  # API keys by user
    peers: StartedPeers
    vocab: int  # token ids of the model
    settings: ServeSettings
    say: Say
    size: float = TRIAL  # scale of the lengths of requests
    seeds: Iterator[int] = field(default_factory=lambda: count(1))  # a new one for all that is drawn

    def tasks(self, num_requests: int) -> list[Task]:
        """New tasks for each call, so that nothing is cached."""
        return mixed(num_requests, self.vocab, next(self.seeds), self.size)


def run_serve(
    model: str,
    settings: ServeSettings,
    variant: str | None,
    threads: int | None,
    peers: Sequence[ServingPeer],
    say: Say,
) -> BenchResults:
    config, run, options = read_config(open_model(model).checkpoint), RunFacts(), server_options(variant, threads)
    with ExitStack() as stack:
        keys = _make_keys(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "keys.toml")
        ready_s, server = _start(stack, model, (*options, "--keys", str(keys.file)), settings.num_starts, say)
        num_threads = threads or machine.usable_cores()
        peer_limits = PeerLimits(num_threads, NUM_STREAMS, CONTEXT, NUM_STREAMS * CONTEXT)
        started = start_peers(stack, peers, Path(model), peer_limits, say)
        stage = _sized(Stage(server, keys.of, started, config.vocab_size, settings, say))
        _warm_up_peers(stage)
        measurements = _streams(stage)
        points = list(_sweep(stage, _capacity(measurements)))
        fairness = _fairness(stage) if settings.num_probes else None
    served = Served(measurements, points, fairness, ready_s, started.absent)
    described = describe_model(model, config, ready_s[-1]) | {
        "scale": stage.size, "ready_s": ready_s,
        "single_user": asdict(fairness) if fairness is not None else None,
        "points": [asdict(load_point) for load_point in points],
    }  # fmt: skip
    figures = [question.figure() for question in serve_questions(served)]
    with closing(Backend(variant, threads)) as backend:
        facts = run.facts(backend)
    return BenchResults(served.measurements, figures, described, started.described, started.absent, facts)


# ---- the server ----


@dataclass(frozen=True)
class Keys:
    """API keys of the benchmark's users."""

    file: Path
    of: Mapping[str, str]  # by user


def _make_keys(file: Path) -> Keys:
    return Keys(
        file,
        {user: run_command(*SUREFOOT, "keys", "add", file, "--user", user, "--admin").strip() for user in (MANY, ONE)},
    )


def server_options(variant: str | None, threads: int | None) -> tuple[str, ...]:
    """The server's command line options. None: the option is left out."""
    options = {"--max-context": CONTEXT, "--variant": variant, "--threads": threads}
    return tuple(str(word) for name, value in options.items() if value is not None for word in (name, value))


def _start(
    stack: ExitStack, model: str, options: Sequence[str], num_starts: int, say: Say
) -> tuple[list[float], RunningServer]:
    """Starts the server `num_starts` times. Returns the seconds of each start, and the last server, which keeps
    running."""

    def start() -> AbstractContextManager[RunningServer]:
        port = free_port()
        return running(own_launch(model, port, *options), port)

    say("starting the server")
    seconds = []
    for _ in range(num_starts - 1):
        with start() as server:
            seconds.append(server.ready_s)
    server = stack.enter_context(start())
    return [*seconds, server.ready_s], server


# ---- measurements ----


def _sized(stage: Stage) -> Stage:
    """With the scale of lengths at which the rounds of streams take their share of the time, from short runs, the first
    of which warms up."""
    seconds = SHARE_OF_STREAMS * stage.settings.seconds / (stage.settings.rounds + 1)
    endpoint = stage.server.endpoint(stage.keys[MANY])
    _, trial_s = (streams_s(endpoint, stage.tasks(NUM_STREAMS)) for _ in range(2))
    return replace(stage, size=min(1.0, max(MIN_SIZE, seconds * TRIAL / trial_s)))


def _warm_up_peers(stage: Stage) -> None:
    """Runs the measured number of streams on each peer. Excludes peers that fail."""
    peers = stage.peers
    for name, endpoint in list(peers.endpoints.items()):
        stage.say(f"trying {name}")
        try:
            streams_s(endpoint, stage.tasks(NUM_STREAMS))
        except EngineError as failure:
            del peers.endpoints[name]
            peers.absent[name] = str(failure)


def _streams(stage: Stage) -> Measurements:
    """Measures the server with 32 requests in flight."""
    endpoint, settings = stage.server.endpoint(stage.keys[MANY]), stage.settings
    labels: dict[str, Label] = {"tokens": num_tokens(stage.tasks(NUM_STREAMS))}
    case = Case(STREAMS, "streams", lambda: streams_s(endpoint, stage.tasks(NUM_STREAMS)), labels=labels)
    budget = TimeBudget(1.5 * SHARE_OF_STREAMS * settings.seconds, settings.rounds)
    interleaver = Interleaver([], budget, report=lambda *at: stage.say(progress(*at)))
    measurements = interleaver.run([case])
    if interleaver.failures:
        raise EngineError(f"the server failed under load: {interleaver.failures['surefoot']}")
    return measurements


def _capacity(measurements: Measurements) -> float:
    """Completed requests per second with 32 requests in flight."""
    seconds = measurements[STREAMS].best
    assert seconds is not None
    return NUM_STREAMS / seconds


def _sweep(stage: Stage, capacity: float) -> Iterator[LoadPoint]:
    """Measures each server at each arrival rate, in turns, with the same arrivals."""
    settings = stage.settings
    endpoints = {"surefoot": stage.server.endpoint(stage.keys[MANY])} | stage.peers.endpoints
    offered_s = settings.rate_s or SHARE_OF_SWEEP * settings.seconds / len(settings.rates)
    for number, (turn, share) in enumerate(product(range(settings.sweep_rounds), settings.rates)):
        arrivals = poisson(share * capacity, offered_s, seed=number)
        for name, endpoint in endpoints.items():
            stage.say(f"{name}: {share * capacity:.2f} requests a second for {offered_s:.0f} s, round {turn + 1}")
            run = open_loop(endpoint, stage.tasks(len(arrivals)), arrivals, offered_s + GRACE_S)
            yield point(name, share * capacity, run, offered_s, turn)
            open_loop(endpoint, stage.tasks(1), [0.0])  # until the server has nothing left to do


def _fairness(stage: Stage) -> Fairness:
    """Measures a single user's requests on an idle server, and while another user keeps fifty requests in flight."""
    stage.say("one user among many")
    single, many = (stage.server.endpoint(stage.keys[user]) for user in (ONE, MANY))
    crowds = (mixed(NUM_GREEDY, stage.vocab, seed) for seed in stage.seeds)
    others = Others(many, chain.from_iterable(crowds), NUM_GREEDY)
    return measure_fairness(single, _probes(stage), _probes(stage), others)


def _probes(stage: Stage) -> list[Task]:
    rng = random.Random(next(stage.seeds))
    return [Task(ids(rng, PROBE_PROMPT, stage.vocab), PROBE_NEW) for _ in range(stage.settings.num_probes)]
