"""A model for one user at a terminal."""

from pathlib import Path

from surefoot.api import LLM


def open_for_one(
    model: Path, float_format: str, context: int | None, threads: int | None, variant: str | None, speculate: str
) -> LLM:
    """One answer at a time."""
    return LLM(
        model, float_format=float_format, max_context=context, max_running=1, threads=threads, variant=variant,
        speculate=speculate,
    )  # fmt: skip
