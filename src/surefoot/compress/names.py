"""Formats by the names that users give, and which of them a matrix is offered."""

import re
from collections.abc import Sequence

from surefoot.compress.ggml_grids import GGML
from surefoot.compress.grids import Format, IntFormat, TableFormat
from surefoot.compress.later import CompressError
from surefoot.compress.levels import FP4, NF4

INT = re.compile(r"int([2-8])(?:-g(\d+))?(-zero)?")
TABLES = {"nf4": NF4, "fp4": FP4}
# Where a row is not whole blocks of 256, the type in blocks of 32 that llama.cpp takes too.
INSTEAD = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
# What the budget's optimiser chooses from, unless told. A zero point costs less than the smaller groups that lose as
# little; groups of 96 for rows that 64 does not divide, and between the sizes of 64 and of the next width.
OFFERED = {
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
    raise CompressError(f"there is no format {name!r}: {known}")


def suited(fmt: Format, columns: int) -> Format | None:
    """The format, or what takes its place for rows of so many columns; None where nothing does."""
    if fmt.suits(columns):
        return fmt
    other = GGML.get(INSTEAD.get(fmt.name, ""))
    return other if other is not None and other.suits(columns) else None


def offered(names: Sequence[str], columns: int) -> list[Format]:
    """Those that suit."""
    formats = [fmt for fmt in map(parse_format, names) if fmt.suits(columns)]
    has_large_blocks = any(fmt.name.endswith("_K") for fmt in formats)
    # Where K-quants fit, the smaller blocks of the same width are no gain, and each costs a pass of GPTQ.
    return [fmt for fmt in formats if not has_large_blocks or fmt.name.endswith("_K") or fmt.name == "Q8_0"]
