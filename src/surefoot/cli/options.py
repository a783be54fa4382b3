"""Options that the commands share."""

from pathlib import Path
from typing import Annotated

import typer

from surefoot.formats import MODEL_FORMATS

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
    typer.Option(min=1, help="Tokens of prompt and answer; the model's own by default.", rich_help_panel=MODEL),
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
Temperature = Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.", rich_help_panel=SAMPLING)]
TopK = Annotated[int, typer.Option(help="Only the k most likely tokens; 0: all.", rich_help_panel=SAMPLING)]
TopP = Annotated[
    float, typer.Option(help="Only the most likely tokens that make up this share; 1: all.", rich_help_panel=SAMPLING)
]
MinP = Annotated[
    float, typer.Option(help="Only tokens at least this likely beside the likeliest.", rich_help_panel=SAMPLING)
]
RepetitionPenalty = Annotated[
    float, typer.Option(help="Divides logits of tokens in prompt and answer; 1: off.", rich_help_panel=SAMPLING)
]
PresencePenalty = Annotated[
    float, typer.Option(help="Taken from logits of tokens in the answer.", rich_help_panel=SAMPLING)
]
FrequencyPenalty = Annotated[
    float, typer.Option(help="The same, times their number.", rich_help_panel=SAMPLING)
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
System = Annotated[str | None, typer.Option(help="The system message.")]
Stats = Annotated[
    bool | None,
    typer.Option("--stats/--no-stats", help="Tell speed and share of the bandwidth limit; by default at a terminal."),
]
