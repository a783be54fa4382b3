"""`surefoot compress`: a smaller checkpoint of the same model."""

import json
import re
from collections import Counter
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.progress import progress
from surefoot.cli.sizes import size_option
from surefoot.machine import usable_cores
from surefoot.weights import find_model
from surefoot_compress.methods import METHODS, CompressOptions
from surefoot_compress.run import CompressSummary, compress_model

Method = StrEnum("Method", {name.replace("-", "_").upper(): name for name in METHODS})  # type: ignore[misc]


class OutputKind(StrEnum):
    GGUF = "gguf"
    COMPRESSED_TENSORS = "compressed-tensors"


def compress(
    model: options.Model,
    out: Annotated[Path, typer.Argument(help="File (gguf) or folder (compressed-tensors) to write.")],
    method: Annotated[
        Method, typer.Option(help="; ".join(f"{method.name}: {method.help}" for method in METHODS.values()) + ".")
    ] = Method.AWQ_GPTQ,  # type: ignore[attr-defined]
    format_: Annotated[
        str | None,
        typer.Option("--format", help="Use one format for all matrices: Q4_K, Q8_0, int4-g32, int8 and so on."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Average bits per weight, such as 4.5bpw. Each matrix gets the format that loses least."),
    ] = None,
    fits: Annotated[
        int | None,
        size_option("Size of the file, such as 4GB or 900MiB. Each matrix gets the format that loses least."),
    ] = None,
    offer: Annotated[str, typer.Option(help="Formats that --budget and --fits choose from, separated by commas.")] = "",
    embeddings: Annotated[
        str | None, typer.Option(help="Format of the embeddings and the output head (gguf only).")
    ] = None,
    output: Annotated[
        OutputKind, typer.Option(help="gguf for llama.cpp; compressed-tensors for transformers and vLLM.")
    ] = (OutputKind.GGUF),
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Calibration text (UTF-8), similar to what the model will be used on.", exists=True, dir_okay=False
        ),
    ] = None,
    calibration_tokens: Annotated[
        int, typer.Option(min=1, help="Number of tokens of calibration text to run.")
    ] = 16384,
    context: Annotated[int, typer.Option(min=16, help="Tokens in each window of calibration text.")] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    threads: options.Threads = None,
) -> None:
    """Write a smaller checkpoint: quantise every matrix, to one format or to the formats that lose least within a
    budget.

    `surefoot eval compare` shows what the smaller model lost on your text. With --budget and --fits, measured losses
    are kept beside OUT in MODEL.losses.json: a stopped run resumes there, and another budget measures nothing again.
    """
    with exit_on_error(), progress() as say:
        request = CompressOptions(
            method=method.value,
            output=output.value,
            format=format_,
            embeddings=embeddings,
            bits_per_weight=None if budget is None else parse_bits(budget),
            fits_bytes=fits,
            candidates=tuple(name for name in offer.split(",") if name),
            calibration=calibration,
            calibration_tokens=calibration_tokens,
            context=context,
            threads=threads or usable_cores(),
        )
        summary = compress_model(find_model(str(model)), out, request, say)
    if as_json:
        typer.echo(json.dumps({**asdict(summary), "bits_per_weight": summary.bits_per_weight}, indent=2))
    else:
        Console().print(_table(summary))


def parse_bits(text: str) -> float:
    match = re.fullmatch(r"([0-9.]+)\s*(?:bpw)?", text.strip())
    if match is None or not 0 < float(match[1]) <= 16:
        raise typer.BadParameter(f"--budget takes bits per weight, such as 4.5bpw, not {text!r}")
    return float(match[1])


def _table(summary: CompressSummary) -> Table:
    shown = Table(
        title=f"{summary.bits_per_weight:.3f} bits per weight, {summary.nbytes / 1e6:.1f} MB of matrices in codes"
    )
    shown.add_column("format")
    shown.add_column("matrices", justify="right")
    for name, count in sorted(Counter(summary.formats.values()).items()):
        shown.add_row(name, str(count))
    if summary.predicted_kl is not None:
        shown.caption = (
            f"loss foreseen: {summary.predicted_kl:.5f} nats of KL (second order; measure with eval compare)"
        )
    return shown
