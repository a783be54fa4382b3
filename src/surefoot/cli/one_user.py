"""A model for one user at a terminal."""

from pathlib import Path

import typer

from surefoot.api import LLM
from surefoot.api.defaults import parse_sampling
from surefoot.api.opening import OpenModel, open_model
from surefoot.cli.progress import loading
from surefoot.text import TEMPLATE_NAMES
from surefoot.weights import PackedCache


def open_for_one(
    model: Path, sampling: list[str] | None, chat_template: str | None, **options: float | None
) -> OpenModel:
    """The model before its weights are read. options: sampling parameters with options of their own, which win."""
    given = {name: value for name, value in options.items() if value is not None}
    opened = open_model(str(model), {**parse_sampling(sampling or []), **given}, chat_template)
    for line in opened.sampling.ignored:
        typer.echo(line, err=True)
    return opened


def needs_template(opened: OpenModel, model: Path) -> None:
    if not opened.has_chat_template:
        raise ValueError(
            f"{model.name} has no chat template: it is a base model, which continues text (surefoot generate). To talk "
            f"with it all the same, give --chat-template FILE, or one of {', '.join(TEMPLATE_NAMES)}"
        )


def load_for_one(
    opened: OpenModel,
    float_format: str,
    context: int | None,
    threads: int | None,
    variant: str | None,
    speculate: str,
    cache: PackedCache | None = None,
) -> LLM:
    """One answer at a time."""
    with loading(opened.place.name) as report:
        return LLM(
            opened, float_format=float_format, max_context=context, max_running=1, threads=threads, variant=variant,
            speculate=speculate, packed_cache=cache, report=report,
        )  # fmt: skip
