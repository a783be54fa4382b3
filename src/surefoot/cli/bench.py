"""`surefoot bench`: speed beside the machine's limits and beside other engines (peers)."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from surefoot.bench.cache.report import show_cache
from surefoot.bench.cache.run import QUICK as QUICK_CACHE
from surefoot.bench.cache.run import CacheSettings, run_cache
from surefoot.bench.engine.report import show_engine
from surefoot.bench.engine.run import QUICK as QUICK_ENGINE
from surefoot.bench.engine.run import EngineSettings, run_engine
from surefoot.bench.fleet.report import show_fleet
from surefoot.bench.fleet.run import QUICK as QUICK_FLEET
from surefoot.bench.fleet.run import FleetSettings, run_fleet, run_simulation
from surefoot.bench.harness.as_json import as_json
from surefoot.bench.harness.model_results import ModelResults
from surefoot.bench.model.random_gguf import make_random_gguf, published_header
from surefoot.bench.model.report import show_model
from surefoot.bench.model.run import QUICK as QUICK_MODEL
from surefoot.bench.model.run import ModelSettings, run_model
from surefoot.bench.ops.report import show
from surefoot.bench.ops.run import PeerChoice, run_ops, with_seconds
from surefoot.bench.ops.settings import FULL, QUICK, SMOKE
from surefoot.bench.peers.all_serving import SERVING_PEERS, SPECULATING_PEERS
from surefoot.bench.peers.serving import PEERS, ServingPeer, speculating
from surefoot.bench.peers.shape import SHAPES, make_shape
from surefoot.bench.plan.matrix import run_matrix
from surefoot.bench.plan.rates import run_rates
from surefoot.bench.plan.report import show_plan, show_users
from surefoot.bench.plan.run import QUICK as QUICK_PLAN
from surefoot.bench.plan.run import PlanSettings, run_plan
from surefoot.bench.plan.users import QUICK as QUICK_USERS
from surefoot.bench.plan.users import UsersSettings, run_users
from surefoot.bench.serve.report import goodput_plot, show_serve
from surefoot.bench.serve.run import GOODPUT, ServeSettings, run_serve
from surefoot.bench.serve.run import QUICK as QUICK_SERVE
from surefoot.bench.sharing.report import show_sharing
from surefoot.bench.sharing.run import QUICK as QUICK_SHARING
from surefoot.bench.sharing.run import SharingSettings, run_sharing
from surefoot.bench.speculate.chart import draw_speedups
from surefoot.bench.speculate.report import show_speculate
from surefoot.bench.speculate.run import CASES as SPECULATE_CASES
from surefoot.bench.speculate.run import QUICK as QUICK_SPECULATE
from surefoot.bench.speculate.run import SpeculateSettings, run_speculate
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import time_option
from surefoot.plan.shapes import known_shapes

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
PEERS_HELP = "Measure PyTorch and llama.cpp too, and install them if they are missing (default: if installed)."

ServingPeers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Also measure llama.cpp, OpenVINO and vLLM (installed once).")
]
OnlyPeers = Annotated[list[str] | None, typer.Option(help="Measure this peer only. Can be repeated.")]
PeerSeconds = Annotated[float | None, time_option("Time for the cases that run beside peers.", at_least=1)]

bench = typer.Typer(help="Measure speed beside the machine's limits and other engines.", no_args_is_help=True)


@bench.command()
def ops(
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="One model's shapes, within 50 seconds.")] = False,
    variant: options.Variant = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads, for peers too (default: all usable cores).")
    ] = None,
    peers: Annotated[bool | None, typer.Option("--peers/--no-peers", help=PEERS_HELP)] = None,
    seconds: Annotated[float | None, time_option("Time for the run, without installing peers.", at_least=0.1)] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", hidden=True, help="Tiny shapes, to show that everything runs.")
    ] = False,
) -> None:
    """Time every operation at the shapes of real models, interleaved with measurements of the machine's limits.

    Compare times only within one run, where other programs disturb all cases alike.
    """
    settings = with_seconds(SMOKE if smoke else QUICK if quick else FULL, seconds)
    with exit_on_error(), _status() as say:
        results = run_ops(settings, variant, threads, PeerChoice(peers, quick), say)
    if as_json_:
        typer.echo(json.dumps(as_json(results), indent=2))
    else:
        show(results, Console())


@bench.command()
def model(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer rounds: within 50 seconds, loading not counted.")
    ] = False,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Also measure llama.cpp, compiled for this machine (once).")
    ] = False,
    seconds: Annotated[float | None, time_option("Time for the run, without loading.", at_least=1)] = None,
) -> None:
    """Time one user's prefill and decode through the whole engine, interleaved with the machine's limits."""
    settings = QUICK_MODEL if quick else ModelSettings()
    settings = replace(settings, seconds=seconds or settings.seconds, float_format=float_format)
    with exit_on_error(), _status() as say:
        results = run_model(path, settings, variant, threads, peers, say)
    _print(results, as_json_, show_model)


@bench.command()
def engine(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter requests: within 50 seconds, loading not counted.")
    ] = False,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: ServingPeers = False,
    only: OnlyPeers = None,
    seconds: Annotated[float | None, time_option("Time for the run, without loading and peers.", at_least=1)] = None,
    peer_seconds: PeerSeconds = None,
) -> None:
    """Time many requests at once through the engine: mixed, queued, with a shared prefix, beside a long prompt."""
    settings = QUICK_ENGINE if quick else EngineSettings()
    settings = replace(
        settings,
        seconds=seconds or settings.seconds,
        peer_seconds=peer_seconds or settings.peer_seconds,
        float_format=float_format,
    )
    with exit_on_error(), _status() as say:
        results = run_engine(path, settings, variant, threads, _chosen(peers, only), say)
    _print(results, as_json_, show_engine)


@bench.command()
def serve(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter requests: within 50 seconds, loading not counted.")
    ] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: ServingPeers = False,
    only: OnlyPeers = None,
    seconds: Annotated[float | None, time_option("Time for our own server, without peers.", at_least=1)] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw goodput against arrival rate into this file.")] = None,
    goodput: Annotated[
        bool,
        typer.Option("--goodput", help="Random arrivals alone: 60 s at each of five rates, three rounds in turns."),
    ] = False,
) -> None:
    """Put a real server process under load: concurrent streams, random arrivals, one user beside a busy one."""
    settings = QUICK_SERVE if quick else GOODPUT if goodput else ServeSettings()
    settings = replace(settings, seconds=seconds or settings.seconds)
    with exit_on_error(), _status() as say:
        results = run_serve(path, settings, variant, threads, _chosen(peers, only), say)
    if svg is not None:
        svg.write_text(goodput_plot(results.model))
    _print(results, as_json_, show_serve)


@bench.command()
def shape(
    name: Annotated[
        str,
        typer.Argument(
            help="1.2b: a Llama of 1.24 billion weights. tiny: to try the command. "
            f"Published shapes, in 4 bits: {', '.join(known_shapes())}."
        ),
    ] = "1.2b",
    folder: Annotated[Path | None, typer.Option(help="Where to write (default: the cache).")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers of a published shape (default: all).")] = None,
) -> None:
    """Write a model of random weights in the formats that surefoot and its peers read, and print its folder.

    Then run `surefoot bench engine FOLDER --peers`. A published shape is one GGUF file, for `surefoot bench model`.
    """
    with exit_on_error(), _status() as say:
        if name not in (names := [*SHAPES, *known_shapes()]):
            raise ValueError(f"there is no shape {name!r}: take one of {', '.join(names)}")
        if name in SHAPES:
            place = make_shape(SHAPES[name], say, folder / SHAPES[name].name if folder is not None else None)
        else:
            place = make_random_gguf(published_header(name, layers), folder, say)
    typer.echo(place)


@bench.command()
def cache(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter prompts: within 50 seconds, loading not counted.")
    ] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Annotated[float | None, time_option("Time for the run, without loading.", at_least=1)] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on the disk to measure (default: temporary files').")
    ] = None,
) -> None:
    """Time the first token after a restart, and what keeping prompts on disk costs many users. Each figure stands
    beside its prediction from the machine's own rates."""
    settings = QUICK_CACHE if quick else CacheSettings()
    settings = replace(settings, seconds=seconds or settings.seconds, folder=folder)
    with exit_on_error(), _status() as say:
        results = run_cache(path, settings, variant, threads, say)
    _print(results, as_json_, show_cache)


@bench.command()
def plan(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter prompts, fewer users: within 50 seconds.")] = False,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Annotated[float | None, time_option("Time for the cases, without loading.", at_least=1)] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="With all cores, 1 thread, avx2 and a quota of one core, one by one.")
    ] = False,
) -> None:
    """Predict prefill, decode, users' times and memory as `surefoot plan` does, then measure them, and compare."""
    settings = QUICK_PLAN if quick else PlanSettings()
    settings = replace(settings, seconds=seconds or settings.seconds, float_format=float_format)
    with exit_on_error(), _status() as say:
        if matrix:
            options_ = ["--format", float_format, "--seconds", f"{settings.seconds}", *(["--quick"] if quick else [])]
            results = run_matrix(path, options_, say)
        else:
            results = run_plan(path, settings, variant, threads, say)
    _print(results, as_json_, show_plan)


@bench.command()
def rates(
    variant: options.Variant = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads to measure with.")] = 1,
    seconds: Annotated[float, time_option("Time to measure.", at_least=0.1)] = 60.0,
) -> None:
    """Measure what a variant's kernels reach of the machine's limits, and print it as shipped with surefoot.

    The file of a variant is src/surefoot/ops/efficiency/VARIANT.json. Nothing else should run on the machine.
    """
    with exit_on_error(), _status() as say:
        measured = run_rates(variant, threads, seconds, say)
    typer.echo(json.dumps(measured, indent=2))


@bench.command()
def users(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Shorter prompts and answers, fewer of them.")] = False,
    threads: options.Threads = None,
) -> None:
    """Plan how many users a service carries, as `surefoot plan` does; then serve as many, and 1.5 times as many.

    The service is one that a user alone gets with room to spare. 95 % of answers must be in time.
    """
    with exit_on_error(), _status() as say:
        results = run_users(path, QUICK_USERS if quick else UsersSettings(), threads, say)
    _print(results, as_json_, show_users)


@bench.command()
def fleet(
    path: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.", show_default=False)
    ] = None,
    as_json_: AsJson = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="The router alone, without a model or servers.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer users, requests and kills.")] = False,
    kills: Annotated[int | None, typer.Option(min=1, help="How many times a server is killed.")] = None,
) -> None:
    """Simulate a thousand machines and their router, time what a gateway adds to a server, and kill servers while
    they answer: every stream must end as if nothing had happened. With --simulate, show what changes with size."""
    settings = QUICK_FLEET if quick else FleetSettings()
    with exit_on_error(), _status() as say:
        if simulate == (path is not None):
            raise ValueError("name a model, or --simulate, which takes none")
        settings = replace(settings, num_kills=kills or settings.num_kills)
        results = run_simulation(settings.shape, say) if path is None else run_fleet(path, settings, say)
    _print(results, as_json_, show_fleet)


@bench.command()
def models(
    first: Model,
    second: Model,
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="One round of short answers.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="How many times everything is measured.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to share (default: all usable cores).")] = None,
) -> None:
    """Serve two models under load: each with a fixed number of threads, for every split of the cores, and behind a
    front that shares the cores out. In turns; compares the answers too."""
    settings = QUICK_SHARING if quick else SharingSettings()
    with exit_on_error(), _status() as say:
        settings = replace(settings, num_rounds=rounds or settings.num_rounds)
        results = run_sharing((first, second), settings, threads, say)
    _print(results, as_json_, show_sharing)


def _chosen(peers: bool, only: list[str] | None) -> list[ServingPeer]:
    if unknown := set(only or ()) - set(PEERS):
        raise typer.BadParameter(f"there is no peer {unknown.pop()!r}: take one of {', '.join(PEERS)}")
    return [peer for peer in SERVING_PEERS if (peers or only) and peer.name in (only or PEERS)]


@bench.command()
def speculate(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter answers: within 50 seconds, loading not counted.")
    ] = False,
    how: Annotated[str, typer.Option("--speculate", help="Drafter to measure: auto, lookup or draft:MODEL.")] = "auto",
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers/--no-peers", help="Also measure the speculation of llama.cpp, OpenVINO and vLLM (installed once)."
        ),
    ] = False,
    only: OnlyPeers = None,
    seconds: Annotated[float | None, time_option("Time for the run, without loading and peers.", at_least=1)] = None,
    peer_seconds: PeerSeconds = None,
    only_cases: Annotated[
        list[str] | None,
        typer.Option("--case", help="Measure this case only, such as edit/8 or chat/1. Can be repeated."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Draw speed-up against acceptance rate, depth and batch size into this file.")
    ] = None,
) -> None:
    """Answer the same prompts with speculation and without, in turns, and check that the answers are equal. Edits and
    extraction repeat much of their prompt; free chat does not. Prompts run one at a time and several at once. Peers
    answer the same prompts with their own speculation and without."""
    settings = QUICK_SPECULATE if quick else SpeculateSettings()
    settings = replace(
        settings,
        seconds=seconds or settings.seconds,
        peer_seconds=peer_seconds or settings.peer_seconds,
        cases=_speculate_cases(only_cases) if only_cases else settings.cases,
    )
    names = {name for peer in _chosen(peers, only) for name in (peer.name, speculating(peer.name))}
    both = [peer for peer in (*SERVING_PEERS, *SPECULATING_PEERS) if peer.name in names]
    with exit_on_error(), _status() as say:
        results = run_speculate(path, settings, variant, threads, how, both, say)
        if svg is not None:
            svg.write_text(draw_speedups(results))
    _print(results, as_json_, show_speculate)


def _speculate_cases(names: Sequence[str]) -> list[tuple[str, int]]:
    known = {f"{kind}/{num_requests}": (kind, num_requests) for kind, num_requests in SPECULATE_CASES}
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"there is no case {unknown.pop()!r}: take one of {', '.join(known)}")
    return [known[name] for name in names]


def _print(results: ModelResults, as_json_: bool, show: Callable[[ModelResults, Console], None]) -> None:
    if as_json_:
        typer.echo(json.dumps(as_json(results) | {"model": results.model}, indent=2))
    else:
        show(results, Console())


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """A status line on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with Console(stderr=True).status("preparing") as status:
        yield lambda text: status.update(text)
