"""llama2.c's tokenizer.bin: a small file of the tests, a real file, and damaged files."""

import struct
from pathlib import Path

import pytest

from surefoot.text import TokenizerError, tokenizer_from_gguf, tokenizer_from_llama2c
from tests.text import corpus, small
from tests.text.references import gguf_metadata, model_file

_SMALL = Path(__file__).parents[3] / "shared/data/stories260K-tokenizer.bin"


@pytest.fixture
def small_file() -> Path:
    if not _SMALL.exists():
        pytest.skip(f"{_SMALL} is not there")
    return _SMALL


def test_small_vocabulary_follows_the_definition(small_file: Path) -> None:
    data, offset, scores = small_file.read_bytes(), 4, {}
    while offset < len(data):
        score, length = struct.unpack_from("<fi", data, offset)
        offset += 8 + length
        scores[data[offset - length : offset].decode()] = score
    mergeable = {text: score for text, score in scores.items() if not text.startswith(("<0x", "<unk", "\n<"))}
    tokenizer = tokenizer_from_llama2c(small_file)
    assert tokenizer.vocab_size == 512
    assert tokenizer.encode("") == [1]
    for line in corpus.lines()[:2500:5]:
        pieces = [tokenizer.token_bytes(token) for token in tokenizer.encode(line, add_special=False)]
        assert b"".join(pieces) == b" " + line.encode()
        if line.isascii():
            assert [piece.decode() for piece in pieces] == small.merge_by_score(" " + line, mergeable)
        assert tokenizer.decode(tokenizer.encode(line)) == line


@pytest.mark.reference
def test_real_vocabulary_is_llama2s() -> None:
    """stories15M has Llama 2's 32,000 tokens, as TinyLlama has."""
    tokenizer = tokenizer_from_llama2c(model_file("stories15m"))
    same = tokenizer_from_gguf(gguf_metadata(model_file("tinyllama")))
    assert [line for line in corpus.lines() if tokenizer.encode(line) != same.encode(line)] == []


def _entry(score: float, text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<fi", score, len(text) if length is None else length) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\0\0",
        struct.pack("<i", 8),
        struct.pack("<i", 8) + _entry(0, b"<unk>") * 2,
        struct.pack("<i", 8) + _entry(0, b"<byte>") * 259 + _entry(0, b"a") * 2,
        struct.pack("<i", 8) + _entry(0, b"<unk>") + _entry(0, b"abc", length=100),
        struct.pack("<i", 2**31 - 1) + _entry(0, b"abc", length=2**31 - 1),
        struct.pack("<i", 8) + _entry(0, b"abc", length=-1),
        struct.pack("<i", 8) + _entry(0, b"abc") + b"\0\0\0",
    ],
)
def test_broken_files_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    with pytest.raises(TokenizerError):
        tokenizer_from_llama2c(path)
