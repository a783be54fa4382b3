"""Options that the commands share."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from surefoot.formats import MODEL_FORMATS
from surefoot.text import TEMPLATE_NAMES
from surefoot.weights import PackedCache, default_cache

MODEL, SAMPLING, MACHINE = "Model", "Sampling", "Machine"

Model = Annotated[
    Path, typer.Argument(help="A GGUF file, a Hugging Face folder, or a Hugging Face id.", show_default=False)
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help=f"What float weights become ({', '.join(MODEL_FORMATS)}); quantised files keep their codes. "
        "With w8a8 activations have 8 bits instead of 15: prompts are read faster and answers less exact.",
        rich_help_panel=MODEL,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--max-context",
        "--context",
        min=1,
        help="Tokens of prompt and answer; the model's own by default.",
        rich_help_panel=MODEL,
    ),
]
Speculate = Annotated[
    str,
    typer.Option(
        help="How tokens are guessed ahead: auto, lookup, draft:MODEL (a smaller one with the same tokens, or a draft "
        "head's .safetensors file) or off. "
        "It never shows in the text, and is used only where it is faster.",
        rich_help_panel=MACHINE,
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="All usable cores by default.", rich_help_panel=MACHINE)]
Variant = Annotated[
    str | None, typer.Option(help="amx, avx512, avx2 or portable; the best by default.", rich_help_panel=MACHINE)
]
Sampling = Annotated[
    list[str] | None,
    typer.Option(
        "--sampling",
        metavar="KEY=VALUE",
        help="Default of temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty or frequency_penalty, "
        "instead of the model's own; may be repeated.",
        rich_help_panel=SAMPLING,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", "-t", help="0 is greedy; by default as the model advises.", rich_help_panel=SAMPLING),
]
TopK = Annotated[int | None, typer.Option(help="Only the k most likely tokens; 0: all.", rich_help_panel=SAMPLING)]
TopP = Annotated[
    float | None,
    typer.Option(help="Only the most likely tokens that make up this share; 1: all.", rich_help_panel=SAMPLING),
]
MinP = Annotated[
    float | None, typer.Option(help="Only tokens at least this likely beside the likeliest.", rich_help_panel=SAMPLING)
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Divides logits of tokens in prompt and answer; 1: off.", rich_help_panel=SAMPLING)
]
PresencePenalty = Annotated[
    float | None, typer.Option(help="Taken from logits of tokens in the answer.", rich_help_panel=SAMPLING)
]
FrequencyPenalty = Annotated[
    float | None, typer.Option(help="The same, times their number.", rich_help_panel=SAMPLING)
]  # fmt: skip
Seed = Annotated[
    int, typer.Option(min=0, help="Same seed and request: same answer, to the bit.", rich_help_panel=SAMPLING)
]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", "-n", min=1, help="Of an answer; what the context holds by default.",
                 rich_help_panel=SAMPLING),
]  # fmt: skip
Stop = Annotated[
    list[str] | None, typer.Option(help="End the answer before this text; may be repeated.", rich_help_panel=SAMPLING)
]
ChatTemplate = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help=f"Jinja, instead of the model's own: a file, or one of {', '.join(TEMPLATE_NAMES)}.",
        rich_help_panel=MODEL,
    ),
]
AUTO, OFF = "auto", "off"
Cache = Annotated[
    str,
    typer.Option(
        metavar="auto|off|FOLDER",
        help="Keep weights as the kernels want them, for the next start: where that pays and the disk has room.",
        rich_help_panel=MODEL,
    ),
]
System = Annotated[str | None, typer.Option(help="The system message.")]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Tell speed and share of the bandwidth limit; by default at a terminal."),
]


def cache(chosen: str) -> PackedCache | None:
    """What --packed-cache names."""
    if chosen == OFF:
        return None
    return default_cache() if chosen == AUTO else replace(default_cache(), folder=Path(chosen))
