"""`surefoot run-batch`: a file of requests in, a file of answers out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from surefoot.api import LLM
from surefoot.api.batch import named_model
from surefoot.api.defaults import parse_sampling
from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.progress import loading
from surefoot.cli.startup import without_collection
from surefoot.server.run_batch import run_batch as run


def run_batch(
    source: Annotated[Path, typer.Argument(metavar="IN.JSONL", help="Requests, one a line.", show_default=False)],
    target: Annotated[Path, typer.Argument(metavar="OUT.JSONL", help="Answers, one a line.", show_default=False)],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="A GGUF file or a Hugging Face folder; by default what the lines name."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name in answers; its file's by default.")] = None,
    max_running: Annotated[int, typer.Option(min=1, help="Answers that are generated at once.")] = 32,
    float_format: options.Format = "w8",
    context: options.Context = None,
    threads: options.Threads = None,
    variant: options.Variant = None,
    speculate: options.Speculate = "auto",
    sampling: options.Sampling = None,
    chat_template: options.ChatTemplate = None,
) -> None:
    """Answer every line of a file in OpenAI's batch format (/v1/chat/completions, /v1/completions and /v1/embeddings).

    Answers are written as they end. Killed at any moment, the same command goes on where it was: no line is lost, none
    comes twice, and what it writes does not depend on the interruption.
    """
    with told():
        path = model or named_model(source)
        with without_collection(), loading(Path(path).name) as loaded:
            llm = LLM(
                path, float_format=float_format, max_context=context, max_running=max_running, threads=threads,
                variant=variant, speculate=speculate, sampling=parse_sampling(sampling or []),
                chat_template=chat_template, report=loaded,
            )  # fmt: skip
        with _progress() as report:
            num_done = run(llm, source, target, name or Path(path).name, report)
    typer.echo(f"{num_done} answered, {target} is complete", err=True)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("lines"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("lines", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
