"""Writes the table of GGUF's types into docs/models.md, from the code that reads and packs them.

python docs/make/gguf_types.py            write the table
python docs/make/gguf_types.py --check    say that the page has another one, with status 1
"""

import argparse
import re
import sys
from pathlib import Path

from surefoot.formats import ggml
from surefoot.ops.weights import SUPER_BLOCK, Packing
from surefoot.weights.gguf import PANEL, packed_forms
from surefoot.weights.gguf_header import TensorInfo

PAGE = Path(__file__).parents[2] / "docs/models.md"
TABLE = re.compile(r"(?<=<!--gguf types-->\n).*?(?=<!--end of gguf types-->)", re.DOTALL)
HEAD = """
| type | file | memory, wide | codes | narrow | narrow over file |
|---|---|---|---|---|---|
"""
COLUMNS = SUPER_BLOCK  # whole blocks of every type


def table() -> str:
    """A row for each type, those with fewest bits in the file first."""
    return HEAD + "".join(map(row, sorted(ggml.TYPES.values(), key=file_bits))) + "\n"


def row(kind: ggml.BlockType) -> str:
    file, (wide, codes, narrow) = file_bits(kind), (memory_bits(kind, packing) for packing in Packing)
    return f"| {kind.name} | {file:g} | {wide:g} | {codes:g} | {narrow:g} | {narrow / file:.2f} |\n"


def file_bits(kind: ggml.BlockType) -> float:
    """Of a weight."""
    return 8 * kind.nbytes / kind.block


def memory_bits(kind: ggml.BlockType, packing: Packing) -> float:
    """Of a weight: what a longer row takes more. Scales of rows and the header are in both sizes, and so left out."""
    less, more = (packed_bytes(kind, columns, packing) for columns in (COLUMNS, 2 * COLUMNS))
    return 8 * (more - less) / (PANEL * COLUMNS)


def packed_bytes(kind: ggml.BlockType, columns: int, packing: Packing) -> int:
    """Of a matrix with the rows of one panel."""
    matrix = TensorInfo(kind.name, kind, (PANEL, columns), offset=0, nbytes=0)  # of which only the form counts
    (form,) = packed_forms([matrix], packing)
    return form.outline().nbytes


def fill(text: str) -> str:
    """The page with the table of the code. Raises ValueError if it has no place for one."""
    filled, count = TABLE.subn(table(), text)
    if count != 1:
        raise ValueError(f"{PAGE.name} has {count} places for the table, not 1")
    return filled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text()
    filled = fill(text)
    if not parser.parse_args().check:
        PAGE.write_text(filled)
    elif filled != text:
        sys.exit(f"{PAGE.name}: the table of types is not the code's: run python docs/make/gguf_types.py")


if __name__ == "__main__":
    main()
