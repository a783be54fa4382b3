"""Small vocabularies as GGUF metadata."""

from itertools import pairwise
from typing import Any

from surefoot.text.vocabulary import TokenKind

_KEY = "tokenizer.ggml."


def byte_level(merges: list[str], extra: dict[str, TokenKind] | None = None, **keys: Any) -> dict[str, Any]:
    """A vocabulary of all bytes in GPT-2's spelling, the results of the merges, and `extra` tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    tokens = letters + [merge.replace(" ", "") for merge in merges] + list(extra or {})
    kinds = [TokenKind.NORMAL] * (256 + len(merges)) + list((extra or {}).values())
    return _metadata("gpt2", tokens, kinds, {"merges": merges, "pre": "gpt-2", **keys})


def spaced(pieces: dict[str, float], extra: dict[str, TokenKind] | None = None, **keys: Any) -> dict[str, Any]:
    """A vocabulary of <unk>, <s>, </s>, the bytes, pieces with their scores, and `extra` tokens."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *(extra or {})]
    kinds = (
        [TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.CONTROL]
        + [TokenKind.BYTE] * 256
        + [TokenKind.NORMAL] * len(pieces)
    )
    scores = [0.0] * 259 + list(pieces.values()) + [0.0] * len(extra or {})
    return _metadata("llama", tokens, kinds + list((extra or {}).values()), {"scores": scores, **keys})


def unigram(pieces: dict[str, float], extra: dict[str, TokenKind] | None = None, **keys: Any) -> dict[str, Any]:
    """A vocabulary of XLM-RoBERTa's special tokens, pieces with their scores, and `extra` tokens."""
    special = {
        "<s>": TokenKind.CONTROL,
        "<pad>": TokenKind.CONTROL,
        "</s>": TokenKind.CONTROL,
        "<unk>": TokenKind.UNKNOWN,
    }
    tokens = [*special, *pieces, *(extra or {})]
    kinds = [*special.values(), *[TokenKind.NORMAL] * len(pieces), *(extra or {}).values()]
    scores = [0.0] * 4 + list(pieces.values()) + [0.0] * len(extra or {})
    ids = {"bos_token_id": 0, "eos_token_id": 2, "add_bos_token": True, "add_eos_token": True}
    return _metadata("t5", tokens, kinds, {"scores": scores, **ids, **keys})


def _metadata(model: str, tokens: list[str], kinds: list[TokenKind], keys: dict[str, Any]) -> dict[str, Any]:
    plain = {"model": model, "tokens": tokens, "token_type": [int(kind) for kind in kinds], **keys}
    return {_KEY + name: value for name, value in plain.items() if value is not None}


def merge_by_score(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's BPE by definition: merge the neighbours that give the best piece, leftmost among equals."""
    symbols = list(text)
    while True:
        joined = [left + right for left, right in pairwise(symbols)]
        best = max(
            (index for index, piece in enumerate(joined) if piece in scores),
            key=lambda index: (scores[joined[index]], -index),
            default=None,
        )
        if best is None:
            return symbols
        symbols[best : best + 2] = [joined[best]]
