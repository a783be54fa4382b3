"""`surefoot bench`: speed beside the machine's limits and beside other engines (peers).

The commands of `python -m benchmarks`, which only a checkout has, are made of the same parts.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from surefoot.bench.agent.replay import FORMS
from surefoot.bench.agent.run import QUICK as QUICK_AGENT
from surefoot.bench.agent.run import AgentSettings, run_agent, show_agent
from surefoot.bench.engine.run import QUICK as QUICK_ENGINE
from surefoot.bench.engine.run import EngineSettings, run_engine, show_engine
from surefoot.bench.harness.progress import Say
from surefoot.bench.harness.results import BenchResults, as_json
from surefoot.bench.harness.timing import EngineError
from surefoot.bench.model.run import QUICK as QUICK_MODEL
from surefoot.bench.model.run import ModelSettings, run_model, show_model
from surefoot.bench.peers.all_serving import SERVING_PEERS
from surefoot.bench.peers.llama_server import LlamaServer
from surefoot.bench.peers.serving import PEERS, ServingPeer
from surefoot.bench.serve.report import goodput_plot, show_serve
from surefoot.bench.serve.run import GOODPUT, ServeSettings, run_serve
from surefoot.bench.serve.run import QUICK as QUICK_SERVE
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import time_option
from surefoot.formats import AUTO_FORMAT

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A GGUF file or a Hugging Face folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quick = Annotated[bool, typer.Option("--quick", help="Measure less: within 50 seconds, loading not counted.")]
Seconds = Annotated[float | None, time_option("Time for the run, without loading and peers.", at_least=1)]
ServingPeers = Annotated[
    bool, typer.Option("--peers/--no-peers", help="Also measure llama.cpp, OpenVINO and vLLM (installed once).")
]
OnlyPeers = Annotated[list[str] | None, typer.Option(help="Measure this peer only. Can be repeated.")]
PeerSeconds = Annotated[float | None, time_option("Time for the cases that run beside peers.", at_least=1)]

Settings = TypeVar("Settings")  # a frozen dataclass

bench = typer.Typer(help="Measure speed beside the machine's limits and other engines.", no_args_is_help=True)


@bench.command()
def model(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    float_format: options.Format = AUTO_FORMAT,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Also measure llama.cpp, compiled for this machine (once).")
    ] = False,
    seconds: Seconds = None,
) -> None:
    """Time one user's prefill and decode through the whole engine, interleaved with the machine's limits."""
    settings = given(QUICK_MODEL if quick else ModelSettings(), seconds=seconds, float_format=float_format)
    report(lambda say: run_model(path, settings, variant, threads, peers, say), show_model, as_json_)


@bench.command()
def engine(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    float_format: options.Format = AUTO_FORMAT,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: ServingPeers = False,
    only: OnlyPeers = None,
    seconds: Seconds = None,
    peer_seconds: PeerSeconds = None,
) -> None:
    """Time many requests at once through the engine: a mix of lengths, and streams beside a long prompt."""
    settings = given(
        QUICK_ENGINE if quick else EngineSettings(),
        seconds=seconds, peer_seconds=peer_seconds, float_format=float_format,
    )  # fmt: skip
    chosen = chosen_peers(peers, only)
    report(lambda say: run_engine(path, settings, variant, threads, chosen, say), show_engine, as_json_)


@bench.command()
def serve(
    path: Model,
    as_json_: AsJson = False,
    quick: Quick = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: ServingPeers = False,
    only: OnlyPeers = None,
    seconds: Seconds = None,
    svg: Annotated[Path | None, typer.Option(help="Draw goodput against arrival rate into this file.")] = None,
    goodput: Annotated[
        bool,
        typer.Option("--goodput", help="Random arrivals alone: 60 s at each of five rates, three rounds in turns."),
    ] = False,
) -> None:
    """Put a real server process under load: concurrent streams, random arrivals, one user beside a busy one."""
    settings = given(QUICK_SERVE if quick else GOODPUT if goodput else ServeSettings(), seconds=seconds)
    chosen = chosen_peers(peers, only)
    results = report(lambda say: run_serve(path, settings, variant, threads, chosen, say), show_serve, as_json_)
    if svg is not None:
        svg.write_text(goodput_plot(results.model))


@bench.command()
def agent(
    path: Model,
    as_json_: AsJson = False,
    quick: Annotated[bool, typer.Option("--quick", help="Short sessions: 3 turns up to 3,000 tokens.")] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Also measure llama.cpp's server, compiled here (once).")
    ] = False,
    turns: Annotated[int | None, typer.Option(min=1, help="Turns of a session (default: 20).")] = None,
    users: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Numbers of users at once (default: 1,4,8).")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N,N", help="Tokens of the first and the last prompt (default: 6000,30000).")
    ] = None,
    form: Annotated[str, typer.Option(help=f"API that the agents use: {' or '.join(FORMS)}.")] = "messages",
) -> None:
    """Replay growing sessions of coding agents against a real server process, and restart it."""
    if form not in FORMS:
        raise typer.BadParameter(f"there is no form {form!r}: take {' or '.join(FORMS)}")
    settings = given(QUICK_AGENT if quick else AgentSettings(), users=numbers(users), form=form)
    lengths = dict(zip(("first_tokens", "last_tokens"), numbers(tokens) or (), strict=False))
    settings = replace(settings, sizes=given(settings.sizes, turns=turns, **lengths))
    chosen = [LlamaServer()] if peers else []
    report(lambda say: run_agent(path, settings, variant, threads, chosen, say), show_agent, as_json_)


def numbers(text: str | None) -> tuple[int, ...] | None:
    """The numbers of a list such as 1,4,8."""
    if text is None:
        return None
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 1,4,8")
    return tuple(map(int, words))


def chosen_peers(peers: bool, only: list[str] | None) -> list[ServingPeer]:
    if unknown := set(only or ()) - set(PEERS):
        raise typer.BadParameter(f"there is no peer {unknown.pop()!r}: take one of {', '.join(PEERS)}")
    return [peer for peer in SERVING_PEERS if (peers or only) and peer.name in (only or PEERS)]


def given(settings: Settings, **values: object) -> Settings:
    """The settings with those values that the command line gave: None was not given."""
    return replace(settings, **{name: value for name, value in values.items() if value is not None})  # type: ignore[type-var]


def report(
    run: Callable[[Say], BenchResults], show: Callable[[BenchResults, Console], None], as_json_: bool
) -> BenchResults:
    """Runs a benchmark under a status line, and prints its results."""
    with exit_on_error(), status_line() as say:
        try:
            results = run(say)
        except EngineError as failure:
            raise ValueError(str(failure)) from failure
    if as_json_:
        typer.echo(json.dumps(as_json(results), indent=2))
    else:
        show(results, Console())
    return results


@contextmanager
def status_line() -> Iterator[Say]:
    """On stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    with Console(stderr=True).status("preparing") as status:
        yield lambda text: status.update(text)
