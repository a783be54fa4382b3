"""The options of `surefoot compress`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CompressOptions:
    """Either one format for all matrices, or a budget for all of them together (`bits_per_weight` or `fits_bytes`)."""

    method: str  # a key of METHODS
    output: str  # gguf or compressed-tensors
    format: str | None = None  # of all matrices in layers
    embeddings: str | None = None  # format of embeddings and head (GGUF only)
    bits_per_weight: float | None = None  # budget: the average over all matrices
    fits_bytes: int | None = None  # budget: the size of the file
    candidates: tuple[str, ...] = ()  # formats that a budget chooses from; empty: DEFAULT_CANDIDATES
    calibration: Path | None = None  # text, UTF-8
    calibration_tokens: int = 16384  # of the text, at most: what methods calibrate on
    sensitivity_tokens: int = 4096  # of these, at most: what a budget measures losses on
    context: int = 512  # tokens in a window of the text
    threads: int = 1  # that quantise matrices at once
