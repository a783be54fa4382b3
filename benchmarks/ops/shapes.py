"""Shapes of the measured models, without weights."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only model."""

    name: str
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    vocab: int

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Outputs and columns of a layer's matrices. q, k and v are one matrix, gate and up another."""
        return {
            "qkv": (self.qkv, self.width),
            "o": (self.width, self.heads * self.head_dim),
            "gate_up": (2 * self.ffn, self.width),
            "down": (self.width, self.ffn),
        }


D576 = ModelShape("smollm2 135M", 576, 1536, 9, 3, 64, 30, 49152)
D1536 = ModelShape("qwen2.5 1.5B", 1536, 8960, 12, 2, 128, 28, 151936)
D2048 = ModelShape("llama3.2 1B", 2048, 8192, 32, 8, 64, 16, 128256)
D4096 = ModelShape("llama3 8B", 4096, 14336, 32, 8, 128, 32, 128256)
TINY = ModelShape("tiny", 64, 128, 4, 2, 16, 2, 256)
