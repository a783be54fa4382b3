"""Ids from GGUF files are llama.cpp's ids."""

import unicodedata
from pathlib import Path

import pytest

from surefoot.text import Tokenizer, tokenizer_from_gguf
from surefoot.text.pretokenizers import PRE_TOKENIZERS
from tests.text import corpus
from tests.text.references import LlamaCpp, gguf_metadata, model_file, write_tiny_gguf

pytestmark = pytest.mark.reference

# llama.cpp only approximates these models' own patterns (see pretokenizers.py); test_huggingface compares them.
_APPROXIMATED = {"gpt-4o", "tekken"}
# For these, llama.cpp treats non-ASCII spaces as letters.
_ODD_SPACES = {"deepseek-llm", "deepseek-coder"}


def _differing(tokenizer: Tokenizer, reference: LlamaCpp, lines: list[str], parse_special: bool) -> list[str]:
    return [
        line
        for line in lines
        if tokenizer.encode(line, parse_special=parse_special) != reference.encode(line, parse_special=parse_special)
    ]


def _is_cut_otherwise(line: str) -> bool:
    """llama.cpp cuts Kimi's words as if all letters were small, takes marks for no letters, and Han's numerals for
    numbers; test_tiktoken compares with tiktoken."""
    marks = any(unicodedata.category(character).startswith("M") for character in line)
    return marks or line != line.lower() or any("\u3021" <= character <= "\u3029" for character in line)


def _encodable(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    """The lines whose bytes are all in the vocabulary. A byte without a token vanishes: before merging here and in
    transformers, after it in llama.cpp."""
    known = {piece[0] for piece in tokenizer.pieces if len(piece) == 1}
    return [line for line in lines if set(line.encode()) <= known]


@pytest.mark.parametrize("step", corpus.STEPS)
@pytest.mark.parametrize("name", ["smollm2", "gemma3", "qwen", "tinyllama"])
def test_real_files(name: str, step: int) -> None:
    path = model_file(name)
    tokenizer = tokenizer_from_gguf(gguf_metadata(path))
    reference = LlamaCpp(path)
    lines = list(corpus.lines()[::step])
    assert len(lines) == 10_000 // step
    if name == "smollm2":  # it has no token for a few control characters
        lines = _encodable(tokenizer, lines)
        assert len(lines) > 9_800 // step
    if name == "qwen":  # the model's own tokenizer composes characters first, llama.cpp does not
        lines = [unicodedata.normalize("NFC", line) for line in lines]
    # llama.cpp takes </s> for the end of the answer in every vocabulary, where Gemma and Qwen have it as HTML's tag.
    html = name in ("gemma3", "qwen")
    lines = [line for line in lines if not (html and "</s>" in line)]
    assert _differing(tokenizer, reference, lines, parse_special=False) == []
    with_special = lines[-3000 // step :]
    assert sum("<|im_end|>" in line for line in with_special) > 100 // step
    assert _differing(tokenizer, reference, with_special, parse_special=True) == []
    assert tokenizer.ids.ends == reference.ends(tokenizer.vocab_size) - ({212, 128247} if html else set())
    reference.close()


_FAMILIES = {id(family): name for name, family in reversed(PRE_TOKENIZERS.items())}  # one name of each


@pytest.mark.parametrize("pre", sorted(set(_FAMILIES.values()) - _APPROXIMATED))
def test_pre_tokenizers(pre: str, tmp_path: Path) -> None:
    """Each pattern with SmolLM2's vocabulary, on generated lines and some code."""
    metadata = {**gguf_metadata(model_file("smollm2")), "tokenizer.ggml.pre": pre}
    tokenizer = tokenizer_from_gguf(metadata)
    write_tiny_gguf(tmp_path / "tiny.gguf", metadata)
    reference = LlamaCpp(tmp_path / "tiny.gguf")
    lines = _encodable(tokenizer, list(corpus.lines()[4000::5]))
    assert len(lines) > 1_100
    if PRE_TOKENIZERS[pre].composes:
        lines = [unicodedata.normalize("NFC", line) for line in lines]
    if pre == "kimi-k2":
        lines = [line.lower() for line in lines if not _is_cut_otherwise(line.lower())]
        assert len(lines) > 750
    if pre in _ODD_SPACES:
        lines = [line for line in lines if not {"\u3000", "\u2009"} & set(line)]
    assert _differing(tokenizer, reference, lines, parse_special=False) == []
    reference.close()
