"""`surefoot eval`: how good a model's predictions are, and how far from the model's own in float32."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.evaluate import Engine, as_json, cut_windows
from surefoot.evaluate import evaluate as run
from surefoot.evaluate.engines import ReExpressed, float_engine, integer_engine
from surefoot.evaluate.llama_cpp import LlamaCpp
from surefoot.evaluate.opening import open_model
from surefoot.evaluate.report import table
from surefoot.formats import to_format
from surefoot.models import load
from surefoot.ops import Backend, KvForm
from surefoot.weights import find_model


class KvChoice(StrEnum):
    """Named as KvForm's."""

    KEYS_TWO_LIMBS = "keys-two-limbs"
    ONE_LIMB = "one-limb"
    TWO_LIMBS = "two-limbs"
    BFLOAT16 = "bfloat16"


evaluate = typer.Typer(help="Measure how good and how faithful a model's predictions are.", no_args_is_help=True)


@evaluate.callback()
def _group() -> None:
    """Keeps `perplexity` a subcommand while it is the only one."""


@evaluate.command()
def perplexity(
    model: options.Model,
    text: Annotated[Path, typer.Option(help="The text to predict, in UTF-8.", exists=True, dir_okay=False)],
    as_json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Use so many of the text's tokens; 0: all of them.")] = 4096,
    context: Annotated[int, typer.Option(min=2, help="Tokens of a window; its second half is scored.")] = 512,
    kv_form: Annotated[
        list[KvChoice] | None, typer.Option(help="How keys and values are kept; may be repeated.")
    ] = None,
    float_format: options.Format = "w8",
    fidelity: Annotated[
        bool, typer.Option("--fidelity/--no-fidelity", help="Compare with the file's weights in float32 (slow).")
    ] = True,
    re_expressed: Annotated[
        bool, typer.Option("--re-expressed", help="Run the kernels' integers in float32 too: weights apart.")
    ] = False,
    llamacpp: Annotated[bool, typer.Option("--llamacpp", help="Run llama.cpp (pip install xllamacpp) too.")] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
) -> None:
    """Perplexity in windows as llama.cpp cuts them, and divergence from the file's own weights in float32."""
    with told(), ExitStack() as stack:
        backend = Backend(variant, threads)
        path = find_model(str(model))
        checkpoint, tokenizer = open_model(path)
        windows = cut_windows(tokenizer, text.read_text(encoding="utf-8"), context, limit)
        weight_format = to_format(float_format)
        loaded = load(backend, checkpoint, weight_format)
        forms = [KvForm[choice.name] for choice in kv_form or [KvChoice.KEYS_TWO_LIMBS]]
        engines: list[Engine] = [integer_engine(backend, loaded, form, context) for form in forms]
        if re_expressed and weight_format is not None:
            engines.append(float_engine(backend, ReExpressed(checkpoint, weight_format), context, "re-expressed"))
        if llamacpp:
            engines.append(stack.enter_context(LlamaCpp(path, context, backend.threads)))
        reference = float_engine(backend, checkpoint, context) if fidelity else None
        advance = stack.enter_context(_progress(windows))
        results = run(windows, engines, reference, advance)
    if as_json_:
        typer.echo(json.dumps(as_json(results), indent=2))
    else:
        Console().print(table(results))


@contextmanager
def _progress(windows: Sequence[Sequence[int]]) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, where somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda num_tokens: None
        return
    columns = (TextColumn("tokens"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tokens", total=sum(map(len, windows)))
        yield lambda num_tokens: bar.advance(task, num_tokens)
