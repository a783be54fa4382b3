"""`surefoot distill`: a small draft of a model, taught by the model itself."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.compress.distill import Progress, Settings
from surefoot.compress.draft import DraftOrder, make_draft
from surefoot.machine import usable_cores
from surefoot.weights import find_model


def distill(
    target: options.Model,
    draft: Annotated[Path, typer.Option(help="The GGUF file to write: a draft for speculation.", dir_okay=False)],
    text: Annotated[Path, typer.Option(help="Text to learn on, UTF-8.", exists=True, dir_okay=False)],
    num_layers: Annotated[int, typer.Option("--layers", min=2, help="Layers that stay, by importance.")] = 4,
    ffn: Annotated[int, typer.Option(min=32, help="Feed-forward units that stay, by importance.")] = 512,
    steps: Annotated[int, typer.Option(min=0, help="Steps of training; 0: pruned only.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="Windows of a step.")] = 2,
    rate: Annotated[float, typer.Option(min=1e-6, max=0.1, help="The largest learning rate.")] = 3e-4,
    reverse: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The part of KL(draft || target) in the loss.")
    ] = 0.3,
    context: Annotated[int, typer.Option(min=16, help="Tokens of a window.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the order of windows.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: options.Threads = None,
) -> None:
    """Prune the model to a draft of itself and repair it by distillation. Stopped at any moment, the same command goes
    on where it was."""
    settings = Settings(steps=steps, rate=rate, reverse=reverse, batch=batch, seed=seed)
    order = DraftOrder(text, num_layers, ffn, settings, context, threads or usable_cores())
    with told(), _progress(steps) as say:
        summary = make_draft(find_model(str(target)), draft, order, say)
    if as_json:
        typer.echo(json.dumps(asdict(summary), indent=2))
        return
    kept = ", ".join(map(str, summary.layers))
    typer.echo(f"layers {kept}; {summary.ffn} units; {summary.num_weights / 1e6:.1f} M weights of its own")
    typer.echo(
        f"agrees with the target: {summary.agreement_pruned:.1%} pruned, {summary.agreement_distilled:.1%} taught"
    )


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[Progress], None]]:
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    columns = (TextColumn("loss {task.fields[loss]:.3f}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("distilling", total=steps, loss=0.0)
        yield lambda progress: bar.update(task, completed=progress.step, loss=progress.loss)
