"""What a user asks of `surefoot compress`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Order:
    """What a user asks for. Either one format for all matrices, or a budget in bytes for all of them together."""

    method: str
    output: str  # gguf or compressed-tensors
    format: str | None = None
    embeddings: str | None = None
    bits_per_weight: float | None = None
    fits_bytes: int | None = None
    offered: tuple[str, ...] = ()
    calibration: Path | None = None
    calibration_tokens: int = 16384
    sensitivity_tokens: int = 4096
    context: int = 512
    threads: int = 1
