"""The table of GGUF's types is the code's."""

import pytest

from surefoot.formats import ggml
from tests.docs.pages import script

types = script("gguf_types")


def test_the_page_has_the_table_of_the_code() -> None:
    text = types.PAGE.read_text()
    assert types.fill(text) == text, "run python docs/make/gguf_types.py"


def test_every_type_has_a_row() -> None:
    rows = types.table().removeprefix(types.HEAD).split("\n")
    assert sorted(row.split(" ")[1] for row in rows if row) == sorted(ggml.NAMES)


def test_bits_of_a_type() -> None:
    """4 bits a code; in 256 weights of the file two numbers in half precision and 12 bytes for scales and minima, which
    take 16 bits for each 32 weights wide, and a byte narrow. Of 6 bits, 8 are multiplied."""
    assert types.row(ggml.NAMES["Q4_K"]) == "| Q4_K | 4.5 | 5 | 5 | 4.625 | 1.03 |\n"
    assert types.row(ggml.NAMES["Q6_K"]) == "| Q6_K | 6.5625 | 9 | 7 | 6.5625 | 1.00 |\n"


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"models\.md has 0 places"):
        types.fill("no table")
