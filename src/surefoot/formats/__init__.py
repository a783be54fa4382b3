"""Number formats: converts float weights to integer codes and scales. Plain numpy, independent of files and models."""

from surefoot.formats.grid import AffineGroups, alike, row_integers, to_integers
from surefoot.formats.rounding import (
    AUTO_FORMAT,
    FLOAT32,
    MODEL_FORMATS,
    SERVED,
    W4,
    W4_WIDE,
    W8,
    W8_GROUPED,
    ModelFormat,
    round_to,
    to_format,
)

__all__ = [
    "AUTO_FORMAT",
    "FLOAT32",
    "MODEL_FORMATS",
    "SERVED",
    "W4",
    "W4_WIDE",
    "W8",
    "W8_GROUPED",
    "AffineGroups",
    "ModelFormat",
    "alike",
    "round_to",
    "row_integers",
    "to_format",
    "to_integers",
]
