"""`surefoot eval`: how good a model's predictions are, and how far from the model's own in float32."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from surefoot import __version__
from surefoot.api import LLM, SamplingParams
from surefoot.api.confidence import MOST_TOKENS
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.progress import showing
from surefoot.evaluate import LogitsEngine, as_json, cut_windows, page
from surefoot.evaluate import evaluate as run
from surefoot.evaluate.compare import EvaluatedModel, compare
from surefoot.evaluate.compare import as_json as comparison_as_json
from surefoot.evaluate.engines import DequantisedCheckpoint, float_engine, integer_engine, open_model
from surefoot.evaluate.llama_cpp import LlamaCpp
from surefoot.evaluate.route import AnswerMatch, calibrate, read_examples, try_model
from surefoot.evaluate.route import as_json as route_as_json
from surefoot.evaluate.speed import load_served, measure_served
from surefoot.evaluate.verdict import verdicts
from surefoot.evaluate.windows import read_prompts
from surefoot.formats import to_format
from surefoot.models import load
from surefoot.ops import Backend, KvForm
from surefoot.weights import find_model


class KvChoice(StrEnum):
    """Formats of the KV cache, with the names of KvForm."""

    KEYS_TWO_LIMBS = "keys-two-limbs"
    ONE_LIMB = "one-limb"
    TWO_LIMBS = "two-limbs"
    BFLOAT16 = "bfloat16"


evaluate = typer.Typer(help="Measure how good and how faithful a model's predictions are.", no_args_is_help=True)


@evaluate.command()
def perplexity(
    model: options.Model,
    text: Annotated[Path, typer.Option(help="Text to evaluate on (UTF-8).", exists=True, dir_okay=False)],
    as_json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Evaluate at most this many tokens (0: the whole text).")] = 4096,
    context: Annotated[
        int, typer.Option(min=2, help="Tokens in each window. Only the second half of a window is scored.")
    ] = 512,
    kv_form: Annotated[
        list[KvChoice] | None, typer.Option(help="Format of the KV cache. Can be repeated to compare formats.")
    ] = None,
    float_format: options.Format = "w8",
    fidelity: Annotated[
        bool, typer.Option("--fidelity/--no-fidelity", help="Compare with the file's weights in float32 (slow).")
    ] = True,
    re_expressed: Annotated[
        bool,
        typer.Option(
            "--re-expressed",
            help="Also run the kernels' integer weights in float32, to tell their loss from the activations'.",
        ),
    ] = False,
    llamacpp: Annotated[bool, typer.Option("--llamacpp", help="Also run llama.cpp (pip install xllamacpp).")] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
) -> None:
    """Perplexity over the same windows as llama.cpp, and divergence from the file's own weights in float32."""
    with exit_on_error(), ExitStack() as stack:
        backend = Backend(variant, threads)
        path = find_model(str(model))
        checkpoint, tokenizer = open_model(path)
        windows = cut_windows(tokenizer, text.read_text(encoding="utf-8"), context, limit)
        fmt = to_format(float_format)
        loaded = load(backend, checkpoint, fmt)
        forms = [KvForm[choice.name] for choice in kv_form or [KvChoice.KEYS_TWO_LIMBS]]
        engines: list[LogitsEngine] = [integer_engine(backend, loaded, form, context) for form in forms]
        if re_expressed and fmt.weights is not None:
            engines.append(
                float_engine(backend, DequantisedCheckpoint(checkpoint, fmt.weights), context, "re-expressed")
            )
        if llamacpp:
            engines.append(stack.enter_context(LlamaCpp(path, context, backend.threads)))
        reference = float_engine(backend, checkpoint, context) if fidelity else None
        advance = stack.enter_context(_progress(windows))
        results = run(windows, engines, reference, advance)
    if as_json_:
        typer.echo(json.dumps(as_json(results), indent=2))
    else:
        Console().print(page.perplexity_table(results))


@evaluate.command("compare")
def compare_models(
    original: options.Model,
    models: Annotated[list[Path], typer.Argument(help="Smaller models with the same tokenizer.", show_default=False)],
    text: Annotated[Path | None, typer.Option(help="Text to evaluate on (UTF-8).", exists=True, dir_okay=False)] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Your own prompts, as lines of JSON.", exists=True, dir_okay=False)
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write the comparison to this file as one HTML page with charts.", dir_okay=False),
    ] = None,
    as_json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Evaluate at most this many tokens (0: the whole text).")] = 4096,
    context: Annotated[int, typer.Option(min=2, help="Tokens in each window, or the longest prompt.")] = 512,
    num_new: Annotated[
        int, typer.Option(min=1, max=64, help="Tokens of each greedy continuation that is compared.")
    ] = 32,
    float_format: options.Format = "w8",
    in_float: Annotated[
        bool,
        typer.Option(
            "--in-float", help="Run the smaller models in float32 too, which shows the loss of their weights alone."
        ),
    ] = False,
    variant: options.Variant = None,
    threads: options.Threads = None,
) -> None:
    """Compare smaller models with the original: predictions, greedy answers, errors by layer, size and speed.

    Losses are measured against the original in float32. Speed is measured separately, of every model as it is served.
    """
    with exit_on_error(), ExitStack() as stack:
        if (text is None) == (prompts is None):
            raise ValueError("give either --text or --prompts")
        backend = Backend(variant, threads)
        paths = [find_model(str(model)) for model in (original, *models)]
        opened = []
        for number, path in enumerate(paths):
            checkpoint, tokenizer = open_model(path)
            if number == 0:
                windows = (
                    read_prompts(prompts, tokenizer, context)
                    if prompts
                    else cut_windows(tokenizer, text.read_text(encoding="utf-8") if text else "", context, limit)
                )
            fmt = to_format("f32" if number == 0 or in_float else float_format)
            name = f"{number}: {path.name}" if number else path.name
            opened.append(EvaluatedModel.of(backend, name, path, checkpoint, fmt, context))
        advance = stack.enter_context(_progress(windows))
        comparison = compare(windows, opened[0], opened[1:], num_new, advance)
        opened.clear()  # float32 weights are large, and no longer needed
        served = [load_served(str(path), float_format, variant, threads) for path in paths]
        comparison = comparison.with_speeds(measure_served(served, windows[0]))
    origin = _origin(backend)
    if report is not None:
        report.write_text(page.page(comparison, f"{paths[0].name} and what it became", origin), encoding="utf-8")
    if as_json_:
        facts = {**comparison_as_json(comparison), "verdicts": verdicts(comparison), "origin": asdict(origin)}
        typer.echo(json.dumps(facts, indent=2))
    else:
        Console().print(*page.tables(comparison), *map(escape, verdicts(comparison)), sep="\n")


@evaluate.command("route")
def calibrate_route(
    small: options.Model,
    large: Annotated[Path, typer.Argument(help="The larger model.", show_default=False)],
    examples: Annotated[
        Path, typer.Option(help="Lines of JSON: prompt or messages, and answer.", exists=True, dir_okay=False)
    ],
    match: Annotated[
        AnswerMatch,
        typer.Option(help="What makes an answer right: it contains the known one, is the same, or names the same "
                          "number last, or the same JSON first."),
    ] = AnswerMatch.CONTAINS,
    tokens: Annotated[
        int, typer.Option(min=1, max=MOST_TOKENS, help="First tokens of an answer that are looked at.")
    ] = 24,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 128,
    most_lost: Annotated[
        float, typer.Option(min=0, max=1, help="Share of right answers that may be lost beside the larger model alone.")
    ] = 0.01,
    as_json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    float_format: options.Format = "auto",
    variant: options.Variant = None,
    threads: options.Threads = None,
) -> None:  # fmt: skip
    """Find the bound from which a small model's answers are good enough for a route, on your own examples."""
    with exit_on_error():
        listed = read_examples(examples)
        paths = [find_model(str(model)) for model in (small, large)]
        served = [load_served(str(path), float_format, variant, threads) for path in paths]
        speeds = measure_served(served, served[0].tokenizer.encode(str(listed[0].messages)))
        for llm in served:
            llm.close()
        del served
        params = SamplingParams(temperature=0, seed=0, max_tokens=max_tokens)
        trials = []
        for path, speed in zip(paths, speeds, strict=True):
            llm = LLM(path, float_format=float_format, variant=variant, threads=threads)
            trials.append(try_model(llm, speed, listed, match, params, tokens))
            llm.close()
        found = calibrate(trials[0], trials[1], most_lost)
    if as_json_:
        typer.echo(json.dumps(route_as_json(found), indent=2))
    else:
        Console().print(page.route_table(found))
        typer.echo(
            f"sure = {{tokens = {tokens}, mean-logprob = {found.chosen.bound:g}}}" if found.pays else
            "No bound pays: the larger model alone takes no longer, or is right more often than the cascade may lose."
        )  # fmt: skip


def _origin(backend: Backend) -> page.Origin:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = f"{backend.variant}, {backend.threads} threads"
    return page.Origin(now, __version__, machine, shlex.join(["surefoot", *sys.argv[1:]]))


@contextmanager
def _progress(windows: Sequence[Sequence[int]]) -> Iterator[Callable[[int], None]]:
    """Counts tokens up to those of all windows."""
    total, done = sum(map(len, windows)), 0

    def advance(num_tokens: int) -> None:
        nonlocal done
        done += num_tokens
        report(done, total)

    with showing("tokens") as report:
        yield advance
