"""Vectors of unit length."""

import math
import struct
from collections.abc import Sequence


def unit(vector: Sequence[float], dimensions: int | None = None) -> tuple[float, ...]:
    """The vector, or its first dimensions, scaled to length 1, in float32. The length is the root of an exactly rounded
    sum."""
    kept = vector[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in kept)) or 1.0
    return struct.unpack(f"<{len(kept)}f", struct.pack(f"<{len(kept)}f", *(value / length for value in kept)))
