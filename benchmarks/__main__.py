"""`python -m benchmarks`: every measurement that `surefoot bench` does not offer to users."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.batching.run import QUICK as QUICK_BATCHING
from benchmarks.batching.run import BatchingSettings, run_batching, show_batching
from benchmarks.cache.report import show_cache
from benchmarks.cache.run import QUICK as QUICK_CACHE
from benchmarks.cache.run import CacheSettings, run_cache
from benchmarks.fleet.report import show_fleet
from benchmarks.fleet.run import QUICK as QUICK_FLEET
from benchmarks.fleet.run import FleetSettings, run_fleet, run_simulation
from benchmarks.ops.report import show_ops
from benchmarks.ops.run import PeerChoice, run_ops
from benchmarks.ops.settings import FULL, QUICK, SMOKE
from benchmarks.plan.matrix import run_matrix
from benchmarks.plan.rates import run_rates
from benchmarks.plan.report import show_plan, show_users
from benchmarks.plan.run import QUICK as QUICK_PLAN
from benchmarks.plan.run import PlanSettings, run_plan
from benchmarks.plan.users import QUICK as QUICK_USERS
from benchmarks.plan.users import UsersSettings, run_users
from benchmarks.shapes.llama import SHAPES, make_shape
from benchmarks.shapes.random_gguf import make_random_gguf, published_header
from benchmarks.sharing.report import show_sharing
from benchmarks.sharing.run import QUICK as QUICK_SHARING
from benchmarks.sharing.run import SharingSettings, run_sharing
from benchmarks.speculate.chart import draw_speedups
from benchmarks.speculate.peers import SPECULATING_PEERS, speculating
from benchmarks.speculate.report import show_speculate
from benchmarks.speculate.run import CASES, SpeculateSettings, run_speculate
from benchmarks.speculate.run import QUICK as QUICK_SPECULATE
from benchmarks.streams.run import QUICK as QUICK_STREAMS
from benchmarks.streams.run import StreamSettings, run_streams, show_streams
from benchmarks.threads.run import QUICK as QUICK_THREADS
from benchmarks.threads.run import ThreadSettings, run_threads, show_threads
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults
from surefoot.bench.peers.all_serving import SERVING_PEERS
from surefoot.cli import options
from surefoot.cli.bench import (
    AsJson,
    Model,
    OnlyPeers,
    PeerSeconds,
    Quick,
    Seconds,
    ServingPeers,
    chosen_peers,
    given,
    report,
    status_line,
)
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import time_option
from surefoot.plan.shapes import known_shapes

PEERS_HELP = "Measure PyTorch and llama.cpp too, and install them if they are missing (default: if installed)."
SHAPES_HELP = (
    "1.2b: a Llama of 1.24 billion weights. tiny: to try the command. "
    f"Published shapes, in 4 bits: {', '.join(known_shapes())}."
)

app = typer.Typer(help="Measure parts of surefoot, from a checkout.", no_args_is_help=True, add_completion=False)


@app.command()
def ops(
    as_json_: AsJson = False,
    quick: Quick = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[bool | None, typer.Option("--peers/--no-peers", help=PEERS_HELP)] = None,
    seconds: Annotated[float | None, time_option("Time for the run, without installing peers.", at_least=0.1)] = None,
    smoke: Annotated[bool, typer.Option("--smoke", hidden=True, help="Tiny shapes: shows that all runs.")] = False,
) -> None:
    """Time every operation at the shapes of real models, interleaved with measurements of the machine's limits.

    Compare times only within one run, where other programs disturb all cases alike.
    """
    settings = given(SMOKE if smoke else QUICK if quick else FULL, seconds=seconds)
    run = partial(run_ops, settings, variant, threads, PeerChoice(peers, quick))
    report(run, partial(show_ops, settings), as_json_)


@app.command()
def shape(
    name: Annotated[str, typer.Argument(help=SHAPES_HELP)] = "1.2b",
    folder: Annotated[Path | None, typer.Option(help="Where to write (default: the cache).")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers of a published shape (default: all).")] = None,
) -> None:
    """Write a model of random weights in the formats that surefoot and its peers read, and print its folder.

    Then run `surefoot bench engine FOLDER --peers`. A published shape is one GGUF file, for `surefoot bench model`.
    """
    with exit_on_error(), status_line() as say:
        if name not in (names := [*SHAPES, *known_shapes()]):
            raise ValueError(f"there is no shape {name!r}: take one of {', '.join(names)}")
        if name in SHAPES:
            place = make_shape(SHAPES[name], say, folder / SHAPES[name].name if folder is not None else None)
        else:
            place = make_random_gguf(published_header(name, layers), folder, say)
    typer.echo(place)


@app.command()
def batching(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Seconds = None,
) -> None:
    """Time queued requests with continuous and with static batching, and prompts with a shared prefix that is cached
    and not; and say where the time of a step goes."""
    settings = given(QUICK_BATCHING if quick else BatchingSettings(), seconds=seconds, float_format=float_format)
    report(partial(run_batching, path, settings, variant, threads), show_batching, as_json_)


@app.command()
def cache(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Seconds = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder on the disk to measure (default: temporary files').")
    ] = None,
) -> None:
    """Time the first token after a restart, and what keeping prompts on disk costs many users. Each figure stands
    beside its prediction from the machine's own rates."""
    settings = given(QUICK_CACHE if quick else CacheSettings(), seconds=seconds, folder=folder)
    report(partial(run_cache, path, settings, variant, threads), show_cache, as_json_)


@app.command()
def plan(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    float_format: options.Format = "w8",
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Seconds = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="With all cores, 1 thread, avx2 and a quota of one core, one by one.")
    ] = False,
) -> None:
    """Predict prefill, decode, users' times and memory as `surefoot plan` does, then measure them, and compare."""
    settings = given(QUICK_PLAN if quick else PlanSettings(), seconds=seconds, float_format=float_format)
    if matrix:
        words = ["--format", float_format, "--seconds", f"{settings.seconds}", *(["--quick"] if quick else [])]
        report(partial(run_matrix, path, words), show_plan, as_json_)
    else:
        report(partial(run_plan, path, settings, variant, threads), show_plan, as_json_)


@app.command()
def rates(
    variant: options.Variant = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads to measure with.")] = 1,
    seconds: Annotated[float, time_option("Time to measure.", at_least=0.1)] = 60.0,
) -> None:
    """Measure what a variant's kernels reach of the machine's limits, and print it as shipped with surefoot.

    The file of a variant is src/surefoot/speed/efficiency/VARIANT.json. Nothing else should run on the machine.
    """
    with exit_on_error(), status_line() as say:
        measured = run_rates(variant, threads, seconds, say)
    typer.echo(json.dumps(measured, indent=2))


@app.command()
def users(path: Model, as_json_: AsJson = False, quick: Quick = False, threads: options.Threads = None) -> None:
    """Plan how many users a service carries, as `surefoot plan` does; then serve as many, and 1.5 times as many.

    The service is one that a user alone gets with room to spare. 95 % of answers must be in time.
    """
    settings = QUICK_USERS if quick else UsersSettings()
    report(partial(run_users, path, settings, threads), show_users, as_json_)


@app.command()
def fleet(
    path: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.", show_default=False)
    ] = None,
    as_json_: AsJson = False,
    simulate: Annotated[bool, typer.Option("--simulate", help="The router alone, without a model or servers.")] = False,
    quick: Quick = False,
    kills: Annotated[int | None, typer.Option(min=1, help="How many times a server is killed.")] = None,
) -> None:
    """Simulate a thousand machines and their router, time what a gateway adds to a server, and kill servers while
    they answer: every stream must end as if nothing had happened. With --simulate, show what changes with size."""
    settings = given(QUICK_FLEET if quick else FleetSettings(), num_kills=kills)

    def run(say: Say) -> BenchResults:
        if simulate == (path is not None):
            raise ValueError("name a model, or --simulate, which takes none")
        return run_simulation(settings.shape, say) if path is None else run_fleet(path, settings, say)

    report(run, show_fleet, as_json_)


@app.command()
def models(
    first: Model,
    second: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="How many times everything is measured.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores to share (default: all usable cores).")] = None,
) -> None:
    """Serve two models under load: each with a fixed number of threads, for every split of the cores, and behind a
    front that shares the cores out. In turns; compares the answers too."""
    settings = given(QUICK_SHARING if quick else SharingSettings(), num_rounds=rounds)
    report(partial(run_sharing, (first, second), settings, threads), show_sharing, as_json_)


@app.command()
def streams(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    seconds: Seconds = None,
) -> None:
    """Answer the same requests over HTTP and by the engine alone, in turns: what the server costs."""
    settings = given(QUICK_STREAMS if quick else StreamSettings(), seconds=seconds)
    report(partial(run_streams, path, settings, variant, threads), show_streams, as_json_)


@app.command()
def threads(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    variant: options.Variant = None,
    seconds: Seconds = None,
) -> None:
    """Serve with one core: the number of threads that the server chooses, beside others."""
    settings = given(QUICK_THREADS if quick else ThreadSettings(), seconds=seconds)
    report(partial(run_threads, path, settings, variant), show_threads, as_json_)


@app.command()
def speculate(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    how: Annotated[str, typer.Option("--speculate", help="Drafter to measure: auto, lookup or draft:MODEL.")] = "auto",
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: ServingPeers = False,
    only: OnlyPeers = None,
    seconds: Seconds = None,
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
    settings = given(
        QUICK_SPECULATE if quick else SpeculateSettings(),
        seconds=seconds, peer_seconds=peer_seconds, cases=_cases(only_cases) if only_cases else None,
    )  # fmt: skip
    names = {name for peer in chosen_peers(peers, only) for name in (peer.name, speculating(peer.name))}
    both = [peer for peer in (*SERVING_PEERS, *SPECULATING_PEERS) if peer.name in names]
    results = report(partial(run_speculate, path, settings, variant, threads, how, both), show_speculate, as_json_)
    if svg is not None:
        with exit_on_error():
            svg.write_text(draw_speedups(results))


def _cases(names: Sequence[str]) -> list[tuple[str, int]]:
    known = {f"{kind}/{num_requests}": (kind, num_requests) for kind, num_requests in CASES}
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"there is no case {unknown.pop()!r}: take one of {', '.join(known)}")
    return [known[name] for name in names]


if __name__ == "__main__":
    app()
