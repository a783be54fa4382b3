"""Ids from tokenizer.json are transformers' ids, and the GGUF reader agrees with the models' own tokenizer.json."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from surefoot.text import Tokenizer, TokenizerError, tokenizer_from_folder, tokenizer_from_gguf, tokenizer_from_json
from surefoot.text.vocabulary import TokenKind
from tests.text import corpus
from tests.text.references import gguf_metadata, model_file, need, tokenizer_folder

pytestmark = pytest.mark.long

# Models with the name that GGUF files give their pre-tokenizer.
_PRE = {
    "llama3_2": "llama-bpe", "mistral_nemo": "tekken", "qwen2_5": "qwen2", "deepseek_v3": "deepseek-v3",
    "gpt4o": "gpt-4o",
}  # fmt: skip


def _differing(
    tokenizer: Tokenizer, reference: Callable[[str], list[int]], step: int, without: str = "", **options: bool
) -> list[str]:
    lines = corpus.lines()[::step]
    assert len(lines) == 10_000 // step
    kept = [line for line in lines if not without or without not in line]
    return [line for line in kept if tokenizer.encode(line, **options) != reference(line)]


@pytest.mark.reference
@pytest.mark.parametrize("name", ["llama3_2", "mistral_nemo", "qwen2_5", "gemma3"])
def test_a_folder_encodes_as_transformers(name: str) -> None:
    need("transformers")
    from transformers import AutoTokenizer  # noqa: PLC0415

    folder = tokenizer_folder(name)
    tokenizer = tokenizer_from_folder(folder)
    reference = AutoTokenizer.from_pretrained(folder)
    for line in corpus.lines()[::4]:
        assert tokenizer.encode(line, parse_special=True) == reference(line).input_ids
    assert tokenizer.ids.bos == reference.bos_token_id
    assert tokenizer.ids.eos == reference.eos_token_id
    assert tokenizer.vocab_size == len(reference)
    for line in corpus.lines()[::40]:
        ids = tokenizer.encode(line)
        assert tokenizer.decode(ids) == reference.decode(ids, skip_special_tokens=True)


@pytest.mark.reference
@pytest.mark.parametrize("step", corpus.STEPS)
@pytest.mark.parametrize("name", _PRE)
def test_gguf_encodes_as_the_models_tokenizer(name: str, step: int) -> None:
    source = (tokenizer_folder(name) / "tokenizer.json").read_text()
    tokenizer = tokenizer_from_gguf(_as_gguf(json.loads(source), _PRE[name]))
    reference = tokenizers.Tokenizer.from_str(source)
    options = {"add_special": False, "parse_special": True}

    def encode(line: str) -> list[int]:
        ids: list[int] = reference.encode(line, add_special_tokens=False).ids
        return ids

    assert _differing(tokenizer, encode, step, **options) == []


@pytest.mark.reference
@pytest.mark.parametrize("step", corpus.STEPS)
@pytest.mark.parametrize(("file", "folder"), [("qwen", "qwen2_5"), ("gemma3", "gemma3")])
def test_real_gguf_files_encode_as_the_models_tokenizer(file: str, folder: str, step: int) -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(model_file(file)))
    reference = tokenizer_from_folder(tokenizer_folder(folder))
    # GGUF's user-defined tokens do not distinguish U+2581 from a space.
    without = "▁" if file == "gemma3" else ""
    assert _differing(tokenizer, reference.encode, step, without) == []


def _as_gguf(source: dict[str, Any], pre: str) -> dict[str, Any]:
    """The keys that a converter would write for a byte-level tokenizer.json."""
    texts = {token: text for text, token in source["model"]["vocab"].items()}
    kinds = {}
    for added in source["added_tokens"]:
        texts[added["id"]] = added["content"]
        kinds[added["id"]] = TokenKind.CONTROL if added["special"] else TokenKind.USER_DEFINED
    size = max(texts) + 1
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in source["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [texts.get(token, f"[PAD{token}]") for token in range(size)],
        "tokenizer.ggml.token_type": [
            int(kinds.get(token, TokenKind.NORMAL if token in texts else TokenKind.UNUSED)) for token in range(size)
        ],
        "tokenizer.ggml.merges": merges,
    }


@cache
def _small_byte_level() -> str:
    vocabulary = {letter: token for token, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {"he": 256, "ll": 257, "hell": 258}
    built = tokenizers.Tokenizer(models.BPE(vocabulary, [("h", "e"), ("l", "l"), ("he", "ll")]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(["<bos>", AddedToken("<end>", lstrip=True)])
    built.add_tokens([AddedToken("<tool>", normalized=False)])
    built.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", 259)])
    built.enable_truncation(4)
    return built.to_str()


@cache
def _small_spaced() -> str:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abc", "ab", "▁ab"]
    model = models.BPE(
        {piece: token for token, piece in enumerate(pieces)},
        [("a", "b"), ("▁", "ab")],
        unk_token="<unk>",
        byte_fallback=True,
    )
    built = tokenizers.Tokenizer(model)
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    built.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    built.add_special_tokens(["<unk>"])
    return built.to_str()


def test_small_byte_level() -> None:
    tokenizer = tokenizer_from_json(_small_byte_level(), {"eos_token": {"content": "<end>"}, "bos_token": "<bos>"})
    assert (tokenizer.ids.bos, tokenizer.ids.eos, tokenizer.ids.before) == (259, 260, (259,))
    assert tokenizer.ids.ends == {260}
    assert tokenizer.special == {259, 260}
    long = "hell hell hell hell"  # beyond the file's truncation
    assert tokenizer.decode(tokenizer.encode(long)) == long
    ids = tokenizer.encode("hell  <end><tool>", add_special=False, parse_special=True)
    assert ids == [258, 260, 261]
    assert tokenizer.decode(ids) == "hell<tool>"
    plain = tokenizer.encode("hell <end><tool>", add_special=False)
    assert 260 not in plain
    assert plain[-1] == 261
    assert tokenizer.decode(plain) == "hell <end><tool>"


def test_small_spaced() -> None:
    tokenizer = tokenizer_from_json(_small_spaced(), end_ids=[7])
    assert tokenizer.drops_first_space
    assert 7 in tokenizer.ids.ends
    assert [tokenizer.token_bytes(token) for token in tokenizer.encode("ab aé")] == [
        b" ab",
        b" ",
        b"a",
        b"\xc3",
        b"\xa9",
    ]
    assert tokenizer.decode(tokenizer.encode("ab aé")) == "ab aé"


def test_small_unigram() -> None:
    """No text becomes a control token, although the file gives it the highest score."""
    pieces = [
        ("<s>", 0.0),
        ("</s>", 0.0),
        ("<unk>", 0.0),
        ("▁", -2.0),
        ("▁a", -3.0),
        *((text, -5.0) for text in "ab</s>"),
    ]
    built = tokenizers.Tokenizer(models.Unigram(pieces, 2))
    built.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    built.decoder = decoders.Metaspace(prepend_scheme="always")
    built.add_special_tokens(["<s>", "</s>"])
    tokenizer = tokenizer_from_json(built.to_str())
    assert tokenizer.encode("a b", add_special=False) == built.encode("a b").ids == [4, 3, 6]
    assert 1 not in tokenizer.encode("a</s>")
    assert tokenizer.decode(tokenizer.encode("a</s>")) == "a</s>"
    assert tokenizer.encode("a</s>", parse_special=True) == [4, 1]


def test_the_config_decides_about_bos() -> None:
    tokens = {"bos_token": "<bos>", "eos_token": "<end>"}
    without = tokenizer_from_json(_small_byte_level(), {**tokens, "add_bos_token": False, "add_eos_token": True})
    assert (without.ids.before, without.ids.after) == ((), (260,))


def test_ids_with_gaps() -> None:
    source = json.loads(_small_byte_level())
    source["model"]["vocab"]["hell"] = 300
    tokenizer = tokenizer_from_json(json.dumps(source))
    assert tokenizer.encode("hell", add_special=False) == [300]
    assert tokenizer.vocab_size == 301
    assert tokenizer.token_bytes(280) == b""
    for options in ({}, {"parse_special": True}):
        assert tokenizer.decode(tokenizer.encode("hell<tool>", **options)) == "hell<tool>"


def _changed(change: Callable[[dict[str, Any]], Any]) -> str:
    source = json.loads(_small_byte_level())
    change(source)
    return json.dumps(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        (_changed(lambda source: source.pop("decoder")), "no decoder"),
        (_changed(lambda source: source.update(decoder={"type": "BPEDecoder", "suffix": "</w>"})), "BPEDecoder"),
        (_changed(lambda source: source["model"]["vocab"].update(hell=10**8)), "ids up to"),
    ],
)
def test_unsupported_tokenizers_are_refused(source: str, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_json(source)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(_small_byte_level())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert tokenizer_from_folder(tmp_path).ids.ends == {5}
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(TokenizerError, match="not JSON"):
        tokenizer_from_folder(tmp_path)
