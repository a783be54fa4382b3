"""`surefoot run-batch`: a file of requests in, a file of answers out."""

from pathlib import Path
from typing import Annotated

import typer

from surefoot.api import LLM
from surefoot.api.defaults import parse_sampling
from surefoot.api.opening import open_model
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.options import OF_FLEET_BATCH, OF_LOCAL_BATCH, refuse_unused
from surefoot.cli.progress import loading, showing
from surefoot.cli.startup import without_collection
from surefoot.fleet.fleet_key import read_fleet_key
from surefoot.fleet.run_batch import FleetAccess, run_batch_on_fleet
from surefoot.formats import AUTO_FORMAT
from surefoot.server.batch.input_lines import named_model
from surefoot.server.batch.run_batch import run_batch as run
from surefoot.weights import default_cache


def run_batch(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="IN.JSONL", help="Requests, one per line.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="OUT.JSONL", help="Answers, one per line.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", help="A GGUF file or a Hugging Face folder (default: the model that the requests name)."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model in the answers (default: its file's name).")
    ] = None,
    max_running: Annotated[int, typer.Option(min=1, help="Largest number of answers that are generated at once.")] = 32,
    float_format: options.Format = AUTO_FORMAT,
    context: options.Context = None,
    threads: options.Threads = None,
    variant: options.Variant = None,
    speculate: options.Speculate = "auto",
    sampling: options.Sampling = None,
    chat_template: options.ChatTemplate = None,
    pooling: options.Pooling = None,
    adapter: options.Adapter = None,
    fleet: Annotated[
        list[str] | None,
        typer.Option(help="Address of a server that answers lines, such as http://10.0.0.2:8000; may be repeated."),
    ] = None,
    fleet_key: Annotated[Path | None, typer.Option(help="File with the fleet's key, as the servers have it.")] = None,
    key: Annotated[
        str,
        typer.Option(envvar="SUREFOOT_KEY", help="A key of a client, if the servers have keys.", show_default=False),
    ] = "",
) -> None:
    """Answer every line of a file in OpenAI's batch format (/v1/chat/completions, /v1/completions and /v1/embeddings).

    Answers are written as they finish. After an interruption the same command resumes: no line is lost, no line is
    answered twice, and the answers do not depend on the interruption.
    """
    with exit_on_error():
        refuse_unused(ctx, OF_FLEET_BATCH if fleet else OF_LOCAL_BATCH)
        if fleet:
            if fleet_key is None:
                raise ValueError("--fleet needs the fleet's key: give its file with --fleet-key")
            access = FleetAccess(fleet, read_fleet_key(fleet_key), key, max_running)
            with showing("lines") as report:
                _say_done(run_batch_on_fleet(access, source, target, name or model, report), target)
            return
        path = model or named_model(source)
        with without_collection(), loading(Path(path).name) as loaded:
            opened = open_model(path, parse_sampling(sampling or []), chat_template, pooling, adapter)
            llm = LLM(
                opened.hashing(default_cache()), float_format=float_format, max_context=context,
                max_running=max_running, threads=threads, variant=variant, speculate=speculate, report=loaded,
            )  # fmt: skip
        with showing("lines") as report:
            num_done = run(llm, source, target, name or Path(path).name, report)
    _say_done(num_done, target)


def _say_done(num_done: int, target: Path) -> None:
    typer.echo(f"{num_done} answered, {target} is complete", err=True)
