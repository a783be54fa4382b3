"""The tokenizers in llama.cpp's sources give its ids, on hostile and multilingual lines. Where they do not, it is said
why."""

import unicodedata
from pathlib import Path

import pytest

from surefoot.text import tokenizer_from_gguf
from tests.text import corpus
from tests.text.references import LlamaCpp, gguf_metadata, peer_vocabularies, write_tiny_gguf

pytestmark = [pytest.mark.reference, pytest.mark.nightly]

NAMES = (
    "aquila", "baichuan", "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
    "gpt-neox", "llama-bpe", "llama-spm", "mpt", "nomic-bert-moe", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
)  # fmt: skip


COMPOSES = ("qwen2", "qwen35")  # the models' own tokenizers compose characters first, llama.cpp does not
# Lines that llama.cpp splits otherwise: </s> in a vocabulary that has it as text; spaces beyond ASCII's as letters.
LEFT_OUT = {"phi-3": ("</s>",), "deepseek-llm": ("\u3000", "\u2009")}
# How many of the 10,000 lines differ.
DIFFER = {
    "bert-bge": 233,  # tokenizers' BertNormalizer keeps spacing marks (Hindi's vowels) and superscripts
    "falcon": 3,  # spaces before a byte that is no character
    "nomic-bert-moe": 133,  # tokenizers takes U+0085 for a space, and normalises each character with its marks
}


def test_all_are_here() -> None:
    assert tuple(peer_vocabularies()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_llama_cpps(name: str, tmp_path: Path) -> None:
    metadata = gguf_metadata(peer_vocabularies()[name])
    tokenizer = tokenizer_from_gguf(metadata)
    write_tiny_gguf(tmp_path / "tiny.gguf", metadata)
    reference = LlamaCpp(tmp_path / "tiny.gguf")
    lines = [line for line in corpus.lines() if not any(text in line for text in LEFT_OUT.get(name, ()))]
    assert len(lines) > 8_000
    if name in COMPOSES:
        lines = [unicodedata.normalize("NFC", line) for line in lines]
    differ = [line for line in lines if tokenizer.encode(line) != reference.encode(line)]
    assert len(differ) == DIFFER.get(name, 0)
    reference.close()
