"""Encodes text to token ids and decodes it. Its vocabulary comes from a reader (gguf, huggingface, llama2c)."""

import codecs
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import tokenizers

from surefoot.text.fim import FimTokens
from surefoot.text.shield import MARK, Shield, shielded
from surefoot.text.vocabulary import SpecialIds

_SURROGATES = re.compile("[\ud800-\udfff]")
# Read by `tokenizers` when it is first used: a batch is encoded by the thread that calls, whose priority then counts.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


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
