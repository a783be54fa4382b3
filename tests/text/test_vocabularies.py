"""The tokenizers in llama.cpp's sources give its ids, on hostile and multilingual lines."""

from pathlib import Path

import pytest

from surefoot.text import tokenizer_from_gguf
from tests.text import corpus
from tests.text.references import LlamaCpp, gguf_metadata, peer_vocabularies, write_tiny_gguf

pytestmark = pytest.mark.reference

NAMES = (
    "aquila", "baichuan", "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
    "gpt-neox", "llama-bpe", "llama-spm", "mpt", "nomic-bert-moe", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip


def test_all_are_here() -> None:
    assert tuple(peer_vocabularies()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_llama_cpps(name: str, tmp_path: Path) -> None:
    metadata = gguf_metadata(peer_vocabularies()[name])
    tokenizer = tokenizer_from_gguf(metadata)
    write_tiny_gguf(tmp_path / "tiny.gguf", metadata)
    reference = LlamaCpp(tmp_path / "tiny.gguf")
    lines = list(corpus.lines())
    differ = [line for line in lines if tokenizer.encode(line) != reference.encode(line)]
    assert differ == []
