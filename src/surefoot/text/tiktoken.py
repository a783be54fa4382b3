"""Makes tokenizers from vocabularies in tiktoken's form: lines of a token in base64 and its rank, which is its id. The
pattern and the special tokens are those of Kimi, the one family that publishes no other form."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from surefoot.text import building
from surefoot.text.fim import find_fim
from surefoot.text.pretokenizers import PRE_TOKENIZERS
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary import (
    END_TEXTS,
    SpecialIds,
    TokenizerError,
    TokenKind,
    Vocabulary,
    byte_level_text,
    find_ends,
    token_text,
)

FILE = "tiktoken.model"
_CLASS = "TikTokenTokenizer"  # of Kimi, in tokenizer_config.json
_NUM_SPECIAL = 256  # ids after the ranks; those without a name are reserved


def tokenizer_from_ranks(source: str, config: Mapping[str, Any], end_ids: Iterable[int] = ()) -> Tokenizer:
    """From the text of tiktoken.model, tokenizer_config.json as `config`, and generation_config.json's eos_token_id."""
    if config.get("tokenizer_class") != _CLASS:
        raise TokenizerError(
            f"{FILE} does not say how text is cut into words, and surefoot knows it for Kimi's {_CLASS} alone, not for "
            f"{config.get('tokenizer_class')!r}: save the model's tokenizer with transformers as tokenizer.json"
        )
    texts = [byte_level_text(token) for token in _tokens(source)]
    special = _special(config, len(texts))
    kinds = [TokenKind.NORMAL] * len(texts) + [kind for _, kind in special]
    vocabulary = Vocabulary(texts + [text for text, _ in special], kinds)
    bos, eos = (vocabulary.ids.get(token_text(config.get(name))) for name in ("bos_token", "eos_token"))
    return Tokenizer(
        building.byte_level(vocabulary, building.merges_from_ranks(texts), PRE_TOKENIZERS["kimi-k2"]),
        building.byte_level_pieces(vocabulary),
        vocabulary.of_kind(TokenKind.CONTROL),
        SpecialIds(bos, eos, find_ends(vocabulary, eos) | frozenset(end_ids)),
        fim=find_fim(vocabulary, {}),
    )


def _tokens(source: str) -> list[bytes]:
    """The bytes of each token by its rank."""
    try:
        lines = [line.split() for line in source.splitlines() if line]
        ranked = sorted((int(rank), base64.b64decode(token, validate=True)) for token, rank in lines)
    except ValueError as error:
        raise TokenizerError(f"{FILE} is not lines of a token and its rank ({error}): fetch it again") from None
    tokens = [token for _, token in ranked]
    if [rank for rank, _ in ranked] != list(range(len(ranked))) or b"" in tokens:
        raise TokenizerError(f"{FILE} has tokens that are empty, or ranks that are not 0 to {len(ranked) - 1}")
    if not {bytes([byte]) for byte in range(256)} <= set(tokens):
        raise TokenizerError(f"{FILE} has no token for some bytes: fetch it again")
    return tokens


def _special(config: Mapping[str, Any], first: int) -> list[tuple[str, TokenKind]]:
    """The text and kind of each special token, of which the first has the id `first`."""
    ids = [str(token) for token in range(first, first + _NUM_SPECIAL)]
    added = config.get("added_tokens_decoder") or {}
    if not isinstance(added, dict) or not added.keys() <= set(ids) or not all(map(token_text, added.values())):
        raise TokenizerError(f"tokenizer_config.json names special tokens other than {ids[0]} to {ids[-1]}")
    return [
        _named(added[token]) if token in added else (f"<|reserved_token_{token}|>", TokenKind.CONTROL) for token in ids
    ]


def _named(token: Mapping[str, Any]) -> tuple[str, TokenKind]:
    """Tokens that are not special, such as <think>, are text that users may write."""
    text = token_text(token)
    is_text = isinstance(token, dict) and not token.get("special") and text not in END_TEXTS
    return text, TokenKind.USER_DEFINED if is_text else TokenKind.CONTROL
