"""`surefoot serve` with several models: one front process, and a process for each model."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from surefoot import machine
from surefoot.api.footprint import ModelOptions
from surefoot.api.opening import short_name
from surefoot.front.config import ConfigTables, FrontConfig, ModelEntry, ModelTable, read_config_file
from surefoot.front.serve import serve_many
from surefoot.server.access.keys import KeyStore
from surefoot.server.batch.state import StateFolder
from surefoot.server.settings import ServerSettings

# Parameters of the command that are those of each model's process too. Keys, limits and addresses are the front's.
SHARED = frozenset(
    (
        "strict_parameters", "deadline_s", "max_queue", "max_body_bytes", "audit_log", "audit_required",
        "public_prefix", "threads", "variant", "packed_cache", "cache_dir", "cache_disk", "cache_key_file",
    )
)  # fmt: skip


def run_front(
    ctx: typer.Context,
    settings: ServerSettings,
    keys: KeyStore | None,
    open_state: Callable[[], StateFolder | None],
    sockets: list[socket.socket],
) -> None:
    """Serve the models that the command line and its --config name."""
    start_front(ctx, named_models(ctx.params), settings, keys, open_state, sockets)


def start_front(
    ctx: typer.Context,
    config: FrontConfig,
    settings: ServerSettings,
    keys: KeyStore | None,
    open_state: Callable[[], StateFolder | None],
    sockets: list[socket.socket],
) -> None:
    words = [*shared_words(ctx), "--drain-s", "0"]
    variant, num_cores = ctx.params["variant"], ctx.params["threads"] or machine.usable_cores()
    serve_many(config, settings, keys, open_state, sockets, words, variant, num_cores, typer.echo)


def named_models(given: dict[str, Any]) -> FrontConfig:
    """What the file says comes before the command line's options."""
    models: Sequence[Path] = given["models"] or []
    tables = read_config_file(given["config"]) if given["config"] is not None else None
    listed = [ModelTable(file=str(model)) for model in models] + (tables.model if tables is not None else [])
    memory, max_wait, keep_alive_s = given["memory"], given["max_wait"], given["keep_alive"]
    return FrontConfig(
        models=tuple(_entry(table, _defaults(given), keep_alive_s) for table in listed),
        memory_bytes=memory if memory is not None else _of(tables, "memory"),
        max_wait_s=max_wait if max_wait is not None else _of(tables, "max_wait"),
        routes=tables.routes() if tables is not None else (),
        upstreams=tuple(table.upstream() for table in tables.upstream) if tables is not None else (),
        private_patterns=tuple(tables.private_patterns) if tables is not None else (),
    )


def _of(tables: ConfigTables | None, name: str) -> Any:
    return getattr(tables, name) if tables is not None else None


def _entry(table: ModelTable, defaults: ModelOptions, keep_alive_s: float | None) -> ModelEntry:
    return table.entry(defaults, keep_alive_s, short_name(table.file))


def _defaults(given: dict[str, Any]) -> ModelOptions:
    return ModelOptions(
        given["float_format"], given["max_context"], given["max_running"], given["speculate"],
        given["kv_memory"], given["pooling"], given["chat_template"],
        tuple(given["sampling"] or ()), given["adapter"],
    )  # fmt: skip


def shared_words(ctx: typer.Context) -> Iterator[str]:
    """The words of the command line that are those of each model's process too."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in SHARED and source is not None and source.name == "COMMANDLINE":
            value = ctx.params[parameter.name]
            for item in value if isinstance(value, list | tuple) else [value]:
                yield from [parameter.opts[0]] if item is True else [parameter.opts[0], str(item)]
