"""A model file that gives sampling defaults."""

from pathlib import Path

import pytest

from tests.stories import VOCABULARY, WEIGHTS, stories_gguf, write_llama2c


def advised_gguf(path: Path) -> Path:
    """stories260K with advice in its header."""
    gguf = pytest.importorskip("gguf")
    stories_gguf()  # skips where there is no model
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_sampling_temp(0.5)
    writer.add_sampling_top_k(7)
    writer.add_sampling_min_p(2.5)  # no request might have it
    write_llama2c(writer, WEIGHTS, VOCABULARY)
    return path
