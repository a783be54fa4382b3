"""`surefoot serve`: an OpenAI-compatible server for one model."""

import hashlib
import logging
import os
import re
import signal
from pathlib import Path
from typing import Annotated

import typer

from surefoot import __version__
from surefoot.api.defaults import as_values, parse_sampling
from surefoot.api.llm import LLM
from surefoot.api.opening import OpenModel, open_model
from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.progress import loading
from surefoot.cli.startup import import_beside, without_collection
from surefoot.server.keys import KeyStore
from surefoot.server.listening import bind, check_bind
from surefoot.server.log_limit import LogLimit
from surefoot.server.plan import describe_opened
from surefoot.server.settings import Settings
from surefoot.server.state import StateFolder

FINGERPRINT_BYTES = 1 << 20


def serve(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to bind; beyond loopback only with --keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    model_name: Annotated[
        list[str] | None,
        typer.Option(
            help="What clients call the model; its file's name. Given again, other names that are understood."
        ),
    ] = None,
    any_model_name: Annotated[bool, typer.Option("--any-model-name", help="Take every name for the model.")] = False,
    strict_parameters: Annotated[
        bool, typer.Option("--strict-parameters", help="Refuse unknown parameters instead of ignoring them.")
    ] = False,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="File of keys (surefoot keys add).")] = None,
    max_context: options.Context = None,
    max_running: Annotated[int, typer.Option(min=1, help="Answers that share a step.")] = 32,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests beyond which clients get 429.")] = 256,
    deadline_s: Annotated[float, typer.Option(min=1, help="The longest a request may take.")] = 600.0,
    drain_s: Annotated[float, typer.Option(min=0, help="Time to finish after SIGTERM.")] = 30.0,
    max_body_bytes: Annotated[int, typer.Option(min=1024)] = 4 << 20,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A name that clients may call this by.")] = None,
    allowed_origin: Annotated[list[str] | None, typer.Option(help="Web pages that may call this; *: all.")] = None,
    audit_log: Annotated[Path | None, typer.Option(help="A line for each request, without its text.")] = None,
    audit_required: Annotated[
        bool, typer.Option("--audit-required", help="Refuse requests (503) that the audit log cannot take.")
    ] = False,
    access_log: Annotated[
        Path | None, typer.Option(help="A line for each HTTP request: client, path, status, time, size, id.")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for files and batches. By default in ~/.local/state/surefoot, named for the model."),
    ] = None,
    max_file_bytes: Annotated[int, typer.Option(min=1024, help="Of a file for a batch.")] = 64 << 20,
    max_state_bytes: Annotated[
        int | None, typer.Option(min=0, help="Of all files and answers. By default a tenth of the disk's free room.")
    ] = None,
    public_prefix: Annotated[
        list[Path] | None, typer.Option(help="A file with a system message that all users may share the cache of.")
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
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogLimit())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with told(), without_collection():
        name, *aliases = model_name or [model.stem]
        settings = Settings(
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
        server = import_beside("surefoot.server.serve")
        with loading(opened.place.name) as report:
            llm = LLM(
                opened, max_context=max_context, max_running=max_running, threads=threads, variant=variant,
                float_format=float_format, speculate=speculate, packed_cache=options.cache(packed_cache), report=report,
            )  # fmt: skip
    with told():
        name = fingerprint(opened, float_format, llm.context_length)
        server().serve(llm, settings, store, state, name, typer.echo, sockets)


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
    place = opened.place
    file = place if place.is_file() else min(place.glob("*.safetensors"), default=place / "config.json")
    facts = hashlib.sha256(f"{__version__} {file.name} {file.stat().st_size} ".encode())
    sampling = sorted(as_values(opened.sampling.params).items())
    chosen = (sampling, opened.given_template, float_format, context_length)
    facts.update(repr(chosen).encode(errors="surrogatepass"))
    with file.open("rb") as stream:
        facts.update(stream.read(FINGERPRINT_BYTES))
    return f"sf-{facts.hexdigest()[:16]}"
