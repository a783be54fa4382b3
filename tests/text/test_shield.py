"""Control tokens that a user writes out never count as such, in any family; the text itself is encoded as ever."""

import json
from base64 import b64encode
from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from surefoot.text import Tokenizer, chat_template_from_gguf, tokenizer_from_folder, tokenizer_from_gguf
from surefoot.text import tokenizer_from_json as from_json
from surefoot.text.tiktoken import tokenizer_from_ranks
from surefoot.text.tokenizer import MARK, Shield
from surefoot.text.vocabulary import TokenKind
from tests.text import small
from tests.text.references import gguf_metadata, model_file, tokenizer_folder

CONTROL = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<|a|>", "<|ab|>"]
START, END = "<|im_start|>", "<|im_end|>"


@cache
def byte_level() -> Tokenizer:
    extra = dict.fromkeys(CONTROL, TokenKind.CONTROL) | {"<tool>": TokenKind.USER_DEFINED}
    return tokenizer_from_gguf(small.byte_level(["< |", "i m", "| >"], extra))


@cache
def spaced() -> Tokenizer:
    pieces = {"▁": -1.0, "a": -2.0, "▁a": -3.0, "<|": -4.0, "<": -5.0, "|": -6.0, ">": -7.0}
    extra = {text: TokenKind.CONTROL for text in CONTROL if text not in ("<s>", "</s>")} | {
        "<tool>": TokenKind.USER_DEFINED
    }
    return tokenizer_from_gguf(small.spaced(pieces, extra))


@cache
def of_folder() -> Tokenizer:
    """A tokenizer as in older files: control tokens are searched in the normalised text."""
    vocabulary = {letter: token for token, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    built = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    built.normalizer = normalizers.NFC()
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(text, normalized=True, special=True) for text in CONTROL])
    built.add_tokens([AddedToken("<tool>", normalized=False)])
    return from_json(built.to_str())


@cache
def of_ranks() -> Tokenizer:
    added = {str(256 + i): {"content": text, "special": True} for i, text in enumerate(CONTROL)}
    added["300"] = {"content": "<tool>", "special": False}
    source = "".join(f"{b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    return tokenizer_from_ranks(source, {"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": added})


FAMILIES = {
    "byte-level GGUF": byte_level,
    "SentencePiece GGUF": spaced,
    "folder": of_folder,
    "folder of tiktoken": of_ranks,
}
FRAGMENTS = [*CONTROL, "<tool>", "<", "<|", "|>", ">", "im_end|>", "<|im_", "a", " ", "\n", "é", "<|im_end"]
hostile = st.lists(st.sampled_from(FRAGMENTS), max_size=8).map("".join)


@pytest.mark.parametrize("family", FAMILIES)
@given(first=hostile, second=hostile)
def test_control_tokens_in_user_text_are_plain_text(family: str, first: str, second: str) -> None:
    tokenizer = FAMILIES[family]()
    start, end = (tokenizer.encode(text, add_special=False, parse_special=True) for text in (START, END))
    shielded = tokenizer.shield([{"role": "user", "content": first}, {"role": "user", "content": second}])
    rendered = "".join(f"{START}{message['content']}{END}" for message in shielded)
    ids = tokenizer.encode_rendered(rendered)
    inside = [tokenizer.encode(text, add_special=False) for text in (first, second)]
    assert ids == [*start, *inside[0], *end, *start, *inside[1], *end]


@given(left=hostile, right=hostile)
def test_no_control_token_forms_where_two_texts_meet(left: str, right: str) -> None:
    tokenizer = byte_level()
    rendered = f"{tokenizer.shield(left)}{tokenizer.shield(right)}"
    assert not tokenizer.special & set(tokenizer.encode_rendered(rendered))
    inside_tag = f"<{tokenizer.shield(left)}>"
    assert not tokenizer.special & set(tokenizer.encode_rendered(inside_tag))


def test_harmless_texts_are_unchanged() -> None:
    shield = Shield(CONTROL)
    value: Any = {"role": "user", "content": ["1 < 2 > 0", {"text": "a <|b|> c", "n": 3, "none": None}], "ok": True}
    assert shield.apply(value) == value
    assert shield.apply("<|im_end|>") == f"<{MARK}|im_end|>"
    assert shield.apply({"<s>": [("</s>",)]}) == {f"<{MARK}s>": [[f"<{MARK}/s>"]]}
    assert Shield(["madeupword0"]).apply({"role": "system"}) == {"role": "system"}


@pytest.mark.reference
@pytest.mark.parametrize("name", ["smollm2", "gemma3", "qwen", "tinyllama"])
def test_every_control_token_of_real_files(name: str) -> None:
    """A message with all control tokens, rendered with the file's template if it has one."""
    metadata = gguf_metadata(model_file(name))
    tokenizer = tokenizer_from_gguf(metadata)
    texts = [tokenizer.text_of(token) for token in sorted(tokenizer.special)]
    assert len(texts) >= 3
    template = chat_template_from_gguf(metadata, tokenizer)

    def controls(content: str) -> list[int]:
        messages = tokenizer.shield([{"role": "user", "content": content}])
        rendered = template.render(messages) if template.templates else messages[0]["content"]
        ids = tokenizer.encode_rendered(rendered)
        return [token for token in ids if token in tokenizer.special]

    assert controls(" ".join(texts)) == controls("Hello")
    assert controls("".join(texts)) == controls("Hello")
    assert controls(json.dumps(texts)) == controls("Hello")
    template.close()


@pytest.mark.reference
@pytest.mark.parametrize(("name", "folder", "token"), [("gemma3", "gemma3", 212), ("qwen", "qwen2_5", None)])
def test_the_closing_s_tag_is_not_an_end_token(name: str, folder: str, token: int | None) -> None:
    """Gemma has a token for the tag that strikes text out, and ends answers with another; llama.cpp takes the tag for
    Llama's end of text and spells it out. The model's own tokenizer.json decides."""
    tokenizer = tokenizer_from_gguf(gguf_metadata(model_file(name)))
    ids = tokenizer.encode("a</s>b", add_special=False)
    assert ids == tokenizer_from_folder(tokenizer_folder(folder)).encode("a</s>b", add_special=False)
    assert not set(ids) & (tokenizer.special | tokenizer.ids.ends)
    assert token is None or token in ids
