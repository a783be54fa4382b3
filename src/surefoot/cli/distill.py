"""`surefoot distill`: a small draft of a model, or a head on its states, taught by the model itself."""

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
from surefoot.compress.draft import DraftOrder, DraftSummary, make_draft
from surefoot.compress.later import CompressError
from surefoot.compress.make_head import HEAD_SETTINGS, HeadOrder, HeadSummary, make_head
from surefoot.machine import usable_cores
from surefoot.weights import find_model


def distill(
    target: options.Model,
    text: Annotated[
        Path,
        typer.Option(
            help="Text to learn on, UTF-8; for a head prompts, one a line, which the target answers.",
            exists=True,
            dir_okay=False,
        ),
    ],
    draft: Annotated[Path | None, typer.Option(help="The GGUF file to write: a draft model.", dir_okay=False)] = None,
    head: Annotated[
        Path | None,
        typer.Option(help="The safetensors file to write: a head on the target's states.", dir_okay=False),
    ] = None,
    num_layers: Annotated[int, typer.Option("--layers", min=2, help="A draft's layers, by importance.")] = 4,
    ffn: Annotated[int, typer.Option(min=32, help="A draft's feed-forward units, by importance.")] = 512,
    inside: Annotated[int, typer.Option(min=16, help="A head's units.")] = 2048,
    vocabulary: Annotated[int, typer.Option(min=16, help="Tokens that a head guesses from.")] = 16384,
    answer_tokens: Annotated[int, typer.Option(min=16, help="The longest answer that a head learns from.")] = 160,
    steps: Annotated[int, typer.Option(min=0, help="Steps of training; 0: none.")] = 1000,
    batch: Annotated[
        int | None, typer.Option(min=1, help="What a step learns from: 2 windows for a draft, 512 tokens for a head.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=1e-6, max=0.1, help="The largest learning rate: 0.0003 for a draft, 0.001 for a head."),
    ] = None,
    reverse: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="The part of KL(draft || target) in the loss: 0.3, and 0 for a head."),
    ] = None,
    context: Annotated[int, typer.Option(min=16, help="Tokens of a draft's window.")] = 256,
    seed: Annotated[int, typer.Option(help="Of the order of windows.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: options.Threads = None,
) -> None:
    """Make a draft for speculation that the model teaches itself: a pruned copy (--draft) or a head on its states
    (--head). Stopped at any moment, the same command goes on where it was."""
    model, num_threads = find_model(str(target)), threads or usable_cores()
    with told(), _progress(steps) as (say, say_written):
        if (draft is None) == (head is None):
            raise CompressError("say what to make: --draft OUT.gguf or --head OUT.safetensors")
        usual = Settings(steps) if head is None else HEAD_SETTINGS
        settings = Settings(
            steps=steps,
            rate=usual.rate if rate is None else rate,
            reverse=usual.reverse if reverse is None else reverse,
            batch=usual.batch if batch is None else batch,
            seed=seed,
        )
        if head is not None:
            head_order = HeadOrder(text, settings, answer_tokens, inside, vocabulary, num_threads)
            _tell_head(make_head(model, head, head_order, say, say_written), as_json)
        elif draft is not None:
            order = DraftOrder(text, num_layers, ffn, settings, context, num_threads)
            _tell_draft(make_draft(model, draft, order, say), as_json)


def _tell_draft(summary: DraftSummary, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(summary), indent=2))
        return
    kept = ", ".join(map(str, summary.layers))
    typer.echo(f"layers {kept}; {summary.ffn} units; {summary.num_weights / 1e6:.1f} M weights of its own")
    typer.echo(
        f"agrees with the target: {summary.agreement_pruned:.1%} pruned, {summary.agreement_distilled:.1%} taught"
    )


def _tell_head(summary: HeadSummary, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(summary), "tokens_per_pass": summary.tokens_per_pass}, indent=2))
        return
    before, after = (
        " / ".join(f"{share:.1%}" for share in shares)
        for shares in (summary.accepted_untaught, summary.accepted_taught)
    )
    typer.echo(f"{summary.num_weights / 1e6:.1f} M weights, taught on {summary.num_tokens} tokens of the target's own")
    typer.echo(f"held-out tokens that it can guess: {summary.known:.1%}")
    typer.echo(f"one / two / three guesses right: {before} untaught, {after} taught")
    typer.echo(f"tokens a pass with drafts of three: {summary.tokens_per_pass:.2f}")


@contextmanager
def _progress(steps: int) -> Iterator[tuple[Callable[[Progress], None], Callable[[int, int], None]]]:
    """Of training, and of the answers before it where there are some."""
    if not sys.stderr.isatty():
        yield lambda progress: None, lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        writing = bar.add_task("answers", total=None, visible=False)
        learning = bar.add_task("training", total=steps)

        def say(progress: Progress) -> None:
            bar.update(learning, completed=progress.step, description=f"loss {progress.loss:.3f}")

        yield say, lambda done, total: bar.update(writing, completed=done, total=total, visible=True)
