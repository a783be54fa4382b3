"""Makes tokenizers from a Hugging Face folder: tokenizer.json or tiktoken.model, and the special tokens that its config
files name."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from surefoot.core import model_files
from surefoot.core.model_files import MAX_CONFIG_BYTES, MAX_TEXT_BYTES, ModelFileError, in_folder
from surefoot.text import building, tiktoken
from surefoot.text.fim import find_fim
from surefoot.text.tokenizer import Library, Tokenizer
from surefoot.text.vocabulary import SpecialIds, TokenizerError, TokenKind, Vocabulary, find_ends, is_byte, token_text

KNOWN = "byte-level BPE, SentencePiece and WordPiece"
PIECES = {"ByteLevel": building.byte_level_pieces, "WordPiece": building.word_pieces}  # by a step of decoding


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    ends = _end_ids(read_json(folder / "generation_config.json").get("eos_token_id"))
    config = read_json(folder / "tokenizer_config.json")
    for name, make in (("tokenizer.json", tokenizer_from_json), (tiktoken.FILE, tiktoken.tokenizer_from_ranks)):
        if (file := in_folder(folder, name)) is not None:
            return make(model_files.read_text(file, MAX_TEXT_BYTES), config, ends)
    raise TokenizerError(f"{folder} has no tokenizer.json: save the model's tokenizer with transformers first")


def _end_ids(eos_token_id: Any) -> list[int]:
    """The ids in generation_config.json's eos_token_id, which is null, an id, or a list of ids."""
    ids = eos_token_id if isinstance(eos_token_id, list) else [] if eos_token_id is None else [eos_token_id]
    if not all(type(token) is int and token >= 0 for token in ids):
        raise TokenizerError("generation_config.json: eos_token_id is neither a token id nor a list of them")
    return ids


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; empty if the file does not exist."""
    try:
        file = in_folder(path.parent, path.name)
        return {} if file is None else model_files.read_json(file, MAX_CONFIG_BYTES)
    except ModelFileError as wrong:
        raise TokenizerError(str(wrong)) from None


def tokenizer_from_json(source: str, config: Mapping[str, Any] | None = None, end_ids: Iterable[int] = ()) -> Tokenizer:
    """From the text of tokenizer.json, tokenizer_config.json as `config`, and generation_config.json's eos_token_id."""
    try:
        parsing = tokenizers.Tokenizer.from_str(source)
    except Exception as error:  # the library raises nothing narrower
        raise TokenizerError(f"tokenizer.json cannot be read: {error}") from error
    parsing.no_truncation()
    parsing.no_padding()
    if isinstance(parsing.model, tokenizers.models.Unigram):
        parsing.model = _guarded(parsing, json.loads(source)["model"])
    decoders = list(_decoders(parsing))
    kinds = {decoder["type"] for decoder in decoders}
    pieces = next((PIECES[kind] for kind in PIECES if kind in kinds), building.spaced_pieces)
    vocabulary = _vocabulary(parsing, has_bytes=any(decoder["type"] == "ByteFallback" for decoder in decoders))
    return Tokenizer(
        Library(_without_special(parsing), parsing),
        pieces(vocabulary),
        vocabulary.of_kind(TokenKind.CONTROL),
        _special_ids(parsing, vocabulary, config or {}, end_ids),
        drops_first_space=any(_drops_first_space(decoder) for decoder in decoders),
        fim=find_fim(vocabulary, {}),
    )


def _guarded(parsing: tokenizers.Tokenizer, model: Mapping[str, Any]) -> tokenizers.models.Unigram:
    """The model, whose special tokens no text becomes."""
    pieces = [(text, score) for text, score in model["vocab"]]
    special = {token for token, added in parsing.get_added_tokens_decoder().items() if added.special}
    kept = set(range(len(pieces))) - special
    return building.unigram_model(pieces, model.get("unk_id"), kept, model.get("byte_fallback", False))


def _decoders(tokenizer: tokenizers.Tokenizer) -> Iterator[dict[str, Any]]:
    """The steps of decoding. Supported are those that turn each token into bytes independently of its neighbours."""
    if tokenizer.decoder is None:
        raise TokenizerError("tokenizer.json has no decoder: surefoot reads " + KNOWN)
    decoder = json.loads(tokenizer.decoder.__getstate__())
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    for step in steps:
        if step["type"] not in ("ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace", "WordPiece"):
            raise TokenizerError(f"tokenizer.json decodes with {step['type']}: surefoot reads {KNOWN}")
        yield step


def _drops_first_space(decoder: Mapping[str, Any]) -> bool:
    if decoder["type"] == "Metaspace":
        return bool(decoder.get("prepend_scheme", "always") != "never")
    if decoder["type"] == "WordPiece":
        return True
    return bool(decoder["type"] == "Strip" and decoder["content"] == " " and decoder["start"] > 0)


def _vocabulary(tokenizer: tokenizers.Tokenizer, has_bytes: bool) -> Vocabulary:
    texts = {token: text for text, token in tokenizer.get_vocab(with_added_tokens=True).items()}
    added = tokenizer.get_added_tokens_decoder()
    kinds = {id_: TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED for id_, token in added.items()}
    if has_bytes:
        kinds = {token: TokenKind.BYTE for token, text in texts.items() if is_byte(text)} | kinds
    size = max(texts, default=-1) + 1
    if size > 4 * len(texts) + 1024:  # ids are indices: a stray large one must not cost memory
        raise TokenizerError(f"tokenizer.json has {len(texts)} tokens, but ids up to {size - 1}")
    return Vocabulary(
        [texts.get(token, f"[EMPTY_{token}]") for token in range(size)],
        [kinds.get(token, TokenKind.NORMAL if token in texts else TokenKind.UNUSED) for token in range(size)],
    )


def _without_special(parsing: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer, over the same model in memory, that treats special tokens as plain text."""
    plain = tokenizers.Tokenizer(parsing.model)
    added = parsing.get_added_tokens_decoder()
    plain.add_tokens([added[token] for token in sorted(added)])  # in this order they get the same ids again
    if parsing.normalizer is not None:
        plain.normalizer = parsing.normalizer
    if parsing.pre_tokenizer is not None:
        plain.pre_tokenizer = parsing.pre_tokenizer
    plain.encode_special_tokens = True
    return plain


def _special_ids(
    tokenizer: tokenizers.Tokenizer, vocabulary: Vocabulary, config: Mapping[str, Any], end_ids: Iterable[int]
) -> SpecialIds:
    bos, eos = (vocabulary.ids.get(token_text(config.get(name))) for name in ("bos_token", "eos_token"))
    before, after = _surroundings(tokenizer)
    for name, token in (("add_bos_token", bos), ("add_eos_token", eos)):
        if token is None or config.get(name) is None:
            continue
        ids = (token,) if config[name] else ()
        before, after = (ids, after) if name == "add_bos_token" else (before, ids)
    return SpecialIds(bos, eos, find_ends(vocabulary, eos) | frozenset(end_ids), before, after)


def _surroundings(tokenizer: tokenizers.Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that the tokenizer puts before and after a text."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    start = next(start for start in range(len(full) + 1) if full[start : start + len(bare)] == bare)
    return tuple(full[:start]), tuple(full[start + len(bare) :])
