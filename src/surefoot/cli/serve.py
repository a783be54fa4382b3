"""`surefoot serve`: an OpenAI-compatible server for one model. `surefoot keys`: who may use it."""

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Annotated

import typer

from surefoot import __version__
from surefoot.api.llm import LLM
from surefoot.cli import options
from surefoot.cli.errors import told
from surefoot.cli.startup import without_collection
from surefoot.server import KeyEntry, KeyStore, Settings, add_key, hash_of, make_key
from surefoot.server.serve import check_bind
from surefoot.server.serve import serve as run_server
from surefoot.server.state import StateFolder

FINGERPRINT_BYTES = 1 << 20

keys = typer.Typer(help="Keys of a server's users.", no_args_is_help=True)


def serve(
    model: options.Model,
    host: Annotated[str, typer.Option(help="Address to bind; beyond loopback only with --keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    model_name: Annotated[str | None, typer.Option(help="What clients call the model; its file's name.")] = None,
    keys_file: Annotated[Path | None, typer.Option("--keys", help="File of keys (surefoot keys add).")] = None,
    max_context: options.Context = None,
    max_running: Annotated[int, typer.Option(min=1, help="Answers that share a step.")] = 32,
    max_queue: Annotated[int, typer.Option(min=1, help="Requests beyond which clients get 429.")] = 256,
    deadline_s: Annotated[float, typer.Option(min=1, help="The longest a request may take.")] = 600.0,
    drain_s: Annotated[float, typer.Option(min=0, help="Time to finish after SIGTERM.")] = 30.0,
    max_body_bytes: Annotated[int, typer.Option(min=1024)] = 4 << 20,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A name that clients may call this by.")] = None,
    allowed_origin: Annotated[list[str] | None, typer.Option(help="Web pages that may call this.")] = None,
    audit_log: Annotated[Path | None, typer.Option(help="A line for each request, without its text.")] = None,
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
) -> None:
    """Serve a model to any OpenAI client."""
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    with told(), without_collection():
        settings = Settings(
            host=host, port=port, model_name=model_name or model.stem, allowed_hosts=tuple(allowed_host or ()),
            allowed_origins=tuple(allowed_origin or ()), audit_log=audit_log, max_body_bytes=max_body_bytes,
            max_queue=max_queue, deadline_s=deadline_s, drain_s=drain_s, max_file_bytes=max_file_bytes,
            public_prefixes=tuple(file.read_text(encoding="utf-8").strip() for file in public_prefix or ()),
        )  # fmt: skip
        store = KeyStore(keys_file) if keys_file is not None else None
        check_bind(settings, store)
        state = open_state(state_dir, settings.model_name, max_state_bytes)
        llm = LLM(
            model, max_context=max_context, max_running=max_running, threads=threads, variant=variant,
            float_format=float_format, speculate=speculate,
        )  # fmt: skip
    run_server(llm, settings, store, state, fingerprint(model), typer.echo)


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


def fingerprint(model: Path) -> str:
    """Of the version and the file: its name, size and first bytes (a header with every tensor's name and place)."""
    file = model if model.is_file() else min(model.glob("*.safetensors"), default=model / "config.json")
    facts = hashlib.sha256(f"{__version__} {file.name} {file.stat().st_size} ".encode())
    with file.open("rb") as stream:
        facts.update(stream.read(FINGERPRINT_BYTES))
    return f"sf-{facts.hexdigest()[:16]}"


@keys.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="The file of keys; made if it is not there.")],
    user: Annotated[str, typer.Option(help="Whose key it is: fairness and cache are by user.")],
    weight: Annotated[float, typer.Option(help="Share of the machine when it is busy.")] = 1.0,
    priority: Annotated[int, typer.Option(help="Larger is served first.")] = 0,
    requests_per_minute: Annotated[float | None, typer.Option()] = None,
    tokens_per_minute: Annotated[float | None, typer.Option()] = None,
    max_context: Annotated[int | None, typer.Option()] = None,
) -> None:
    """Make a key. It is shown once; the file has its hash. A running server notices within a second."""
    key = make_key()
    with told():
        entry = KeyEntry(
            hash=hash_of(key), user=user, weight=weight, priority=priority, requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute, max_context=max_context,
        )  # fmt: skip
        add_key(file, entry)
    typer.echo(key)
