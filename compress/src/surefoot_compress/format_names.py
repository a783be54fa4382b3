"""Parses format names, and says which formats a matrix may take."""

import re
from collections.abc import Sequence

from surefoot_compress.errors import CompressError
from surefoot_compress.ggml_grids import GGML
from surefoot_compress.grids import Format, IntFormat, TableFormat
from surefoot_compress.levels import FP4, NF4

INT = re.compile(r"int([2-8])(?:-g(\d+))?(-zero)?")
TABLES = {"nf4": NF4, "fp4": FP4}
# The type with blocks of 32 that llama.cpp too falls back to, for rows that are no multiple of 256.
FALLBACKS = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
# The formats that a budget chooses from by default. A zero point costs less than smaller groups with the same loss.
# Groups of 96 are for rows that 64 does not divide, and fill the gap in size between groups of 64 and the next width.
DEFAULT_CANDIDATES = {
    "gguf": ("Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    "compressed-tensors": (
        "int3-g32-zero",
        "int4-g96-zero",
        "int4-g64-zero",
        "int4-g32-zero",
        "int5-g96-zero",
        "int5-g64-zero",
        "int6-g32-zero",
        "int8-g32",
    ),
}


def parse_format(name: str) -> Format:
    if name.upper() in GGML:
        return GGML[name.upper()]
    table, _, group = name.lower().partition("-g")
    if table in TABLES and (group.isdigit() or not group):
        return TableFormat(name.lower(), TABLES[table], int(group or 32))
    if match := INT.fullmatch(name.lower()):
        return IntFormat(int(match[1]), int(match[2] or 0), not match[3])
    known = f"{', '.join(GGML)} (GGUF), int4-g32, int4-g128-zero, int8 and the like (compressed-tensors)"
    raise CompressError(f"there is no format {name!r}: choose from {known}")


def fallback_format(fmt: Format, columns: int) -> Format | None:
    """The format itself if it divides rows of `columns` weights, otherwise its fallback; None if neither does."""
    if fmt.suits(columns):
        return fmt
    other = GGML.get(FALLBACKS.get(fmt.name, ""))
    return other if other is not None and other.suits(columns) else None


def suitable_formats(names: Sequence[str], columns: int) -> list[Format]:
    """The named formats that divide rows of `columns` weights.

    Where K-quants do, the types with smaller blocks are left out: at the same width they gain nothing, and each costs a
    pass of GPTQ."""
    formats = [fmt for fmt in map(parse_format, names) if fmt.suits(columns)]
    has_large_blocks = any(fmt.name.endswith("_K") for fmt in formats)
    return [fmt for fmt in formats if not has_large_blocks or fmt.name.endswith("_K") or fmt.name == "Q8_0"]
