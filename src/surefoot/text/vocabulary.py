"""A vocabulary as plain data: the text and kind of each id, and the special ids. Errors of this package."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from string import hexdigits
from typing import Any


class TokenizerError(ValueError):
    """A tokenizer's file or metadata cannot be used."""


class ChatTemplateError(ValueError):
    """A chat template is unusable or refused the conversation."""


class TokenKind(IntEnum):
    """The kind of a token, with the numbers of GGUF's tokenizer.ggml.token_type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # encoded from text only if the caller asks for it
    USER_DEFINED = 4  # text that is cut out before merging
    UNUSED = 5
    BYTE = 6  # <0x00> to <0xFF>


@dataclass(frozen=True)
class Vocabulary:
    """The text and kind of each id. Texts are unique."""

    texts: Sequence[str]  # by id
    kinds: Sequence[int]  # by id, of TokenKind

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.texts):
            twice = next(text for token, text in enumerate(self.texts) if self.ids[text] != token)
            raise TokenizerError(f"The vocabulary has {twice!r} twice: the file is damaged")

    @cached_property
    def ids(self) -> dict[str, int]:
        return {text: token for token, text in enumerate(self.texts)}

    def of_kind(self, *kinds: TokenKind) -> frozenset[int]:
        return frozenset(token for token, kind in enumerate(self.kinds) if kind in kinds)


# Tokens that end an answer, whatever the file says about them. (Not </s>, which is an HTML tag in Qwen's and Gemma's
# vocabularies: it ends an answer only if it is marked as a control token.)
END_TEXTS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "[e~[",
})  # fmt: skip
# Tokens that end the file that a code model completes: of each group, the first that the vocabulary has.
_FILE_ENDS = (
    ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("<|file_sep|>",),
)


@dataclass(frozen=True)
class SpecialIds:
    """The ids with a special meaning."""

    bos: int | None = None  # begins a text
    eos: int | None = None  # ends a text
    ends: frozenset[int] = frozenset()  # all that end an answer, `eos` among them
    before: tuple[int, ...] = ()  # put before a whole text
    after: tuple[int, ...] = ()  # put after a whole text


def find_ends(vocabulary: Vocabulary, eos: int | None) -> frozenset[int]:
    ids = vocabulary.ids
    ends = {ids[text] for text in END_TEXTS & ids.keys()}
    for group in _FILE_ENDS:
        ends |= {ids[text] for text in [text for text in group if text in ids][:1]}
    if "</s>" in ids and vocabulary.kinds[ids["</s>"]] == TokenKind.CONTROL:
        ends.add(ids["</s>"])
    if eos is not None:
        ends.add(eos)
    # Harmony's <|end|> ends a message, not the answer.
    if "<|end|>" in ids and ({"<|return|>", "<|call|>"} <= ids.keys() or {"<|flush|>", "<|calls|>"} <= ids.keys()):
        ends.discard(ids["<|end|>"])
    return frozenset(ends)


def token_text(token: Any) -> str:
    """The text of a token in tokenizer_config.json, which is a string or an object."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def is_byte(text: str) -> bool:
    """Whether the text is <0xHH>, which stands for a byte where a vocabulary has such tokens."""
    return len(text) == 6 and text.startswith("<0x") and text.endswith(">") and set(text[3:5]) <= set(hexdigits)


def byte_of(text: str) -> bytes:
    if not is_byte(text):
        raise TokenizerError(f"{text!r} is marked as a byte, but is not written as one: the file is damaged")
    return bytes([int(text[3:5], 16)])


def _byte_alphabet() -> dict[int, str]:
    """Byte-level BPE writes each byte as one visible character: itself if printable, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()
_FROM_ALPHABET = {ord(character): byte for byte, character in _ALPHABET.items()}


def byte_level_text(piece: bytes) -> str:
    """The text of the byte-level token that stands for these bytes."""
    return piece.decode("latin-1").translate(_ALPHABET)


def byte_level_piece(text: str) -> bytes:
    """The bytes a byte-level token stands for."""
    try:
        return text.translate(_FROM_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:  # not written in the alphabet: text as it is
        return text.encode()


def spaced_piece(text: str) -> bytes:
    """The bytes a SentencePiece token stands for: U+2581 is its space."""
    return text.replace("▁", " ").encode()
