"""Encoding and decoding on small vocabularies; real ones are in test_llama_cpp and test_huggingface."""

import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.text import StreamDecoder, Tokenizer, TokenizerError, tokenizer_from_gguf
from surefoot.text.vocabulary import TokenKind
from tests.text import small

_MARKS = {"<|im_end|>": TokenKind.CONTROL, "<tool>": TokenKind.USER_DEFINED, "[PAD9]": TokenKind.UNUSED}
_PIECES = {
    piece: -float(rank)
    for rank, piece in enumerate(
        ["ab", "bc", "abc", "▁▁", "▁a", "aa", "▁▁▁", "aba", "ca", "bab", "cab", *"abcd▁", "▁▁▁▁", "é", "dd", "ddd"]
    )
}
BYTES = tokenizer_from_gguf(small.byte_level(["h e", "l l", "Ġ he", "he ll", "Ã ©"], _MARKS, eos_token_id=261))
SPACED = tokenizer_from_gguf(small.spaced(_PIECES, _MARKS))
_SCORES = {
    "▁": -2.0,
    "▁a": -3.0,
    "a": -4.0,
    "b": -4.0,
    "ab": -5.5,
    "▁ab": -9.0,
    "bb": -7.5,
    **dict.fromkeys("</s>im_end|", -6.0),
}
UNIGRAM = tokenizer_from_gguf(small.unigram(_SCORES, _MARKS))


def _pieces(tokenizer: Tokenizer, text: str, **options: Any) -> list[bytes]:
    return [tokenizer.token_bytes(token) for token in tokenizer.encode(text, add_special=False, **options)]


def test_byte_level_merges_in_words() -> None:
    assert _pieces(BYTES, "hello hell\n") == [b"hell", b"o", b" he", b"ll", b"\n"]
    assert _pieces(BYTES, "é€") == ["é".encode(), b"\xe2", b"\x82", b"\xac"]


def test_scores_decide_and_bytes_stand_in() -> None:
    assert _pieces(SPACED, "abcab") == [b" ", b"abc", b"ab"]
    assert _pieces(SPACED, "x€") == [b" ", b"x", b"\xe2", b"\x82", b"\xac"]


def test_the_pieces_with_the_highest_scores_together() -> None:
    assert _pieces(UNIGRAM, "ab  abb ") == [b" a", b"b", b" a", b"bb"]
    assert UNIGRAM.encode("a") == [0, 5, 2]
    assert UNIGRAM.decode(UNIGRAM.encode("a ab")) == "a ab"
    assert UNIGRAM.encode("a</s>", add_special=False, parse_special=True) == [5, 2]


def test_a_file_may_list_the_merges_of_pieces() -> None:
    listed = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.merges": ["b c", "▁ a"]}
    tokenizer = tokenizer_from_gguf(small.spaced(_PIECES, _MARKS, add_space_prefix=False) | listed)
    assert _pieces(tokenizer, "abc abcx") == [b"a", b"bc", b" a", b"bc", b"x"]


def test_control_tokens_are_encoded_only_on_request() -> None:
    for tokenizer in (BYTES, SPACED, UNIGRAM):
        end = tokenizer.encode("<|im_end|>", add_special=False, parse_special=True)
        assert [tokenizer.token_bytes(token) for token in end] == [b"<|im_end|>"]
        assert end[0] in tokenizer.special
        assert end[0] in tokenizer.ids.ends
        assert end[0] not in tokenizer.encode("a<|im_end|>b")
        assert b"<tool>" in _pieces(tokenizer, "a<tool>b")


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    """Else a server's answers would stand still meanwhile. A thread that never gets the GIL back does not count on."""
    text, num_turns, is_done = "hello hell " * 100_000, 0, threading.Event()

    def take_turns() -> None:
        nonlocal num_turns
        while not is_done.is_set():
            time.sleep(0.001)
            num_turns += 1

    thread = threading.Thread(target=take_turns)
    thread.start()
    before = num_turns
    BYTES.encode(text)
    after = num_turns
    is_done.set()
    thread.join()
    assert after - before > 10


def test_merges_of_missing_tokens_are_ignored() -> None:
    metadata = small.byte_level(["a b", "ab c"])
    clean = tokenizer_from_gguf(metadata)
    for merge in ("x y", "qq a", "a b c", "", " "):
        broken = tokenizer_from_gguf({**metadata, "tokenizer.ggml.merges": [merge, "a b", "ab c"]})
        assert broken.library.plain.to_str() == clean.library.plain.to_str()
        assert broken.encode("abc ab xy") == clean.encode("abc ab xy")


def test_text_never_merges_into_a_control_token() -> None:
    """Although "<s" and ">" are pieces, and their sum is in the vocabulary with the best score."""
    tokenizer = tokenizer_from_gguf(small.spaced({"<": -1.0, "s": -2.0, ">": -3.0, "<s": -4.0}, add_space_prefix=False))
    assert _pieces(tokenizer, "<s>") == [b"<s", b">"]
    assert tokenizer.encode("<s>", add_special=False, parse_special=True) == [1]


def test_around_a_text() -> None:
    assert SPACED.encode("") == [1]
    assert SPACED.encode("", add_special=False) == []
    both = tokenizer_from_gguf(small.spaced(_PIECES, add_eos_token=True, add_bos_token=True))
    assert (both.encode("ab")[0], both.encode("ab")[-1]) == (1, 2)
    neither = tokenizer_from_gguf(small.spaced(_PIECES, add_bos_token=False))
    assert neither.encode("") == []


def test_first_space() -> None:
    assert SPACED.decode(SPACED.encode("ab c")) == "ab c"
    assert SPACED.decode(SPACED.encode(" ab")) == " ab"
    assert SPACED.decode(SPACED.encode("ab", add_special=False), continues=True) == " ab"
    bare = tokenizer_from_gguf(small.spaced(_PIECES, add_space_prefix=False))
    assert bare.decode(bare.encode(" ab")) == " ab"


def test_decoding_invalid_utf_8() -> None:
    control, unused = BYTES.vocab_size - 3, BYTES.vocab_size - 1
    assert BYTES.decode([control, unused, BYTES.vocab_size, 10**9]) == ""
    assert BYTES.decode([control], skip_special=False) == "<|im_end|>"
    with pytest.raises(ValueError, match="-1"):
        BYTES.decode([-1])


def test_a_lone_surrogate_is_replaced() -> None:
    assert BYTES.decode(BYTES.encode("a\ud800b")) == "a\ufffdb"


def test_phi3_drops_spaces_after_special_tokens() -> None:
    metadata = small.spaced(_PIECES, {"<|end|>": TokenKind.CONTROL}) | {"general.name": "Phi-3 mini"}
    assert _pieces(tokenizer_from_gguf(metadata), "<|end|>  ab", parse_special=True) == [b"<|end|>", b" ", b"ab"]


@given(st.text())
def test_bytes_round_trip(text: str) -> None:
    replaced = text.encode("utf-8", "replace").decode().replace("▁", "_")
    assert BYTES.decode(BYTES.encode(replaced)) == replaced
    assert SPACED.decode(SPACED.encode(replaced)) == replaced


@given(st.text("abcd  ", max_size=40))
@settings(max_examples=300)
def test_merges_from_scores_follow_the_definition(text: str) -> None:
    written = "▁" + text.replace(" ", "▁") if text else ""
    expected = [piece.replace("▁", " ").encode() for piece in small.merge_by_score(written, _PIECES)]
    assert _pieces(SPACED, text) == expected


@given(st.lists(st.lists(st.integers(0, 300), max_size=4), max_size=30), st.booleans(), st.booleans())
@settings(max_examples=500)
def test_streamed_text_equals_decoded_text(chunks: list[list[int]], skip_special: bool, continues: bool) -> None:
    """Any ids in any chunks: byte tokens make every kind of broken UTF-8."""
    for tokenizer in (BYTES, SPACED):
        stream = StreamDecoder(tokenizer, skip_special=skip_special, continues=continues)
        given_out = [stream.feed(chunk) for chunk in chunks]
        whole = "".join(given_out) + stream.finish()
        ids = [token for chunk in chunks for token in chunk]
        assert whole == tokenizer.decode(ids, skip_special=skip_special, continues=continues)
        data = b"".join(
            tokenizer.token_bytes(token) for token in ids if not (skip_special and token in tokenizer.special)
        )
        if tokenizer.drops_first_space and not continues:
            data = data.removeprefix(b" ")
        assert whole == data.decode(errors="replace")


@given(st.text(min_size=1))
def test_stream_never_splits_a_character(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    stream = StreamDecoder(BYTES)
    shown = ""
    for token in BYTES.encode(text):
        shown += stream.feed([token])
        assert text.startswith(shown)
    assert shown == text
    assert stream.finish() == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": None}, "no tokenizer"),
        ({"model": "rwkv"}, "rwkv"),
        ({"pre": "unheard-of"}, "unheard-of"),
        ({"merges": None}, "merges"),
        ({"tokens": ["a", "a"], "token_type": [1, 1]}, "twice"),
        ({"tokens": ["a", "b"], "token_type": [1]}, "1 types"),
        ({"tokens": ["<0xZZ>"], "token_type": [6]}, "<0xZZ>"),
    ],
)
def test_damaged_metadata_is_refused(change: dict[str, Any], message: str) -> None:
    metadata = small.byte_level(["h e"])
    for name, value in change.items():
        metadata["tokenizer.ggml." + name] = value
    metadata = {key: value for key, value in metadata.items() if value is not None}
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_gguf(metadata)


def test_damaged_scores_are_refused() -> None:
    metadata = small.spaced(_PIECES)
    metadata["tokenizer.ggml.scores"] = [0.0]
    with pytest.raises(TokenizerError, match="scores"):
        tokenizer_from_gguf(metadata)
