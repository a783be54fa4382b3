"""Ids from tiktoken's vocabularies are tiktoken's ids. tiktoken.json holds a small vocabulary and the ids that tiktoken
0.14 gives with Kimi's pattern. experiments/tiktoken_ids.py wrote it, and compares large vocabularies."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.text import Tokenizer, TokenizerError, building, tokenizer_from_folder, tokenizer_from_gguf
from surefoot.text.tiktoken import tokenizer_from_ranks
from surefoot.text.vocabulary import TokenKind, byte_level_piece, byte_level_text
from tests.text import small

_HELD = json.loads(Path(__file__).with_name("tiktoken.json").read_text())
SOURCE = "".join(f"{token} {rank}\n" for rank, token in enumerate(_HELD["tokens"]))
FIRST = len(_HELD["tokens"])  # id of the first special token
CONFIG = {
    "tokenizer_class": "TikTokenTokenizer",
    "bos_token": "[BOS]",
    "eos_token": {"content": "[EOS]"},
    "added_tokens_decoder": {
        str(FIRST): {"content": "[BOS]", "special": True},
        str(FIRST + 1): {"content": "[EOS]", "special": True},
        str(FIRST + 2): {"content": "<|im_end|>", "special": False},
        str(FIRST + 3): {"content": "<|im_user|>", "special": True},
        str(FIRST + 22): {"content": "<think>", "special": False},
    },
}


@cache
def kimi() -> Tokenizer:
    return tokenizer_from_ranks(SOURCE, CONFIG, [FIRST + 5])


def test_ids_are_tiktokens() -> None:
    assert len(_HELD["ids"]) > 70
    assert {text: kimi().encode(text) for text in _HELD["ids"]} == _HELD["ids"]
    assert all(kimi().decode(ids) == text for text, ids in _HELD["ids"].items())


def test_special_tokens() -> None:
    tokenizer = kimi()
    assert tokenizer.vocab_size == FIRST + 256
    assert (tokenizer.ids.bos, tokenizer.ids.eos, tokenizer.before) == (FIRST, FIRST + 1, ())
    assert tokenizer.ids.ends == {FIRST + 1, FIRST + 2, FIRST + 5}
    assert tokenizer.special == {*range(FIRST, FIRST + 256)} - {FIRST + 22}
    written = f"[BOS]<|im_user|>a<think><|reserved_token_{FIRST + 255}|><|im_end|>"
    ids = tokenizer.encode(written, parse_special=True)
    assert ids == [FIRST, FIRST + 3, *tokenizer.encode("a"), FIRST + 22, FIRST + 255, FIRST + 2]
    assert tokenizer.decode(ids) == "a<think>"
    plain = tokenizer.encode(written)
    assert {token for token in plain if token >= FIRST} == {FIRST + 22}
    assert tokenizer.decode(plain) == written


def _gguf(**keys: Any) -> dict[str, Any]:
    """The keys of llama.cpp's converter. None leaves one out."""
    texts = [*kimi_texts(), "[BOS]", "[EOS]"]
    kinds = [TokenKind.NORMAL] * FIRST + [TokenKind.CONTROL] * 2
    merges = building.merges_from_ranks(kimi_texts())
    values = {"model": "gpt2", "pre": "kimi-k2", "tokens": texts, "token_type": kinds, "merges": merges, **keys}
    return {f"tokenizer.ggml.{name}": value for name, value in values.items() if value is not None}


@cache
def kimi_texts() -> list[str]:
    return [byte_level_text(piece) for piece in kimi().pieces[:FIRST]]


@pytest.mark.parametrize("keys", [{}, {"merges": None}], ids=["merges", "no merges"])
def test_gguf_files(keys: dict[str, Any]) -> None:
    tokenizer = tokenizer_from_gguf(_gguf(**keys))
    assert all(tokenizer.encode(text) == ids for text, ids in _HELD["ids"].items())
    assert tokenizer.before == ()


def test_other_gguf_files_need_merges() -> None:
    with pytest.raises(TokenizerError, match=r"no key tokenizer\.ggml\.merges"):
        tokenizer_from_gguf(_gguf(merges=None, pre="qwen2"))


@given(
    tokens=st.lists(st.text("ab", min_size=2, max_size=5), unique=True, max_size=16),
    text=st.text("ab", min_size=1, max_size=12),
)
def test_merges_are_those_of_the_ranks(tokens: list[str], text: str) -> None:
    """With any ranks, also those of tokens below their own parts'."""
    ranks = {token: rank for rank, token in enumerate(["a", "b", *tokens])}
    metadata = small.byte_level([])
    names = [*metadata["tokenizer.ggml.tokens"], *tokens]
    metadata |= {"tokenizer.ggml.pre": "kimi-k2", "tokenizer.ggml.tokens": names}
    metadata |= {"tokenizer.ggml.token_type": [1] * len(names)}
    del metadata["tokenizer.ggml.merges"]
    ids = tokenizer_from_gguf(metadata).encode(text)
    whole = [text] if text in ranks else small.merge_by_score(text, {token: -rank for token, rank in ranks.items()})
    assert [names[token] for token in ids] == whole


def test_bytes_have_texts() -> None:
    every = bytes(range(256))
    assert byte_level_piece(byte_level_text(every)) == every
    assert byte_level_text(" né".encode()) == "ĠnÃ©"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "no token for some bytes"),
        ("IQ== 0 1\n", "not lines of a token and its rank"),
        ("IQ== x\n", "not lines of a token and its rank"),
        ("I 0\n", "not lines of a token and its rank"),
        (SOURCE.replace(" 7\n", " 8\n"), "ranks that are not 0 to"),
        (SOURCE.replace(" 7\n", " 10000000000\n"), "ranks that are not 0 to"),
        (SOURCE.replace(_HELD["tokens"][-1], _HELD["tokens"][300]), "twice"),
    ],
)
def test_damaged_files_are_refused(source: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_ranks(source, CONFIG)


def _added(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    added = dict(CONFIG["added_tokens_decoder"])  # type: ignore[call-overload]
    change(added)
    return {**CONFIG, "added_tokens_decoder": added}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "not for None"),
        ({"tokenizer_class": "QWenTokenizer"}, "QWenTokenizer"),
        ({**CONFIG, "added_tokens_decoder": [1]}, "other than"),
        (_added(lambda added: added.update({"7": "<a>"})), "other than"),
        (_added(lambda added: added.update({str(FIRST + 256): "<a>"})), "other than"),
        (_added(lambda added: added.update({str(FIRST + 9): None})), "other than"),
        (_added(lambda added: added.update({str(FIRST + 9): "[BOS]"})), "twice"),
    ],
)
def test_unknown_special_tokens_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_ranks(SOURCE, config)


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").write_text(SOURCE)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": FIRST + 4}))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.ids.ends == {FIRST + 1, FIRST + 2, FIRST + 4}
    assert tokenizer.encode("Hello你好") == kimi().encode("Hello你好")
