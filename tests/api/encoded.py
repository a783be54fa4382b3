"""What tests of models share whose tokens see later ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surefoot import LLM
from surefoot.ops.backend import supported_variants


def check_same_bits(folder: Path, texts: Sequence[str]) -> None:
    """However it is run. A limit on chunks does not apply: a prompt is computed in one step."""
    alone = [LLM(folder, threads=1).embed(text)[0].embedding for text in texts]
    cases: list[dict[str, Any]] = [{"threads": 1, "variant": variant} for variant in supported_variants()]
    cases += [{"threads": 2, "max_chunk": 7}, {"threads": 2, "max_running": 2, "block_size": 32}]
    for options in cases:
        llm = LLM(folder, **options)
        assert [output.embedding for output in llm.embed(texts)] == alone
        assert [output.embedding for output in llm.embed(texts[::-1])] == alone[::-1]
