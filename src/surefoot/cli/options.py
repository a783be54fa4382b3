"""Options that the commands share. Options that would have no effect are refused, so that nobody relies on one."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from surefoot.api.prompt_cache import PromptCache, default_folder
from surefoot.cli.sizes import size_option, time_option
from surefoot.formats import AUTO_FORMAT, MODEL_FORMATS
from surefoot.text import TEMPLATE_NAMES
from surefoot.weights import PackedCache, default_cache

MODEL, SAMPLING, MACHINE = "Model", "Sampling", "Machine"

Model = Annotated[
    Path, typer.Argument(help="A GGUF file, a Hugging Face folder, or a Hugging Face id.", show_default=False)
]
Models = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="MODEL...",
        help="A GGUF file, a Hugging Face folder, or a Hugging Face id. Several are loaded as they are asked for.",
        show_default=False,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help=f"Format to convert float weights to ({AUTO_FORMAT}, {', '.join(MODEL_FORMATS)}). Quantised files keep "
        f"their own. {AUTO_FORMAT} is w8, and w12 for encoders. "
        "w8a8 also rounds activations to 8 bits instead of 15: faster prefill, less exact answers.",
        rich_help_panel=MODEL,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--max-context",
        "--context",
        min=1,
        help="Largest number of tokens in prompt and answer together (default: the model's own).",
        rich_help_panel=MODEL,
    ),
]
Speculate = Annotated[
    str,
    typer.Option(
        help="Speculative decoding: auto, lookup, draft:MODEL (a smaller model with the same tokenizer, an EAGLE-3 "
        "head, or a draft head's .safetensors file) or off. It cannot change the output, and is used only where it is "
        "faster.",
        rich_help_panel=MACHINE,
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Number of threads (default: all usable cores).", rich_help_panel=MACHINE)
]
Nodes = Annotated[
    str | None,
    typer.Option(
        metavar="split|each",
        help="With several NUMA nodes: one engine whose weights are divided among them, or an engine with all "
        "weights on each (default: the one that is predicted to answer --max-running users sooner).",
        rich_help_panel=MACHINE,
    ),
]
Variant = Annotated[
    str | None,
    typer.Option(
        help="Instruction set: amx, avx512, avxvnni, avx512bw, avx2 or portable (default: the best).",
        rich_help_panel=MACHINE,
    ),
]
Sampling = Annotated[
    list[str] | None,
    typer.Option(
        "--sampling",
        metavar="KEY=VALUE",
        help="Default for temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty or frequency_penalty, "
        "in place of the model's own. Can be repeated.",
        rich_help_panel=SAMPLING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", "-t", help="0 is greedy (default: what the model's files advise).", rich_help_panel=SAMPLING
    ),
]
TopK = Annotated[
    int | None, typer.Option(help="Sample from the k most likely tokens (0: from all).", rich_help_panel=SAMPLING)
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="Sample from the most likely tokens whose probabilities add up to this (1: from all).",
        rich_help_panel=SAMPLING,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        help="Sample from tokens at least this likely, relative to the likeliest one.", rich_help_panel=SAMPLING
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        help="Divide the logits of tokens that are in the prompt or answer by this (1: off).", rich_help_panel=SAMPLING
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        help="Subtract this from the logits of tokens that are in the answer (0: off).", rich_help_panel=SAMPLING
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(help="Subtract this for each time that a token is in the answer (0: off).", rich_help_panel=SAMPLING),
]
Seed = Annotated[
    int,
    typer.Option(min=0, help="The same seed and request give the same answer, bit for bit.", rich_help_panel=SAMPLING),
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", min=1, help="Longest answer in tokens (default: what the context has room for).",
                 rich_help_panel=SAMPLING),
]  # fmt: skip
Stop = Annotated[
    list[str] | None, typer.Option(help="End the answer before this text. Can be repeated.", rich_help_panel=SAMPLING)
]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help=f"Jinja template in place of the model's own: a file, or one of {', '.join(TEMPLATE_NAMES)}.",
        rich_help_panel=MODEL,
    ),
]
Pooling = Annotated[
    str | None,
    typer.Option(
        metavar="mean|cls|last|rank",
        help="How hidden states become embeddings; rank: scores for /v1/rerank (default: what the model's files say).",
        rich_help_panel=MODEL,
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        metavar="TASK",
        help="Add the adapter of this task, which the model's files have (jina-embeddings-v3: retrieval.query …).",
        rich_help_panel=MODEL,
    ),
]
AUTO, OFF = "auto", "off"
Cache = Annotated[
    str,
    typer.Option(
        metavar="auto|off|FOLDER",
        help="Cache packed weights on disk for a faster next start, if that pays and the disk has room.",
        rich_help_panel=MODEL,
    ),
]
NONE = "none"
CacheDir = Annotated[
    str,
    typer.Option(
        metavar="auto|none|FOLDER",
        help="Where keys and values of prompts are kept on disk, so that a restart computes none of them again "
        "(auto: a folder of the model in ~/.cache/surefoot/prompts).",
        rich_help_panel=MACHINE,
    ),
]
CacheDisk = Annotated[
    int | None,
    size_option("Limit for that folder, such as 20GB (default: a tenth of the free disk).", rich_help_panel=MACHINE),
]
MAX_BODY_BYTES = 4 << 20
TlsCert = Annotated[
    Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM, with its chain). Read again on change.")
]
TlsKey = Annotated[
    Path | None, typer.Option(help="Key of the certificate (default: it stands in the certificate's file).")
]
Host = Annotated[str, typer.Option(help="Address to bind. Other than loopback only with --keys.")]
AllowedHost = Annotated[list[str] | None, typer.Option(help="Host name that clients may use. Can be repeated.")]
DrainSeconds = Annotated[float, time_option("Time to finish running requests after SIGTERM.")]
AccessLog = Annotated[
    Path | None, typer.Option(help="Write a line for each HTTP request: client, path, status, time, size, id.")
]
MaxBodyBytes = Annotated[int, size_option("Largest request body.", at_least=1024, show_default="4MiB")]
CacheKeyFile = Annotated[
    Path | None,
    typer.Option(
        help="File with 32 random bytes, which encrypts what is kept there (needs surefoot[encryption]).",
        rich_help_panel=MACHINE,
    ),
]
SERVER_URL = "http://127.0.0.1:8000"
ServerUrl = Annotated[str, typer.Option("--url", help="Address of the running server.")]
ServerKey = Annotated[
    str | None, typer.Option("--key", envvar="SUREFOOT_KEY", help="The user's key, if it has keys.", show_default=False)
]
System = Annotated[str | None, typer.Option(help="The system message.")]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Show speed and share of the bandwidth limit (default: at a terminal)."),
]
NO_CACHE = dict.fromkeys(("cache_disk", "cache_key_file"), "has no effect with --cache-dir none, which keeps nothing")
NO_AUDIT = {"audit_required": "needs --audit-log FILE"}
NO_TLS = {"tls_key": "needs --tls-cert FILE"}
SEVERAL = "is for several models: leave it out, or name more of them"
# Options of `surefoot serve` that have no effect, and why: for one model, and for several.
OF_ONE_MODEL = {"memory": SEVERAL, "keep_alive": SEVERAL, "max_wait": SEVERAL}
OF_MANY_MODELS = {
    "nodes": "is for a server of one model: the weights of several are divided among all nodes",
    "model_name": "names one model: with several, give each its `name` in a file for --config",
    "fleet_key": "is for a server of one model: start one for each model, and a gateway for each fleet",
}
# Options of `surefoot run-batch`: with --fleet, and without.
THE_SERVERS = "is the servers' own where --fleet answers: start them with it"
OF_FLEET_BATCH = dict.fromkeys(
    ("float_format", "context", "threads", "variant", "speculate", "sampling", "chat_template", "pooling", "adapter"),
    THE_SERVERS,
)
OF_LOCAL_BATCH = dict.fromkeys(("fleet_key", "key"), "is for servers: name them with --fleet")


def prompt_cache(
    chosen: str, max_bytes: int | None, key_file: Path | None, model_name: str, within: str | None = None
) -> PromptCache | None:
    """The cache that --cache-dir asks for. The default folder is done without if it cannot be used.

    within: the name of a folder in the chosen one, for one of several models.
    """
    if chosen == NONE:
        return None
    folder = default_folder(_folder_name(model_name)) if chosen == AUTO else Path(chosen, _folder_name(within or ""))
    return PromptCache(folder, max_bytes, key_file, is_required=chosen != AUTO)


def server_root(url: str) -> str:
    """A server's address without what clients put behind it."""
    return url.rstrip("/").removesuffix("/v1")


def _folder_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def cache(chosen: str) -> PackedCache | None:
    """The cache that --packed-cache asks for."""
    if chosen == OFF:
        return None
    return default_cache() if chosen == AUTO else replace(default_cache(), folder=Path(chosen))


def unused_by_serve(given: Mapping[str, Any], is_one: bool) -> Mapping[str, str]:
    """Options of `surefoot serve` that have no effect beside the given ones, and why. is_one: one model is served."""
    return (
        (OF_ONE_MODEL if is_one else OF_MANY_MODELS)
        | (NO_AUDIT if given["audit_log"] is None else {})
        | (NO_CACHE if given["cache_dir"] == NONE else {})
        | (NO_TLS if given["tls_cert"] is None else {})
    )


def refuse_unused(ctx: typer.Context, unused: Mapping[str, str]) -> None:
    """Raises ValueError for an option of the command line that has no effect. unused: why, by the parameter's name."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in unused and source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"{parameter.opts[0]} {unused[parameter.name]}")
