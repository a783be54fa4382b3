"""Number formats: float weights to integer codes and scales. Plain numpy; knows nothing of files or models."""

from surefoot.formats.grid import AffineGroups, alike, row_integers, to_integers
from surefoot.formats.rounding import FLOAT_FORMATS, W4, W4_WIDE, W8, W8_GROUPED, round_to, to_format

__all__ = [
    "FLOAT_FORMATS",
    "W4",
    "W4_WIDE",
    "W8",
    "W8_GROUPED",
    "AffineGroups",
    "alike",
    "round_to",
    "row_integers",
    "to_format",
    "to_integers",
]
