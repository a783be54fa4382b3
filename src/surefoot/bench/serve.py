"""`surefoot bench serve`: a real server process under load, beside the bare engine and beside peers' servers."""

import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path

from surefoot.api import LLM
from surefoot.bench.crowd import Crowd
from surefoot.bench.facts import progress
from surefoot.bench.fairness import Fairness, Others, measure_fairness
from surefoot.bench.figures import Measurements
from surefoot.bench.load import open_loop, poisson
from surefoot.bench.loaded import load_model
from surefoot.bench.model_results import ModelResults
from surefoot.bench.one_core import one_core_cases, streams_s
from surefoot.bench.outcomes import Point, point
from surefoot.bench.peers.install import run as run_command
from surefoot.bench.peers.serving import Room, ServingPeer, StartedPeers, start_peers
from surefoot.bench.serve_figures import Served, serve_questions
from surefoot.bench.server_process import SUREFOOT, Running, free_port, own_launch, running
from surefoot.bench.timing import Budget, Case, EngineError, Interleaver
from surefoot.bench.workloads import Task, ids, mixed, num_tokens

Say = Callable[[str], None]

NUM_STREAMS, NUM_GREEDY = 32, 50
MANY, ONE = "many", "one"  # users
CONTEXT = 1024
KV_BYTES = 600 << 20
PROBE_PROMPT, PROBE_NEW = 64, 8
SHARE_OF_STREAMS, SHARE_OF_SWEEP, SHARE_OF_CORE = 0.4, 0.4, 0.5  # of the seconds


@dataclass(frozen=True)
class ServeSettings:
    """seconds: for everything but loading, peers and the one core. rates: of what 32 streams at once are served at."""

    seconds: float = 300
    rounds: int = 3
    rates: tuple[float, ...] = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
    num_probes: int = 40
    num_starts: int = 3
    one_core: bool = True


QUICK = ServeSettings(seconds=30, rounds=2, rates=(1 / 4, 1 / 2), num_probes=8, num_starts=1, one_core=False)


@dataclass(frozen=True)
class Stage:
    """What the measurements need: the bare engine, the servers, and how long requests are."""

    crowd: Crowd
    server: Running
    keys: Mapping[str, str]  # by user
    peers: StartedPeers
    size: float
    settings: ServeSettings
    say: Say

    def tasks(self, num_requests: int) -> list[Task]:
        """Others each time, so that nothing is cached."""
        return mixed(num_requests, self.crowd.vocab, self.crowd.seed(), self.size)


def run_serve(
    model: str,
    settings: ServeSettings,
    variant: str | None,
    threads: int | None,
    peers: Sequence[ServingPeer],
    say: Say,
) -> ModelResults:
    def load() -> LLM:
        return LLM(
            model, variant=variant, threads=threads, max_context=CONTEXT, max_running=NUM_STREAMS, kv_bytes=KV_BYTES
        )

    loaded = load_model(model, load, say)
    words = _words(variant, threads)
    with ExitStack() as stack:
        keys = _make_keys(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "keys.toml")
        ready_s, server = _start(stack, model, (*words, "--keys", str(keys.file)), settings.num_starts, say)
        room = Room(loaded.llm.backend.threads, NUM_STREAMS, CONTEXT, NUM_STREAMS * CONTEXT)
        started = start_peers(stack, peers, Path(model), room, say)
        crowd = Crowd(loaded.llm)
        size = _size(crowd, SHARE_OF_STREAMS * settings.seconds / (2 * (settings.rounds + 1)))
        stage = Stage(crowd, server, keys.of, started, size, settings, say)
        _warm_up_peers(stage)
        measurements = _streams(stage)
        points = list(_sweep(stage, _capacity(measurements)))
        fairness = _fairness(stage)
    cores, way = _one_core(stage, model, words)
    served = Served({**measurements, **cores}, points, fairness, ready_s, started.absent)
    described = loaded.described | {
        "scale": size, "ready_s": ready_s, "one_core_by": way, "single_user": asdict(fairness),
        "points": [asdict(one) for one in points],
    }  # fmt: skip
    figures = [question.figure() for question in serve_questions(served)]
    return ModelResults(served.measurements, figures, described, started.described, started.absent, loaded.run_facts())


# ---- the server ----


@dataclass(frozen=True)
class Keys:
    file: Path
    of: Mapping[str, str]


def _make_keys(file: Path) -> Keys:
    return Keys(
        file,
        {user: run_command(*SUREFOOT, "keys", "add", file, "--user", user, "--admin").strip() for user in (MANY, ONE)},
    )


def _words(variant: str | None, threads: int | None) -> tuple[str, ...]:
    """Options of the server: no more than are given."""
    given = {"--max-context": CONTEXT, "--variant": variant, "--threads": threads}
    return tuple(str(word) for name, value in given.items() if value is not None for word in (name, value))


def _start(
    stack: ExitStack, model: str, words: Sequence[str], num_starts: int, say: Say
) -> tuple[list[float], Running]:
    """How long each start took; the last of them stays."""

    def start() -> AbstractContextManager[Running]:
        port = free_port()
        return running(own_launch(model, port, *words), port)

    say("starting the server")
    seconds = []
    for _ in range(num_starts - 1):
        with start() as server:
            seconds.append(server.ready_s)
    server = stack.enter_context(start())
    return [*seconds, server.ready_s], server


# ---- measurements ----


def _size(crowd: Crowd, seconds: float) -> float:
    """Of the mixed workload's lengths, so that 32 requests take so long."""
    speed = crowd.speed()
    return min(1.0, max(1 / 16, seconds / (6200 * speed.token_s + 260 * speed.step_s)))


def _warm_up_peers(stage: Stage) -> None:
    """As many streams as will come. Who fails is left out."""
    peers = stage.peers
    for name, endpoint in list(peers.endpoints.items()):
        stage.say(f"trying {name}")
        try:
            streams_s(endpoint, stage.tasks(NUM_STREAMS))
        except EngineError as failure:
            del peers.endpoints[name]
            peers.absent[name] = str(failure)


def _streams(stage: Stage) -> Measurements:
    """The same work through the bare engine and over HTTP, in turns."""
    endpoint, settings = stage.server.endpoint(stage.keys[MANY]), stage.settings
    tokens = num_tokens(stage.tasks(NUM_STREAMS))

    def case(name: str, run: Callable[[], float]) -> Case:
        return Case(f"{name}/{NUM_STREAMS}", "streams", run, labels={"way": name, "tokens": tokens})

    cases = [
        case("bare", lambda: stage.crowd.run(stage.tasks(NUM_STREAMS))),
        case("served", lambda: streams_s(endpoint, stage.tasks(NUM_STREAMS))),
    ]
    budget = Budget(1.5 * SHARE_OF_STREAMS * settings.seconds, settings.rounds)
    interleaver = Interleaver([], budget, report=lambda *at: stage.say(progress(*at)))
    found = interleaver.run(cases)
    if interleaver.failures:
        raise EngineError(f"the server failed under load: {interleaver.failures['surefoot']}")
    return found


def _capacity(found: Measurements) -> float:
    """Requests a second, of 32 at once."""
    seconds = found[f"served/{NUM_STREAMS}"].best
    assert seconds is not None
    return NUM_STREAMS / seconds


def _sweep(stage: Stage, capacity: float) -> Iterator[Point]:
    """Every server at every rate, one after the other, with the same arrivals."""
    settings = stage.settings
    endpoints = {"surefoot": stage.server.endpoint(stage.keys[MANY])} | stage.peers.endpoints
    offered_s = SHARE_OF_SWEEP * settings.seconds / len(settings.rates)
    for number, share in enumerate(settings.rates):
        arrivals = poisson(share * capacity, offered_s, seed=number)
        for name, endpoint in endpoints.items():
            stage.say(f"{name}: {share * capacity:.2f} requests a second for {offered_s:.0f} s")
            run = open_loop(endpoint, stage.tasks(len(arrivals)), arrivals)
            yield point(name, share * capacity, run, offered_s)


def _fairness(stage: Stage) -> Fairness:
    """One user's requests, one after the other: on an idle server, and from the moment that another has sent fifty."""
    stage.say("one user among many")
    one, many = (stage.server.endpoint(stage.keys[user]) for user in (ONE, MANY))
    crowds = (mixed(NUM_GREEDY, stage.crowd.vocab, stage.crowd.seed()) for _ in count())
    others = Others(many, chain.from_iterable(crowds), NUM_GREEDY)
    return measure_fairness(one, _probes(stage), _probes(stage), others)


def _probes(stage: Stage) -> list[Task]:
    rng = random.Random(stage.crowd.seed())
    return [Task(ids(rng, PROBE_PROMPT, stage.crowd.vocab), PROBE_NEW) for _ in range(stage.settings.num_probes)]


def _one_core(stage: Stage, model: str, words: Sequence[str]) -> tuple[Measurements, str | None]:
    """Servers that may use one core: with their own number of threads and with given ones."""
    if not stage.settings.one_core:
        return {}, None
    stage.say("servers with one core")
    tasks = partial(stage.tasks, NUM_STREAMS // 4)
    with one_core_cases(model, tasks, words) as (cases, way):
        return Interleaver([], Budget(SHARE_OF_CORE * stage.settings.seconds, stage.settings.rounds)).run(cases), way
