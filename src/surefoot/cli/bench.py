"""`surefoot bench`: how fast the parts are, beside what the machine allows and beside peers."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from surefoot.bench.as_json import as_json
from surefoot.bench.engine import QUICK as QUICK_ENGINE
from surefoot.bench.engine import EngineSettings, run_engine
from surefoot.bench.model import QUICK as QUICK_MODEL
from surefoot.bench.model import ModelSettings, run_model
from surefoot.bench.model_results import ModelResults
from surefoot.bench.ops import PeerChoice, run_ops, with_seconds
from surefoot.bench.peers.all_serving import SERVING_PEERS, SPECULATING_PEERS
from surefoot.bench.peers.serving import PEERS, ServingPeer, speculating
from surefoot.bench.peers.shape import SHAPES, make_shape
from surefoot.bench.plot import goodput_plot
from surefoot.bench.report import show, show_engine, show_model, show_serve, show_speculate
from surefoot.bench.serve import QUICK as QUICK_SERVE
from surefoot.bench.serve import ServeSettings, run_serve
from surefoot.bench.settings import FULL, QUICK, SMOKE
from surefoot.bench.speculate import CASES as SPECULATE_CASES
from surefoot.bench.speculate import QUICK as QUICK_SPECULATE
from surefoot.bench.speculate import SpeculateSettings, run_speculate
from surefoot.bench.speculate_plot import draw_speedups
from surefoot.cli import options
from surefoot.cli.errors import told

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
PEERS_HELP = "Install what is missing of PyTorch and llama.cpp and measure both. By default: what is installed."

ServingPeers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Install llama.cpp, OpenVINO and vLLM (once) and measure them too.")
]
OnlyPeers = Annotated[list[str] | None, typer.Option(help="Of the peers only this one; may be given again.")]
PeerSeconds = Annotated[float | None, typer.Option(min=1, help="For what is run beside peers.")]

bench = typer.Typer(help="Measure speed beside the machine's limits and beside peers.", no_args_is_help=True)


@bench.command()
def ops(
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="One model's shapes, within 50 seconds.")] = False,
    variant: options.Variant = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Ours and the peers'; all usable cores by default.")
    ] = None,
    peers: Annotated[bool | None, typer.Option("--peers/--no-peers", help=PEERS_HELP)] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="For everything but installing peers.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", hidden=True, help="Tiny shapes: shows that it runs.")] = False,
) -> None:
    """Every operation at the shapes of real models, in one interleaved run with the machine's limits.

    Times are comparable only within one run: other programs disturb all cases alike.
    """
    settings = with_seconds(SMOKE if smoke else QUICK if quick else FULL, seconds)
    with told(), _status() as say:
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
        bool, typer.Option("--peers/--no-peers", help="Build llama.cpp for this machine (once) and measure it too.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(min=1, help="For everything but loading.")] = None,
) -> None:
    """One user's prompts and tokens through the whole engine, in one interleaved run with the machine's limits."""
    settings = QUICK_MODEL if quick else ModelSettings()
    settings = replace(settings, seconds=seconds or settings.seconds, float_format=float_format)
    with told(), _status() as say:
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
    seconds: Annotated[float | None, typer.Option(min=1, help="For everything but loading and peers.")] = None,
    peer_seconds: PeerSeconds = None,
) -> None:
    """Many requests at once through the whole engine: mixed, queued, with a shared prompt, disturbed by a long one."""
    settings = QUICK_ENGINE if quick else EngineSettings()
    settings = replace(
        settings,
        seconds=seconds or settings.seconds,
        peer_seconds=peer_seconds or settings.peer_seconds,
        float_format=float_format,
    )
    with told(), _status() as say:
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
    seconds: Annotated[float | None, typer.Option(min=1, help="For our own server's part.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw goodput against the rate of arrivals into this file.")] = None,
) -> None:
    """A real server process under load: streams at once, random arrivals, one user beside another with many."""
    settings = QUICK_SERVE if quick else ServeSettings()
    settings = replace(settings, seconds=seconds or settings.seconds)
    with told(), _status() as say:
        results = run_serve(path, settings, variant, threads, _chosen(peers, only), say)
    if svg is not None:
        svg.write_text(goodput_plot(results.model))
    _print(results, as_json_, show_serve)


@bench.command()
def shape(
    name: Annotated[str, typer.Argument(help="1.2b: a llama of 1.24 billion weights. tiny: for a try.")] = "1.2b",
) -> None:
    """Make a model of random weights in the forms that we and the peers read; prints its folder.

    What follows is `surefoot bench engine FOLDER --peers`.
    """
    with told(), _status() as say:
        if name not in SHAPES:
            raise ValueError(f"there is no shape {name!r}: take one of {', '.join(SHAPES)}")
        folder = make_shape(SHAPES[name], say)
    typer.echo(folder)


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
    how: Annotated[str, typer.Option("--speculate", help="What to measure: auto, lookup or draft:MODEL.")] = "auto",
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[
        bool,
        typer.Option(
            "--peers/--no-peers", help="Install llama.cpp, OpenVINO and vLLM (once); measure their speculation."
        ),
    ] = False,
    only: OnlyPeers = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="For everything but loading and peers.")] = None,
    peer_seconds: PeerSeconds = None,
    only_cases: Annotated[
        list[str] | None, typer.Option("--case", help="Only these, as edit/8 or chat/1. Can be repeated.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Draw speed-up over acceptance, depth and batch into this file.")
    ] = None,
) -> None:
    """The same prompts with speculation and without, in turns: edits and extraction, whose answers repeat much of the
    prompt, and free chat, alone and at once. The answers are compared too. With peers, each of them answers the same
    prompts, with its own speculation and without."""
    settings = QUICK_SPECULATE if quick else SpeculateSettings()
    settings = replace(
        settings,
        seconds=seconds or settings.seconds,
        peer_seconds=peer_seconds or settings.peer_seconds,
        cases=_speculate_cases(only_cases) if only_cases else settings.cases,
    )
    names = {name for peer in _chosen(peers, only) for name in (peer.name, speculating(peer.name))}
    both = [peer for peer in (*SERVING_PEERS, *SPECULATING_PEERS) if peer.name in names]
    with told(), _status() as say:
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
    """What is being done, on stderr, where somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with Console(stderr=True).status("preparing") as status:
        yield lambda text: status.update(text)
