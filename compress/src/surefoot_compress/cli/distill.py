"""`surefoot distill`: a draft model, or a draft head, distilled from the target model itself."""

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
from surefoot.cli.errors import exit_on_error
from surefoot.machine import usable_cores
from surefoot.weights import find_model
from surefoot_compress.distill import TrainingProgress, TrainingSettings
from surefoot_compress.draft import DraftOptions, DraftSummary, make_draft
from surefoot_compress.errors import CompressError
from surefoot_compress.make_head import HEAD_SETTINGS, HeadOptions, HeadSummary, make_head


def distill(
    target: options.Model,
    text: Annotated[
        Path,
        typer.Option(
            help="Training text (UTF-8). For a head: prompts, one per line, which the target answers.",
            exists=True,
            dir_okay=False,
        ),
    ],
    draft: Annotated[
        Path | None, typer.Option(help="Distil a draft model into this GGUF file.", dir_okay=False)
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(
            help="Distil a draft head, which reads the target's hidden states, into this safetensors file.",
            dir_okay=False,
        ),
    ] = None,
    num_layers: Annotated[
        int, typer.Option("--layers", min=2, help="Layers that a draft model keeps: the most important ones.")
    ] = 4,
    ffn: Annotated[
        int, typer.Option(min=32, help="Feed-forward units that a draft model keeps: the most important ones.")
    ] = 512,
    inside: Annotated[int, typer.Option(min=16, help="Hidden units of a head.")] = 2048,
    vocabulary: Annotated[
        int, typer.Option(min=16, help="Number of tokens that a head can draft: the most frequent ones.")
    ] = 16384,
    answer_tokens: Annotated[
        int, typer.Option(min=16, help="Longest answer, in tokens, that a head is trained on.")
    ] = 160,
    steps: Annotated[int, typer.Option(min=0, help="Training steps (0: none).")] = 1000,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Batch size (default: 2 windows for a draft model, 512 tokens for a head)."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=1e-6, max=0.1, help="Peak learning rate (default: 0.0003 for a draft model, 0.001 for a head)."
        ),
    ] = None,
    reverse: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Weight of KL(draft || target) in the loss (default: 0.3 for a draft model, 0 for a head).",
        ),
    ] = None,
    context: Annotated[int, typer.Option(min=16, help="Tokens in each training window of a draft model.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the order of windows.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    threads: options.Threads = None,
) -> None:
    """Distil a draft for speculative decoding from the model itself: a pruned copy (--draft) or a head that reads the
    model's hidden states (--head). After an interruption the same command resumes where it stopped."""
    model, num_threads = find_model(str(target)), threads or usable_cores()
    with exit_on_error(), _progress(steps) as (say, say_written):
        if (draft is None) == (head is None):
            raise CompressError("say what to make: --draft OUT.gguf or --head OUT.safetensors")
        usual = TrainingSettings(steps) if head is None else HEAD_SETTINGS
        settings = TrainingSettings(
            steps=steps,
            rate=usual.rate if rate is None else rate,
            reverse=usual.reverse if reverse is None else reverse,
            batch=usual.batch if batch is None else batch,
            seed=seed,
        )
        if head is not None:
            head_order = HeadOptions(text, settings, answer_tokens, inside, vocabulary, num_threads)
            _tell_head(make_head(model, head, head_order, say, say_written), as_json)
        elif draft is not None:
            order = DraftOptions(text, num_layers, ffn, settings, context, num_threads)
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
def _progress(steps: int) -> Iterator[tuple[Callable[[TrainingProgress], None], Callable[[int, int], None]]]:
    """Reports progress of training, and of the target's answers if a head needs them."""
    if not sys.stderr.isatty():
        yield lambda progress: None, lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        writing = bar.add_task("answers", total=None, visible=False)
        learning = bar.add_task("training", total=steps)

        def say(progress: TrainingProgress) -> None:
            bar.update(learning, completed=progress.step, description=f"loss {progress.loss:.3f}")

        yield say, lambda done, total: bar.update(writing, completed=done, total=total, visible=True)
