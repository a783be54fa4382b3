"""`surefoot pull`, `list`, `show` and `rm`: the models of the hub that are on this machine."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from surefoot import machine
from surefoot.api.model_facts import ModelFacts, model_facts
from surefoot.api.opening import open_model
from surefoot.cli.errors import exit_on_error
from surefoot.cli.sizes import format_size
from surefoot.models import check_supported
from surefoot.weights import find_model
from surefoot.weights.hub_cache import CachedModel, cached_models, remove
from surefoot.weights.hub_id import parse_id
from surefoot.weights.memory import TypeSizes
from surefoot.weights.recommended import RecommendedModel, recommended_models, resolve_name

Name = Annotated[
    str,
    typer.Argument(
        help="Short name (qwen3:4b), or Hugging Face id: owner/name, owner/name:Q4_K_M, owner/name/file.gguf.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SHARE_OF_MEMORY = 0.8  # that weights may take: the rest is for keys and values
DAY_S = 86400
JSON_ONLY = ("path", "source")  # too long for a table


def pull(name: Name, as_json: AsJson = False) -> None:
    """Fetch a model from the Hugging Face hub. If it was interrupted, it continues where it stopped. Every large file
    is checked by its SHA-256, and a model that surefoot cannot run is refused before the download.

    HF_ENDPOINT names a mirror, HF_HOME the folder of the cache, HF_TOKEN the key of gated models.
    """
    with exit_on_error():
        path = find_model(name, check_supported)
        facts = model_facts(open_model(path))
    if as_json:
        typer.echo(json.dumps({"name": name, **facts.as_json()}))
        return
    typer.echo(f"{facts.summary}\n{path}\nserve it: surefoot serve {name}")


def list_models(
    recommended: Annotated[
        bool, typer.Option("--recommended", help="List models that can be fetched by a short name instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the models in the Hugging Face cache of this machine."""
    with exit_on_error():
        if recommended:
            _print(_recommended_rows(), as_json)
        elif models := cached_models():
            _print([_cached_row(model) for model in models], as_json)
        elif as_json:
            typer.echo("[]")
        else:
            typer.echo("no models yet: surefoot pull qwen3:4b fetches one (more: surefoot list --recommended)")


def show(
    model: Annotated[str, typer.Argument(help="File, folder, short name or Hugging Face id.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show what a model is: family, sizes, template, sampling defaults, and its weights by type, in the file and in
    memory."""
    with exit_on_error():
        facts = model_facts(open_model(model))
    if as_json:
        typer.echo(json.dumps(facts.as_json()))
    else:
        console = Console(highlight=False)
        console.print(_facts_table(facts))
        if facts.weight_types:
            console.print(_types_table(facts.weight_types))


def remove_model(name: Name, as_json: AsJson = False) -> None:
    """Remove a fetched model from the Hugging Face cache. Files elsewhere are never touched."""
    with exit_on_error():
        model = parse_id(resolve_name(name) or name)
        chosen = [] if model is None else [cached for cached in cached_models() if cached.is_meant_by(model)]
        if not chosen:
            raise FileNotFoundError(f"{name} is not in the Hugging Face cache: surefoot list shows what is")
        remove(chosen)
    if as_json:
        typer.echo(json.dumps([_cached_row(cached) for cached in chosen]))
        return
    for cached in chosen:
        typer.echo(f"removed {cached.name} ({format_size(cached.nbytes)})")


def _cached_row(model: CachedModel) -> dict[str, Any]:
    return {
        "name": model.name, "bytes": model.nbytes,
        "days_since_use": round(max(0.0, time.time() - model.last_used_s) / DAY_S), "path": str(model.path),
    }  # fmt: skip


def _recommended_rows() -> list[dict[str, Any]]:
    memory = machine.memory().limit_bytes
    return [_recommended_row(model, memory) for model in recommended_models()]


def _recommended_row(model: RecommendedModel, memory_bytes: int) -> dict[str, Any]:
    return {
        "name": model.name, "bytes": model.bytes, "fits": model.bytes <= SHARE_OF_MEMORY * memory_bytes,
        "licence": model.licence, "purpose": model.purpose, "was_run": bool(model.ran),
        "source": model.source,
    }  # fmt: skip


def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows))
        return
    shown = [key for key in rows[0] if key not in JSON_ONLY]
    titles = ("size" if key == "bytes" else key.replace("_", " ") for key in shown)
    table = Table(*titles, box=box.SIMPLE, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*(_cell(key, row[key]) for key in shown))
    Console(highlight=False).print(table)


def _cell(key: str, value: Any) -> str:
    if key == "bytes":
        return format_size(value)
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _facts_table(facts: ModelFacts) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for key, value in facts.as_rows():
        table.add_row(key, value)
    return table


def _types_table(types: Sequence[TypeSizes]) -> Table:
    """In bits as well, since that is what the types are named after."""
    table = Table("type", box=box.SIMPLE, padding=(0, 1, 0, 0))
    for title in ("tensors", "weights", "file", "bits", "memory", "bits"):
        table.add_column(title, justify="right")
    for sizes in types:
        table.add_row(
            sizes.type, f"{sizes.num_tensors}", f"{sizes.num_weights / 1e6:.1f} M",
            format_size(sizes.file_bytes), f"{8 * sizes.file_bytes / sizes.num_weights:.2f}",
            format_size(sizes.memory_bytes), f"{8 * sizes.memory_bytes / sizes.num_weights:.2f}",
        )  # fmt: skip
    return table
