"""Puts the `tokenizers` library's parts together for vocabularies that files give as plain data."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from surefoot.text.pretokenizers import PreTokenizer
from surefoot.text.tokenizer import Library
from surefoot.text.vocabulary import TokenizerError, TokenKind, Vocabulary, byte_level_piece, byte_of, spaced_piece

SPACE = "▁"
_WORST = -1e4  # lower than the sum of the scores of any few pieces
INSIDE = "##"  # before a piece that goes on with a word, in WordPiece
_MAX_PIECE_CHARACTERS = 4096  # merges are found in time quadratic in this


def byte_level(
    vocabulary: Vocabulary, merges: Sequence[str], pre: PreTokenizer, strips_after: Collection[int] = ()
) -> Library:
    """BPE over bytes. Each merge is "left right", the first one the most urgent."""
    pairs = pairs_of(merges)
    try:
        model = models.BPE(vocabulary.ids, pairs, ignore_merges=pre.whole_words)
    except Exception:  # the library's only type, for merges of tokens that are not there
        model = models.BPE(vocabulary.ids, _usable(vocabulary, pairs), ignore_merges=pre.whole_words)
    return _library(model, vocabulary, pre.normalizer(), pre.splitter(), strips_after)


def pairs_of(merges: Sequence[str]) -> list[tuple[str, str]]:
    """The left and the right token of each merge."""
    return [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]


def _usable(vocabulary: Vocabulary, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Merges of tokens that are there into one that is there."""
    ids = vocabulary.ids
    return [(left, right) for left, right in pairs if left in ids and right in ids and left + right in ids]


def spaced(
    vocabulary: Vocabulary, merges: Sequence[tuple[str, str]], space_first: bool, strips_after: Collection[int] = ()
) -> Library:
    """SentencePiece's BPE. The first merge is the most urgent."""
    unknown = next(
        (text for text, token in vocabulary.ids.items() if vocabulary.kinds[token] == TokenKind.UNKNOWN), None
    )
    model = models.BPE(vocabulary.ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    first = [normalizers.Prepend(SPACE)] if space_first else []
    normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", SPACE)])
    return _library(model, vocabulary, normalizer, None, strips_after)


def words(vocabulary: Vocabulary) -> Library:
    """WordPiece, over texts in lower case without accents. Files mark the pieces that begin words, as SentencePiece
    does."""
    unknown = next(iter(vocabulary.of_kind(TokenKind.UNKNOWN)), None)
    texts = [_as_word_piece(text, kind) for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)]
    own = Vocabulary(texts, vocabulary.kinds)
    model = models.WordPiece(own.ids, unk_token="[UNK]" if unknown is None else texts[unknown])
    return _library(model, own, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), ())


def _as_word_piece(text: str, kind: int) -> str:
    if kind != TokenKind.NORMAL or (text.startswith("[") and text.endswith("]")):
        return text
    return text.removeprefix(SPACE) if text.startswith(SPACE) else INSIDE + text


def unigram(vocabulary: Vocabulary, scores: Sequence[float], charsmap: bytes) -> Library:
    """SentencePiece's unigram model: of all ways to split a word, the one whose pieces have the highest scores.
    charsmap: how SentencePiece normalises texts, in its own form."""
    unknown = next(iter(vocabulary.of_kind(TokenKind.UNKNOWN)), None)
    kept = vocabulary.of_kind(TokenKind.NORMAL, TokenKind.USER_DEFINED)
    model = unigram_model(list(zip(vocabulary.texts, scores, strict=True)), unknown, kept)
    normalizer = normalizers.Precompiled(charsmap) if charsmap else None
    space = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    return _library(model, vocabulary, normalizer, splitter, ())


def unigram_model(
    pieces: Sequence[tuple[str, float]], unknown: int | None, kept: Collection[int], byte_fallback: bool = False
) -> models.Unigram:
    """Pieces that are not kept, such as control tokens, are worse than any way to split what a text has in their place.
    So text never becomes one."""
    lowered = [(text, score if token in kept else _WORST) for token, (text, score) in enumerate(pieces)]
    try:
        return models.Unigram(lowered, unknown, byte_fallback)
    except Exception as error:  # the library's only type
        raise TokenizerError(f"the tokenizer's pieces cannot be used: {error}") from error


def merges_from_scores(vocabulary: Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """All ways to make a piece of two, the piece with the highest score first. Text never merges into a control token
    or a byte token, although their texts are in the vocabulary."""
    mergeable = {TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED}
    score_of = {
        text: score
        for text, kind, score in zip(vocabulary.texts, vocabulary.kinds, scores, strict=True)
        if kind in mergeable
    }
    if any(len(text) > _MAX_PIECE_CHARACTERS for text in score_of):
        raise TokenizerError(f"A token has more than {_MAX_PIECE_CHARACTERS} characters: the file is damaged")
    pieces = sorted((text for text in score_of if len(text) > 1), key=lambda text: -score_of[text])
    return [
        (left, right)
        for text in pieces
        for cut in range(1, len(text))
        if (right := text[cut:]) in score_of and (left := text[:cut]) in score_of
    ]


def merges_from_ranks(texts: Sequence[str]) -> list[str]:
    """The merges of byte-level tokens, which stand in the order of their ranks. tiktoken merges any two neighbours that
    make a token, the lowest rank first. So only one pair can ever become a token: the last one when its own bytes are
    merged."""
    if any(len(text) > _MAX_PIECE_CHARACTERS for text in texts):
        raise TokenizerError(f"A token has more than {_MAX_PIECE_CHARACTERS} bytes: the file is damaged")
    ranks = {text: rank for rank, text in enumerate(texts)}
    pairs = (_last_pair(text, ranks) for text in texts)
    return [" ".join(pair) for pair in pairs if pair]


def _last_pair(text: str, ranks: Mapping[str, int]) -> list[str]:
    """Nothing for a single byte, and for a token that merging never makes: it only stands for a whole word."""
    parts = list(text)
    while len(parts) > 2:
        joined = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        lowest = min(joined)
        if lowest == len(ranks):
            return []
        index = joined.index(lowest)
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
    return parts if len(parts) == 2 else []


def _library(
    model: models.Model,
    vocabulary: Vocabulary,
    normalizer: normalizers.Normalizer | None,
    splitter: pre_tokenizers.PreTokenizer | None,
    strips_after: Collection[int],
) -> Library:
    def cutting(*kinds: TokenKind) -> tokenizers.Tokenizer:
        tokenizer = tokenizers.Tokenizer(model)
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if splitter is not None:
            tokenizer.pre_tokenizer = splitter
        tokenizer.add_tokens(
            [
                AddedToken(vocabulary.texts[token], normalized=False, special=False, rstrip=token in strips_after)
                for token in sorted(vocabulary.of_kind(*kinds))
            ]
        )
        return tokenizer

    return Library(
        plain=cutting(TokenKind.USER_DEFINED),
        parsing=cutting(TokenKind.USER_DEFINED, TokenKind.CONTROL, TokenKind.UNKNOWN),
    )


def byte_level_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    return _pieces(vocabulary, byte_level_piece, {TokenKind.NORMAL})


def spaced_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    return _pieces(vocabulary, spaced_piece, {TokenKind.NORMAL, TokenKind.USER_DEFINED})


def word_pieces(vocabulary: Vocabulary) -> tuple[bytes, ...]:
    return _pieces(vocabulary, _word_piece, {TokenKind.NORMAL})


def _word_piece(text: str) -> bytes:
    return (text.removeprefix(INSIDE) if text.startswith(INSIDE) else f" {text}").encode()


def _pieces(vocabulary: Vocabulary, piece: Callable[[str], bytes], written: set[TokenKind]) -> tuple[bytes, ...]:
    """The bytes of each token; `piece` reads those of the `written` kinds. Unused tokens have none."""
    return tuple(
        piece(text) if kind in written else _plain_piece(text, kind)
        for text, kind in zip(vocabulary.texts, vocabulary.kinds, strict=True)
    )


def _plain_piece(text: str, kind: int) -> bytes:
    if kind == TokenKind.UNUSED:
        return b""
    return byte_of(text) if kind == TokenKind.BYTE else text.encode()
