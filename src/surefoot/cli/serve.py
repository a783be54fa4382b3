"""`surefoot serve`: an OpenAI-compatible server for one model."""

import hashlib
import logging
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from surefoot import __version__
from surefoot.api.defaults import as_values, parse_sampling
from surefoot.api.llm import LLM
from surefoot.api.opening import OpenModel, open_model, short_name
from surefoot.cli import options
from surefoot.cli.errors import exit_on_error
from surefoot.cli.progress import loading
from surefoot.cli.spans import Spans, lacks_bytecode, process_age_s
from surefoot.cli.startup import import_in_background, without_collection
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.log_limit import LogLimit
from surefoot.server.banner import describe_opened
from surefoot.server.batch.state import StateFolder
from surefoot.server.listening import bind, check_bind
from surefoot.server.settings import ServerSettings
from surefoot.weights import writing_beside

FINGERPRINT_BYTES = 1 << 20


def serve(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to bind. Other than loopback only with --keys.")] = "127.0.0.1",
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
    deadline_s: Annotated[float, typer.Option(min=1, help="Longest time for a request, in seconds.")] = 600.0,
    drain_s: Annotated[float, typer.Option(min=0, help="Seconds to finish running requests after SIGTERM.")] = 30.0,
    max_body_bytes: Annotated[int, typer.Option(min=1024, help="Largest request body.")] = 4 << 20,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Host name that clients may use. Can be repeated.")
    ] = None,
    allowed_origin: Annotated[
        list[str] | None, typer.Option(help="Origin of web pages that may call the server (*: all).")
    ] = None,
    audit_log: Annotated[Path | None, typer.Option(help="Write a line for each request, without its text.")] = None,
    audit_required: Annotated[
        bool,
        typer.Option("--audit-required", help="Refuse requests (status 503) while the audit log cannot be written."),
    ] = False,
    access_log: Annotated[
        Path | None, typer.Option(help="Write a line for each HTTP request: client, path, status, time, size, id.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for files and batches (default: one named after the model in ~/.local/state/surefoot)."
        ),
    ] = None,
    max_file_bytes: Annotated[int, typer.Option(min=1024, help="Largest file for a batch.")] = 64 << 20,
    max_state_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Limit for all files and answers together (default: a tenth of the free disk space)."),
    ] = None,
    public_prefix: Annotated[
        list[Path] | None,
        typer.Option(help="File with a system message whose cached prefix all users share. Can be repeated."),
    ] = None,
    threads: options.Threads = None,
    variant: options.Variant = None,
    speculate: options.Speculate = "auto",
    float_format: options.Format = "w8",
    sampling: options.Sampling = None,
    chat_template: options.ChatTemplate = None,
    packed_cache: options.Cache = options.AUTO,
) -> None:
    """Serve a model to any OpenAI client."""
    spans = Spans(process_age_s)
    spans.end("imports")
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with exit_on_error(), without_collection():
        name, *aliases = model_name or [short_name(model)]
        settings = ServerSettings(
            host=host, port=port, model_name=name, model_aliases=tuple(aliases), any_model_name=any_model_name,
            strict_parameters=strict_parameters, allowed_hosts=tuple(allowed_host or ()),
            allowed_origins=tuple(allowed_origin or ()), audit_log=audit_log, audit_required=audit_required,
            access_log=access_log, max_body_bytes=max_body_bytes,
            max_queue=max_queue, deadline_s=deadline_s, drain_s=drain_s, max_file_bytes=max_file_bytes,
            public_prefixes=tuple(file.read_text(encoding="utf-8").strip() for file in public_prefix or ()),
        )  # fmt: skip
        store = KeyStore(keys_file) if keys_file is not None else None
        check_bind(settings, store)
        sockets = bind(host, port)
        state = open_state(state_dir, settings.model_name, max_state_bytes)
        opened = open_model(str(model), parse_sampling(sampling or []), chat_template)
        for line in describe_opened(opened):
            typer.echo(line)
        server = import_in_background("surefoot.server.serve")
        spans.end("header")
        cache = options.cache(packed_cache)
        with loading(opened.path.name) as report:
            llm = LLM(
                opened, max_context=max_context, max_running=max_running, threads=threads, variant=variant,
                float_format=float_format, speculate=speculate, packed_cache=cache,
                report=spans.ending("weights", report),
            )  # fmt: skip
        spans.end("tokenizer and passes")
    with exit_on_error(), writing_beside(cache) as begin_writing:
        name = fingerprint(opened, float_format, llm.context_length)
        server().serve(
            llm, settings, store, state, name, typer.echo, sockets, lambda: _on_ready(spans, begin_writing)
        )  # fmt: skip


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


def open_state(folder: Path | None, name: str, max_bytes: int | None) -> StateFolder | None:
    """The folder that was asked for must be usable; the default is done without if it is not."""
    if folder is not None:
        return StateFolder(folder.expanduser(), max_bytes)
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    try:
        return StateFolder(base.expanduser() / "surefoot" / re.sub(r"[^\w.-]", "_", name), max_bytes)
    except (OSError, RuntimeError) as error:
        typer.echo(f"files    not available ({error})")
        return None


def fingerprint(opened: OpenModel, float_format: str, context_length: int) -> str:
    """Of all that an answer depends on besides its request: the version, the file (its name, size and first bytes: a
    header with every tensor's name and place), the format of float weights, where answers end, and what was chosen for
    requests that do not say: sampling and chat template."""
    place = opened.path
    file = place if place.is_file() else min(place.glob("*.safetensors"), default=place / "config.json")
    facts = hashlib.sha256(f"{__version__} {file.name} {file.stat().st_size} ".encode())
    sampling = sorted(as_values(opened.sampling.params).items())
    chosen = (sampling, opened.template_override, float_format, context_length)
    facts.update(repr(chosen).encode(errors="surrogatepass"))
    with file.open("rb") as stream:
        facts.update(stream.read(FINGERPRINT_BYTES))
    return f"sf-{facts.hexdigest()[:16]}"
