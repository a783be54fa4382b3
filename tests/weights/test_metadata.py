"""One schema of bounds, and shapes that are checked before anything is built. Each case is a real model
with one thing wrong, and the sentence says which."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import models
from surefoot.models import FAMILIES, LLAMAS, load, read_config
from surefoot.ops import Backend
from surefoot.weights import HuggingFaceCheckpoint, MetadataError, open_checkpoint
from surefoot.weights.metadata import CONFIG_RULES, GGUF_RULES, check_config
from tests.stories import stories_gguf
from tests.weights.mutations import GgufParts, put_together, take_apart

U32, F32, STRING = 4, 6, 8


def changed(tmp_path: Path, change: Callable[[GgufParts], None]) -> Path:
    parts = take_apart(stories_gguf().read_bytes())
    change(parts)
    (tmp_path / "model.gguf").write_bytes(put_together(parts))
    return tmp_path / "model.gguf"


def load_gguf(path: Path) -> None:
    load(Backend(threads=1), open_checkpoint(path))


def set_value(key: str, kind: int, value: bytes) -> Callable[[GgufParts], None]:
    def change(parts: GgufParts) -> None:
        (pair,) = [pair for pair in parts.pairs if pair[0] == key.encode()]
        pair[1:] = [kind, value]

    return change


HUGE, ZERO = struct.pack("<I", 1 << 31), struct.pack("<I", 0)
WRONG_VALUES = [
    *[(key, U32, value) for value in (HUGE, ZERO) for key in (
        "llama.block_count", "llama.attention.head_count", "llama.attention.head_count_kv", "llama.context_length",
        "llama.attention.key_length", "llama.rope.dimension_count", "llama.embedding_length",
    )],
    ("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", float("nan"))),
    ("llama.embedding_length", STRING, struct.pack("<Q", 1) + b"a"),
    ("tokenizer.ggml.tokens", U32, ZERO),
]  # fmt: skip


@pytest.mark.parametrize(("key", "kind", "value"), WRONG_VALUES)
def test_values_out_of_bounds_name_the_field(tmp_path: Path, key: str, kind: int, value: bytes) -> None:
    with pytest.raises(MetadataError, match=f"model.gguf: {key} says .*, where .* is allowed"):
        load_gguf(changed(tmp_path, set_value(key, kind, value)))


def number(key: str, value: int) -> Callable[[GgufParts], None]:
    return set_value(f"llama.{key}", U32, struct.pack("<I", value))


def remove(name: bytes) -> Callable[[GgufParts], None]:
    def change(parts: GgufParts) -> None:
        parts.tensors = [tensor for tensor in parts.tensors if tensor[0] != name]

    return change


def reshape(parts: GgufParts) -> None:
    next(tensor for tensor in parts.tensors if tensor[0] == b"blk.1.attn_q.weight")[1].reverse()


DISAGREEING: dict[str, tuple[Callable[[GgufParts], None], str]] = {
    "more layers": (number("block_count", 6), "say 6 layers, and the file has tensors of 5"),
    "fewer layers": (number("block_count", 4), "say 4 layers"),
    "wider": (number("embedding_length", 128), r"token_embd.weight has shape \(512, 64\)"),
    "more heads": (number("attention.head_count", 16), "attn_q.weight has shape"),
    "heads that do not divide": (number("attention.head_count_kv", 3), "a multiple"),
    "odd lanes": (number("attention.key_length", 24), "a multiple of 16"),
    "lanes that rotate": (number("rope.dimension_count", 32), "32 lanes of a head rotate"),
    "feed-forward": (number("feed_forward_length", 100), "ffn_gate.weight has shape"),
    "a tensor is missing": (remove(b"blk.2.ffn_up.weight"), "no tensor blk.2.ffn_up.weight"),
    "no embeddings": (remove(b"token_embd.weight"), "no tensor token_embd.weight"),
    "transposed": (reshape, r"blk.1.attn_q.weight has shape"),
}


@pytest.mark.parametrize("case", DISAGREEING)
def test_metadata_and_tensors_must_agree(tmp_path: Path, case: str) -> None:
    change, message = DISAGREEING[case]
    with pytest.raises(MetadataError, match=message):
        load_gguf(changed(tmp_path, change))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", [b"blk.0.attn_norm.weight", b"output_norm.weight", b"blk.3.ffn_down.weight"])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, name: bytes, value: float) -> None:
    def change(parts: GgufParts) -> None:
        (tensor,) = [tensor for tensor in parts.tensors if tensor[0] == name]
        tensor[3] = struct.pack("<f", value) + tensor[3][4:]

    with pytest.raises(ValueError, match=f"{name.decode()}.* infinite or not a number"):
        load_gguf(changed(tmp_path, change))


def test_the_unchanged_file_loads(tmp_path: Path) -> None:
    load_gguf(changed(tmp_path, lambda parts: None))


# ---- config.json ----

CONFIG: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
}  # fmt: skip


@pytest.mark.parametrize("key", [key for key in CONFIG if key not in ("model_type", "rms_norm_eps")])
@pytest.mark.parametrize("value", [1 << 31, 0, -1, 1.5, float("nan"), "a", [], True])
def test_fields_of_config_json_have_bounds(key: str, value: Any) -> None:
    with pytest.raises(MetadataError, match=f"{key} says"):
        HuggingFaceCheckpoint({**CONFIG, key: value}, {})


@pytest.mark.parametrize("key", [key for key in CONFIG if key != "num_key_value_heads"])  # as many as heads
def test_fields_of_config_json_must_be_there(key: str) -> None:
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(MetadataError, match=f"config.json has no {key}"):
        read_config(HuggingFaceCheckpoint(config, {}))


def test_fields_inside_of_objects_have_bounds() -> None:
    for key, value in {
        "rope_scaling": {"rope_type": "yarn", "factor": 0},
        "rope_parameters": {"full_attention": {"rope_theta": float("inf")}},
        "text_config": {"num_hidden_layers": 1 << 31},
        "quantization_config": {"bits": "four"},
        "layer_types": ["sliding_attention", "another"],
    }.items():
        with pytest.raises(MetadataError):
            check_config({**CONFIG, key: value})
    check_config({**CONFIG, "rope_scaling": None, "version": 3, "type": 4})  # names that mean something only inside


def test_folders_with_other_things_in_place_of_config(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    for text in ("[" * 100_000, json.dumps([1]), '{"model_type": 3}', "{"):
        config.write_text(text)
        with pytest.raises(ValueError, match=r"config\.json|model_type"):
            open_checkpoint(tmp_path)
    config.unlink()
    config.symlink_to("/dev/zero")
    with pytest.raises(ValueError, match="outside of the model's folder"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in LLAMAS])
def test_every_field_that_a_family_reads_has_a_rule(family: str) -> None:
    """Every literal name with which the sources read metadata is in the table."""
    folder = Path(models.__file__).parent
    source = "".join((folder / f"{name}.py").read_text() for name in (family, "hf_config"))
    asked = set(re.findall(r'(?:given|config|hf|rope|metadata)\.get\("(\w+)"', source)) | set(
        re.findall(r'need\((?:given|config|hf|rope), "(\w+)"\)', source)
    )
    known = {key.rpartition("/")[2] for key in CONFIG_RULES}
    assert asked - known == set()
    read = set(re.findall(r'gguf\.(?:get|need)\("([\w.]+)"', source))
    assert read - GGUF_RULES.keys() == set()
