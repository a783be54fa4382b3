"""Makes tokenizers from GGUF metadata: byte-level BPE ("gpt2"), SentencePiece's BPE ("llama", "gemma4") and its unigram
model ("t5"), and WordPiece ("bert")."""

from collections.abc import Mapping
from typing import Any

from surefoot.text import building
from surefoot.text.fim import find_fim
from surefoot.text.pretokenizers import PRE_TOKENIZERS, PreTokenizer
from surefoot.text.tokenizer import Library, Tokenizer
from surefoot.text.vocabulary import END_TEXTS, SpecialIds, TokenizerError, TokenKind, Vocabulary, find_ends

Metadata = Mapping[str, Any]
_KEY = "tokenizer.ggml."


def tokenizer_from_gguf(metadata: Metadata) -> Tokenizer:
    """From the file's metadata keys as plain Python values."""
    model = metadata.get(_KEY + "model")
    if model == "gpt2":
        return _from_byte_level(metadata)
    if model in ("llama", "gemma4"):
        return _from_sentencepiece(metadata, lists_merges=model == "gemma4")
    if model == "t5":
        return _from_unigram(metadata)
    if model == "bert":
        return _from_word_pieces(metadata)
    if model is None:
        raise TokenizerError("The file has no tokenizer: it has no key tokenizer.ggml.model")
    raise TokenizerError(f"The file's tokenizer is of type {model!r}; surefoot reads gpt2, llama, gemma4, t5 and bert")


def _from_byte_level(metadata: Metadata) -> Tokenizer:
    pre = _pre_tokenizer(metadata)
    vocabulary = _vocabulary(metadata)
    library = building.byte_level(vocabulary, _merges(metadata, vocabulary), pre, _strips_after(metadata, vocabulary))
    pieces = building.byte_level_pieces(vocabulary)
    return _tokenizer(metadata, vocabulary, library, pieces, SpecialIds(), adds_bos=pre.adds_bos)


def _merges(metadata: Metadata, vocabulary: Vocabulary) -> list[str]:
    """Files of Kimi may have none: their ids are ranks."""
    if _KEY + "merges" not in metadata and metadata.get(_KEY + "pre") == "kimi-k2":
        kinds = zip(vocabulary.texts, vocabulary.kinds, strict=True)
        return building.merges_from_ranks([text for text, kind in kinds if kind == TokenKind.NORMAL])
    return _required(metadata, "merges")


def _from_sentencepiece(metadata: Metadata, *, lists_merges: bool) -> Tokenizer:
    """Where no merges are listed, any two neighbours whose joined text is a piece may merge, the highest score
    first."""
    vocabulary = _vocabulary(metadata)
    if lists_merges:
        merges = building.pairs_of(_required(metadata, "merges"))
    else:
        merges = building.merges_from_scores(vocabulary, _scores(metadata, vocabulary))
    space_first = bool(metadata.get(_KEY + "add_space_prefix", True))
    library = building.spaced(vocabulary, merges, space_first, _strips_after(metadata, vocabulary))
    pieces = building.spaced_pieces(vocabulary)
    usual = SpecialIds(bos=1, eos=2)
    return _tokenizer(metadata, vocabulary, library, pieces, usual, adds_bos=True, space_first=space_first)


def _from_unigram(metadata: Metadata) -> Tokenizer:
    vocabulary = _vocabulary(metadata)
    charsmap = bytes(value % 256 for value in _list(metadata.get(_KEY + "precompiled_charsmap", ())))
    library = building.unigram(vocabulary, _scores(metadata, vocabulary), charsmap)
    pieces, usual = building.spaced_pieces(vocabulary), SpecialIds()
    return _tokenizer(metadata, vocabulary, library, pieces, usual, adds_bos=False, adds_eos=True, space_first=True)


def _scores(metadata: Metadata, vocabulary: Vocabulary) -> list[float]:
    scores = _required(metadata, "scores")
    if len(scores) != len(vocabulary.texts):
        raise TokenizerError(f"{len(vocabulary.texts)} tokens, but {len(scores)} scores: the file is damaged")
    return scores


def _from_word_pieces(metadata: Metadata) -> Tokenizer:
    """Files say neither that a text stands between two tokens, nor that it is put in lower case: both always hold."""
    vocabulary = _vocabulary(metadata)
    usual = SpecialIds(bos=vocabulary.ids.get("[CLS]"), eos=vocabulary.ids.get("[SEP]"))
    library, pieces = building.words(vocabulary), building.spaced_pieces(vocabulary)
    return _tokenizer(metadata, vocabulary, library, pieces, usual, adds_bos=True, adds_eos=True, space_first=True)


def _tokenizer(
    metadata: Metadata,
    vocabulary: Vocabulary,
    library: Library,
    pieces: tuple[bytes, ...],
    usual: SpecialIds,
    *,
    adds_bos: bool,
    adds_eos: bool = False,
    space_first: bool = False,
) -> Tokenizer:
    bos = _id(metadata, "bos_token_id", usual.bos, vocabulary)
    eos = _id(metadata, "eos_token_id", usual.eos, vocabulary)
    adds_bos = bool(metadata.get(_KEY + "add_bos_token", adds_bos))
    adds_eos = bool(metadata.get(_KEY + "add_eos_token", adds_eos))
    declared = {_id(metadata, f"{name}_token_id", None, vocabulary) for name in ("eot", "eom")} - {None}
    ids = SpecialIds(
        bos=bos,
        eos=eos,
        ends=find_ends(vocabulary, eos) | {token for token in declared if token is not None},
        before=(bos,) if adds_bos and bos is not None else (),
        after=(eos,) if adds_eos and eos is not None else (),
    )
    special = vocabulary.of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN)
    return Tokenizer(
        library,
        pieces,
        special,
        ids,
        drops_first_space=space_first,
        fim=find_fim(vocabulary, _fim_ids(metadata, vocabulary)),
    )


def _fim_ids(metadata: Metadata, vocabulary: Vocabulary) -> dict[str, int | None]:
    """The FIM tokens that the file declares. Older files use other names for some."""
    names = {
        "prefix": ("fim_pre", "prefix"), "suffix": ("fim_suf", "suffix"), "middle": ("fim_mid", "middle"),
        "repository": ("fim_rep",), "file": ("fim_sep",),
    }  # fmt: skip
    declared = {
        role: [_id(metadata, f"{name}_token_id", None, vocabulary) for name in keys] for role, keys in names.items()
    }
    return {role: next((token for token in ids if token is not None), None) for role, ids in declared.items()}


def _required(metadata: Metadata, name: str) -> list[Any]:
    if _KEY + name not in metadata:
        raise TokenizerError(f"The file's tokenizer is incomplete: it has no key {_KEY}{name}")
    return _list(metadata[_KEY + name])


def _list(values: Any) -> list[Any]:
    """Arrays of numbers may be numpy's, arrays of texts any sequence."""
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _pre_tokenizer(metadata: Metadata) -> PreTokenizer:
    name = metadata.get(_KEY + "pre", "default")
    if name not in PRE_TOKENIZERS:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        raise TokenizerError(f"The file's pre-tokenizer {name!r} is not known to surefoot, which knows {known}")
    return PRE_TOKENIZERS[name]


def _vocabulary(metadata: Metadata) -> Vocabulary:
    texts = _required(metadata, "tokens")
    if "" in texts:
        texts = [text or f"[EMPTY_{token}]" for token, text in enumerate(texts)]
    kinds = _list(metadata.get(_KEY + "token_type", [TokenKind.NORMAL] * len(texts)))
    if len(kinds) != len(texts):
        raise TokenizerError(f"{len(texts)} tokens, but {len(kinds)} types: the file is damaged")
    vocabulary = Vocabulary(texts, kinds)
    for text in END_TEXTS & vocabulary.ids.keys():  # files exist in which such a token is marked as text
        kinds[vocabulary.ids[text]] = TokenKind.CONTROL
    return vocabulary


def _id(metadata: Metadata, name: str, usual: int | None, vocabulary: Vocabulary) -> int | None:
    token = metadata.get(_KEY + name, usual)
    return int(token) if token is not None and 0 <= token < len(vocabulary.texts) else None


def _strips_after(metadata: Metadata, vocabulary: Vocabulary) -> frozenset[int]:
    """The tokens that swallow the spaces after them: Phi-3's special tokens, for which GGUF files have no key."""
    if not any(name in str(metadata.get("general.name", "")).lower() for name in ("phi-3", "phi3")):
        return frozenset()
    kept = {vocabulary.ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
    return vocabulary.of_kind(TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN) - kept
