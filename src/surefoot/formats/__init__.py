"""Number formats: float weights to integer codes and scales. Plain numpy; knows nothing of files or models."""

from surefoot.formats.ggml import AffineGroups, BlockType, decode, decode_floats, row_integers
from surefoot.formats.rounding import W4, W4_WIDE, W8, W8_GROUPED, round_to

__all__ = [
    "W4",
    "W4_WIDE",
    "W8",
    "W8_GROUPED",
    "AffineGroups",
    "BlockType",
    "decode",
    "decode_floats",
    "round_to",
    "row_integers",
]
