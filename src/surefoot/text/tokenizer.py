"""Encodes text to token ids, decodes it, and shields control tokens in it. The vocabulary comes from a reader (gguf,
huggingface)."""

import codecs
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import tokenizers
from tokenizers import AddedToken, normalizers

from surefoot.text.fim import FimTokens
from surefoot.text.vocabulary import SpecialIds

MARK = "\ufdd0\ufdef"  # two noncharacters of Unicode: they occur in no ordinary text
_SURROGATES = re.compile("[\ud800-\udfff]")
# Read by `tokenizers` when it is first used: a batch is encoded by the thread that calls, whose priority then counts.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Shield:
    """Keeps control tokens that a user writes out, such as `<|im_end|>`, from taking effect in a rendered conversation.

    A chat template mixes its own control tokens with the user's text, and its output is parsed for control tokens as a
    whole. So before rendering, the given texts are broken up by a mark wherever they occur in the user's data, or could
    be completed at its start or end. Parsing then finds only the template's own tokens, and the marks are removed
    before the rest is encoded (`shielded`).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if len(text) > 1)

    def apply(self, value: Any) -> Any:
        """Plain data with all texts shielded, including keys."""
        if isinstance(value, str):
            return self._shield(value)
        if isinstance(value, Mapping):
            return {self.apply(key): self.apply(member) for key, member in value.items()}
        return [self.apply(member) for member in value] if isinstance(value, list | tuple) else value

    def _shield(self, text: str) -> str:
        inside = self._starts.sub(self._broken, text) if self._texts else text
        before = MARK if any(text[:length] in self._suffixes for length in self._lengths) else ""
        after = MARK if any(text[-length:] in self._prefixes for length in self._lengths) else ""
        return before + inside + after

    def _broken(self, start: re.Match[str]) -> str:
        """The first two characters of a control token, with a mark between them if the rest of the token follows."""
        text, position = start.string, start.start()
        lengths = self._lengths_by_start[start[0]]
        is_token = any(text[position : position + length] in self._texts for length in lengths)
        return start[0][0] + MARK + start[0][1:] if is_token else start[0]

    @cached_property
    def _lengths_by_start(self) -> dict[str, list[int]]:
        """Lengths of the texts by their first two characters. There may be thousands of texts, most with the same
        start."""
        return {
            start: sorted({len(text) for text in self._texts if text.startswith(start)})
            for start in {text[:2] for text in self._texts}
        }

    @cached_property
    def _starts(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(start) for start in sorted(self._lengths_by_start)))

    @cached_property
    def _prefixes(self) -> frozenset[str]:
        """Proper prefixes of the texts, except of those that begin with a letter or digit: a word such as a role's name
        must reach the template unchanged."""
        texts = [text for text in self._texts if not text[0].isalnum()]
        return frozenset(text[:length] for text in texts for length in range(1, len(text)))

    @cached_property
    def _suffixes(self) -> frozenset[str]:
        texts = [text for text in self._texts if not text[-1].isalnum()]
        return frozenset(text[-length:] for text in texts for length in range(1, len(text)))

    @cached_property
    def _lengths(self) -> range:
        return range(1, max(map(len, self._texts), default=1))


def without_marks(text: str) -> str:
    return text.replace(MARK, "")


def shielded(parsing: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer over the same model, that cuts out control tokens first and then removes the marks."""
    shielding = tokenizers.Tokenizer(parsing.model)
    added = parsing.get_added_tokens_decoder()
    shielding.add_tokens(
        [_as_written(added[token]) for token in sorted(added)]
    )  # in this order they get the same ids again
    normalizer = [] if parsing.normalizer is None else [parsing.normalizer]
    shielding.normalizer = normalizers.Sequence([normalizers.Replace(MARK, ""), *normalizer])
    if parsing.pre_tokenizer is not None:
        shielding.pre_tokenizer = parsing.pre_tokenizer
    return shielding


def _as_written(token: AddedToken) -> AddedToken:
    """The token, matched in the text as written: control tokens are found before the marks are removed."""
    if not token.special:
        return token
    return AddedToken(
        token.content, single_word=token.single_word, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False,
        special=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Library:
    """Several `tokenizers` objects over one model: which tokens are cut out before merging is fixed per object."""

    plain: tokenizers.Tokenizer  # cuts out user-defined tokens
    parsing: tokenizers.Tokenizer  # cuts out control tokens too

    @cached_property
    def shielded(self) -> tokenizers.Tokenizer:
        """Same as `parsing`, for texts with a shield's marks in them."""
        return shielded(self.parsing)


@dataclass(frozen=True)
class Tokenizer:
    """A model's tokenizer. Decoding joins the bytes of ids, all at once or in a stream."""

    library: Library  # encodes
    pieces: tuple[bytes, ...]  # the bytes of every id
    special: frozenset[int]  # control tokens, which are no part of the text
    ids: SpecialIds  # with a special meaning
    drops_first_space: bool = False  # encoding puts a space before a text, and decoding removes it
    fim: FimTokens | None = None  # of a model with fill-in-the-middle

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @property
    def before(self) -> tuple[int, ...]:
        """Ids that a prompt begins with."""
        return self.ids.before

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text. `add_special` adds the ids that the model expects around a whole text, such as BOS.
        `parse_special` makes control tokens written out in the text count as such: for rendered chat templates, never
        for a user's text."""
        encoder = self.library.parsing if parse_special else self.library.plain
        ids = _encode(encoder, text)
        return [*self.ids.before, *ids, *self.ids.after] if add_special else ids

    def encode_rendered(self, text: str) -> list[int]:
        """The ids of a prompt that a chat template rendered from shielded messages."""
        return _encode(self.library.shielded if MARK in text else self.library.parsing, text)

    def shield(self, value: Any) -> Any:
        """Messages, tools or other plain data, with control tokens written out in them broken up, so that none takes
        effect once a chat template has rendered them."""
        return self._shield.apply(value)

    @cached_property
    def _shield(self) -> Shield:
        return Shield(self.token_bytes(token).decode(errors="replace") for token in self.special)

    def token_bytes(self, token: int) -> bytes:
        """The bytes of an id; none for ids beyond the vocabulary, which padded models may produce."""
        if token < 0:
            raise ValueError(f"There is no token {token}")
        return self.pieces[token] if token < len(self.pieces) else b""

    def decode(self, ids: Sequence[int], *, skip_special: bool = True, continues: bool = False) -> str:
        """The text of ids. Bytes that are not UTF-8 become U+FFFD. With `continues` the ids follow others, so a first
        space stays."""
        stream = StreamDecoder(self, skip_special=skip_special, continues=continues)
        return stream.feed(ids) + stream.finish()

    def text_of(self, token: int | None) -> str:
        """The text of a special token, for chat templates; empty for None."""
        return "" if token is None else self.token_bytes(token).decode(errors="replace")


def _encode(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        return _encode_alone(encoder, text)
    except (TypeError, UnicodeEncodeError):  # half a surrogate pair, which JSON may contain
        return _encode_alone(encoder, _SURROGATES.sub("\ufffd", text))


def _encode_alone(encoder: tokenizers.Tokenizer, text: str) -> list[int]:
    """As a batch of one: unlike `encode`, this releases the GIL, and computes no offsets."""
    (encoding,) = encoder.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids


class StreamDecoder:
    """Decodes ids as they arrive. Text is final once returned: a character is returned with its last byte, and all
    pieces joined equal `decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, continues: bool = False) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special if skip_special else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = tokenizer.drops_first_space and not continues

    def feed(self, ids: Iterable[int]) -> str:
        piece = b"".join(self._tokenizer.token_bytes(token) for token in map(index, ids) if token not in self._skipped)
        if self._drop_space and piece:
            piece = piece.removeprefix(b" ")
            self._drop_space = False
        return self._utf8.decode(piece)

    def finish(self) -> str:
        """U+FFFD if the last character is incomplete, else nothing."""
        return self._utf8.decode(b"", final=True)
