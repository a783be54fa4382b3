"""`surefoot serve`: an OpenAI-compatible server for one model."""

import functools
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from surefoot.api.defaults import parse_sampling
from surefoot.api.fingerprint import fingerprint
from surefoot.api.llm import LLM
from surefoot.api.opening import open_model, short_name
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.options import refuse_unused, unused_by_serve
from surefoot.cli.progress import Spans, lacks_bytecode, loading, process_age_s
from surefoot.cli.sizes import size_option, time_option
from surefoot.cli.startup import import_in_background, without_collection
from surefoot.fleet.fleet_key import read_fleet_key
from surefoot.formats import AUTO_FORMAT
from surefoot.machine import choose_placement, usable_cores
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.log_limit import start_logging
from surefoot.server.banner import describe_opened
from surefoot.server.batch.state import state_opener
from surefoot.server.listening import bind, check_bind, held_address
from surefoot.server.settings import ServerSettings
from surefoot.weights import writing_beside

MAX_FILE_BYTES = 64 << 20
MANY = "models"  # folder for files and batches of a server with several models


def serve(
    ctx: typer.Context,
    models: options.Models = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with models and their settings (see the page on many models).")
    ] = None,
    host: options.Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind (0: any free one).")] = 8000,
    model_name: Annotated[
        list[str] | None,
        typer.Option(help="Name of the model for clients (default: its file's name). Repeat for further names."),
    ] = None,
    any_model_name: Annotated[
        bool, typer.Option("--any-model-name", help="Accept any model name in requests.")
    ] = False,
    strict_parameters: Annotated[
        bool,
        typer.Option("--strict-parameters", help="Refuse requests with unknown parameters instead of ignoring these."),
    ] = False,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="File of API keys (see surefoot keys).")] = None,
    max_context: options.Context = None,
    max_running: Annotated[int, typer.Option(min=1, help="Largest number of answers generated at once.")] = 32,
    max_queue: Annotated[int, typer.Option(min=1, help="Longest queue; further requests get status 429.")] = 256,
    deadline_s: Annotated[float, time_option("Longest time for a request.", at_least=1)] = 600.0,
    drain_s: options.DrainSeconds = 30.0,
    max_body_bytes: options.MaxBodyBytes = options.MAX_BODY_BYTES,
    allowed_host: options.AllowedHost = None,
    allowed_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of web pages that may call the server (*: all).")
    ] = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    audit_log: Annotated[Path | None, typer.Option(help="Write a line for each request, without its text.")] = None,
    audit_required: Annotated[
        bool,
        typer.Option("--audit-required", help="Refuse requests (status 503) while the audit log cannot be written."),
    ] = False,
    access_log: options.AccessLog = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for files and batches (default: one named after the model in ~/.local/state/surefoot)."
        ),
    ] = None,
    max_file_bytes: Annotated[
        int, size_option("Largest file for a batch.", at_least=1024, show_default="64MiB")
    ] = MAX_FILE_BYTES,
    max_state_bytes: Annotated[
        int | None,
        size_option("Limit for all files and answers together (default: a tenth of the free disk space)."),
    ] = None,
    public_prefix: Annotated[
        list[Path] | None,
        typer.Option(
            help="File with a system message or an agent's request (`surefoot warm --agent NAME --save FILE`), whose "
            "cached prefix all users share. Can be repeated."
        ),
    ] = None,
    fleet_key: Annotated[
        Path | None, typer.Option(help="File with the key of a fleet, whose gateway may send requests here.")
    ] = None,
    memory: Annotated[
        int | None, size_option("Several models: memory for all of them (default: 90% of what is allowed).")
    ] = None,
    keep_alive: Annotated[
        float | None, time_option("Several models: unload one after this time without requests, such as 30m.")
    ] = None,
    max_wait: Annotated[
        float | None, time_option("Several models: a request's model is loaded next after this time (30s).")
    ] = None,
    kv_memory: Annotated[int | None, size_option("Memory for keys and values (default: most of what is free).")] = None,
    behind: Annotated[
        str | None, typer.Option(hidden=True, help="Descriptors of a front process, and which copy of the model it is.")
    ] = None,
    threads: options.Threads = None,
    nodes: options.Nodes = None,
    variant: options.Variant = None,
    speculate: options.Speculate = "auto",
    float_format: options.Format = AUTO_FORMAT,
    sampling: options.Sampling = None,
    chat_template: options.ChatTemplate = None,
    pooling: options.Pooling = None,
    adapter: options.Adapter = None,
    packed_cache: options.Cache = options.AUTO,
    cache_dir: options.CacheDir = options.AUTO,
    cache_disk: options.CacheDisk = None,
    cache_key_file: options.CacheKeyFile = None,
) -> None:
    """Serve a model to any OpenAI client.

    Several models share one address: each has a process of its own and is loaded when a request names it.
    """
    spans = Spans(process_age_s)
    spans.end("imports")
    start_logging()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    if not models and config is None:
        raise typer.BadParameter("give a model, or --config FILE", ctx)
    model = models[0] if config is None and models is not None and len(models) == 1 else None
    with exit_on_error(), without_collection():
        refuse_unused(ctx, unused_by_serve(ctx.params, is_one=model is not None))
        host, port = held_address() or (host, port)
        name, *aliases = model_name or [short_name(model) if model is not None else MANY]
        settings = ServerSettings(
            host=host, port=port, model_name=name, model_aliases=tuple(aliases), any_model_name=any_model_name,
            strict_parameters=strict_parameters, allowed_hosts=tuple(allowed_host or ()),
            allowed_origins=tuple(allowed_origin or ()), audit_log=audit_log, audit_required=audit_required,
            access_log=access_log, max_body_bytes=max_body_bytes, tls_cert=tls_cert, tls_key=tls_key,
            max_queue=max_queue, deadline_s=deadline_s, drain_s=drain_s, max_file_bytes=max_file_bytes,
            public_prefixes=tuple(file.read_text(encoding="utf-8").strip() for file in public_prefix or ()),
        )  # fmt: skip
        for text in settings.public_prefixes:  # a wrong one raises before the model is loaded
            import_module("surefoot.server.answer.public_prefixes").public_chats(text)
        store = KeyStore(keys_file) if keys_file is not None else None
        check_bind(settings, store)
        front, sockets, copy = inherited(behind) if behind is not None else (None, bind(host, port), "")
        open_state = (
            state_opener(state_dir, settings.model_name, max_state_bytes, typer.echo)
            if behind is None
            else lambda: None
        )
        if model is None:
            import_in_background("surefoot.cli.serve_many")().run_front(ctx, settings, store, open_state, sockets)
            return
        cache = options.cache(packed_cache)
        opened = open_model(str(model), parse_sampling(sampling or []), chat_template, pooling, adapter).hashing(cache)
        for line in describe_opened(opened):
            typer.echo(line)
        server = import_in_background("surefoot.server.serve")
        spans.end("header")
        placement = choose_placement(threads or usable_cores())
        if nodes is not None and not placement.shares:
            raise ValueError(f"--nodes has nothing to choose from: {placement.reason}")
        if placement.shares and behind is None:
            on_nodes = import_in_background("surefoot.cli.serve_on_nodes")()
            if on_nodes.runs_on_each(ctx.params, opened, typer.echo):
                on_nodes.run_on_each(ctx, settings, store, open_state, sockets, opened, placement.shares)
                return
        key = read_fleet_key(fleet_key) if fleet_key is not None else None
        replica = import_in_background("surefoot.fleet.replica") if key is not None else None
        within = f"{settings.model_name}{copy}" if behind is not None else None
        prompts = options.prompt_cache(cache_dir, cache_disk, cache_key_file, f"{short_name(model)}{copy}", within)
        with loading(opened.path.name) as report:
            llm = LLM(
                opened, max_context=max_context, max_running=max_running, threads=threads, variant=variant,
                kv_bytes=kv_memory,
                float_format=float_format, speculate=speculate, packed_cache=cache,
                prompt_cache=replace(prompts, waits=False) if prompts is not None else None,
                report=spans.ending("weights", report),
            )  # fmt: skip
        spans.end("tokenizer and passes")
    with exit_on_error(), writing_beside(cache) as begin_writing:
        name = str(fingerprint(llm))
        spans.end("hash")
        try:
            server().serve(
                llm, settings, store, open_state(), name, typer.echo, sockets,
                lambda: _on_ready(spans, begin_writing), front,
                functools.partial(replica().join_fleet, key) if replica is not None else None,
            )  # fmt: skip
        finally:
            llm.close()


def _on_ready(spans: Spans, begin_writing: Callable[[], None]) -> None:
    """The server's own modules are imported beside the weights, so that little of them may show."""
    begin_writing()
    spans.end("server")
    typer.echo(spans.line())
    if lacks_bytecode():
        typer.echo(
            "started  without bytecode, so that Python compiled every module (PYTHONDONTWRITEBYTECODE is set): "
            f"`python -m compileall -q {Path(typer.__file__).parents[1]}` nearly halves the next start"
        )


def inherited(behind: str) -> tuple[socket.socket, list[socket.socket], str]:
    """The connection to the front process that started this one, the socket to listen on, and what the names of this
    copy's folders end with: nothing for the first."""
    *descriptors, copy = map(int, behind.split(","))
    front, listener = (socket.socket(fileno=number) for number in descriptors)
    return front, [listener], f"-{copy + 1}" if copy else ""
