"""Tries grammars in a separate program, which can be killed: some small schemas would never finish.

It imports only the standard library and llguidance. Each frame is a length of four bytes and UTF-8. The first frame is
the vocabulary, the bytes of each token as hexadecimal digits; the answer is an empty frame. After that, each frame is a
grammar, and its answer says what is wrong with it: nothing if it can be used.
"""

import json
import os
import resource
import struct
import sys
from typing import IO

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

LENGTH = struct.Struct(">I")
MAX_FORCED_BYTES = 8192
FORCES_TOO_MUCH = f"it leaves no choice about more than {MAX_FORCED_BYTES} bytes at once: make it smaller"
# Limits on counts of work, below llguidance's defaults: whether a grammar stays within them does not depend on the
# machine. One mask of the worst known grammar within them (tests/sampling/grammar_corpus.py) takes a third of a second.
LEXER_FUEL = 300_000
LEXER_STATES = 50_000
ROW_ITEMS = 1000
STEP_ITEMS = 20_000
YIELDING = 10  # this program's priority: answers that are being generated come first


def limits() -> LLParserLimits:
    return LLParserLimits(
        initial_lexer_fuel=LEXER_FUEL,
        max_lexer_states=LEXER_STATES,
        max_items_in_row=ROW_ITEMS,
        step_max_items=STEP_ITEMS,
        verbose_errors=False,
    )


def check_forced(text: bytes) -> None:
    """Refuses a long forced text, which would be encoded again at each token. An error here becomes the matcher's."""
    if len(text) > MAX_FORCED_BYTES:
        raise ValueError(FORCES_TOO_MUCH)


def send(stream: IO[bytes], text: str) -> None:
    data = text.encode(errors="replace")
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> str | None:
    """The next text; None at the end of the stream."""
    header = stream.read(LENGTH.size)
    return stream.read(*LENGTH.unpack(header)).decode() if header else None


class ByteTokenizer:
    """As much of a tokenizer as llguidance needs here. It encodes byte by byte: which tokens a text has does not
    matter."""

    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()

    def __init__(self, pieces: list[bytes]) -> None:
        self.tokens = pieces
        self.eos_token_id = len(pieces) - 1
        self._bytes = {piece[0]: token for token, piece in enumerate(pieces) if len(piece) == 1}

    def __call__(self, text: bytes) -> list[int]:
        check_forced(text)
        return [self._bytes[byte] for byte in text if byte in self._bytes]


def complaint(tokenizer: LLTokenizer, grammar: str) -> str:
    """What is wrong with the grammar; empty if nothing is."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
    if not matcher.is_error():
        matcher.compute_bitmask()
    return (matcher.get_error() or "it cannot be used")[:1000] if matcher.is_error() else ""


def main(memory_bytes: int) -> None:
    os.nice(YIELDING)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    vocabulary = ByteTokenizer([bytes.fromhex(piece) for piece in json.loads(receive(source) or "[]")] + [b"<end>"])
    tokenizer = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens))
    send(target, "")
    while (grammar := receive(source)) is not None:
        send(target, complaint(tokenizer, grammar))


if __name__ == "__main__":
    main(int(sys.argv[1]))
