"""Makes tokenizers from llama2.c's tokenizer.bin, a SentencePiece vocabulary with scores.

The file is little-endian: int32 length of the longest text; then for each id float32 score, int32 length, text.
Spaces are written as spaces. The first ids have fixed meanings, whatever their text: <unk>, BOS, EOS and the 256 bytes.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from surefoot.text import building
from surefoot.text.tokenizer import Tokenizer
from surefoot.text.vocabulary import SpecialIds, TokenizerError, TokenKind, Vocabulary

_BOS, _EOS = 1, 2
_HEADER = struct.Struct("<i")
_ENTRY = struct.Struct("<fi")
_FIRST = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
_FIRST_KINDS = [TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.CONTROL] + [TokenKind.BYTE] * 256


def tokenizer_from_llama2c(path: Path) -> Tokenizer:
    entries = list(_entries(path.read_bytes(), path.name))
    if len(entries) < len(_FIRST):
        raise TokenizerError(f"{path.name} has {len(entries)} tokens: it is not a llama2.c tokenizer, or it is cut off")
    texts = _FIRST + [text.replace(" ", building.SPACE) for _, text in entries[len(_FIRST) :]]
    vocabulary = Vocabulary(texts, _FIRST_KINDS + [TokenKind.NORMAL] * (len(entries) - len(_FIRST)))
    return Tokenizer(
        building.spaced(vocabulary, [score for score, _ in entries], space_first=True),
        building.spaced_pieces(vocabulary),
        vocabulary.of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN),
        SpecialIds(_BOS, _EOS, frozenset({_BOS, _EOS}), before=(_BOS,)),
        drops_first_space=True,
    )


def _entries(data: bytes, name: str) -> Iterator[tuple[float, str]]:
    if len(data) < _HEADER.size:
        raise TokenizerError(f"{name} is too short for a llama2.c tokenizer")
    (longest,) = _HEADER.unpack_from(data)
    position = _HEADER.size
    while position < len(data):
        if len(data) - position < _ENTRY.size:
            raise TokenizerError(f"{name} is cut off at byte {position}")
        score, length = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        if not 0 <= length <= min(longest, len(data) - position):
            raise TokenizerError(f"{name} has a token of {length} bytes at byte {position}: it is damaged or cut off")
        yield score, data[position : position + length].decode(errors="replace")
        position += length
