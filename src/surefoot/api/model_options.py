"""The options of `surefoot serve` that can differ between models."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelOptions:
    """As for `LLM`."""

    float_format: str = "w8"
    max_context: int | None = None
    max_running: int = 32
    speculate: str = "auto"
    kv_bytes: int | None = None
    pooling: str | None = None
    chat_template: str | None = None
    sampling: tuple[str, ...] = ()  # KEY=VALUE
