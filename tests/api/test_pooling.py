"""Poolings that a model's files name, and vectors by them, beside transformers' hidden states."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM
from surefoot.api.opening import open_model
from surefoot.api.pooling import PoolingConfig, find_pooling, unit
from surefoot.core import Pooling
from surefoot.ops import KvForm
from tests.api import pooled
from tests.stories import stories_gguf

EXACT: dict[str, Any] = {"threads": 2, "float_format": "f32", "kv_form": KvForm.TWO_LIMBS}
TEXTS = ["A cat sleeps.", "x", "The kitten is asleep, and nobody wakes it. " * 7, "", "yes and no"]


class FakeFile:
    def __init__(self, **metadata: Any) -> None:
        own = {key if key.startswith("general") else f"qwen3.{key}": value for key, value in metadata.items()}
        self.metadata, self.tensors = {"general.architecture": "qwen3", **own}, dict[str, Any]()


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (None, None),
        (0, None),
        (1, PoolingConfig(Pooling.MEAN, normalizes=True)),
        (2, PoolingConfig(Pooling.FIRST, normalizes=True)),
        (3, PoolingConfig(Pooling.LAST, normalizes=True)),
        (4, PoolingConfig(Pooling.LAST, ranks=True)),
    ],
)
def test_ggufs_key(number: int | None, wanted: PoolingConfig | None) -> None:
    file = FakeFile(**({} if number is None else {"pooling_type": number}))
    assert find_pooling(Path("a.gguf"), file) == wanted  # type: ignore[arg-type]


def test_what_is_not_supported_is_named() -> None:
    for metadata, words in (({"pooling_type": 9}, "pooling type 9"), ({"attention.causal": False}, "bidirectional")):
        with pytest.raises(ValueError, match=words):
            find_pooling(Path("a.gguf"), FakeFile(**metadata))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mean, cls, last, rank"):
        open_model(stories_gguf(), pooling="max")


@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": False}, Pooling.MEAN),
        ({"pooling_mode_cls_token": True}, Pooling.FIRST),
        ({"pooling_mode": "lasttoken"}, Pooling.LAST),
        ({"pooling_mode": "mean"}, Pooling.MEAN),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_lasttoken": True}, None),
        ({"pooling_mode_max_tokens": True}, None),
        ({"pooling_mode": ["mean"]}, None),
        ({}, None),
    ],
    ids=str,
)
def test_modes_of_sentence_transformers(modes: dict[str, Any], pooling: Pooling | None, tmp_path: Path) -> None:
    pooled.save_embedder(tmp_path)
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    if pooling is None:
        with pytest.raises(ValueError, match="supported"):
            open_model(tmp_path)
    else:
        assert open_model(tmp_path).pooling == PoolingConfig(pooling)


def test_modules_of_sentence_transformers(tmp_path: Path) -> None:
    pooled.save_embedder(tmp_path, "lasttoken", "Normalize")
    assert open_model(tmp_path).pooling == PoolingConfig(Pooling.LAST, normalizes=True)
    assert open_model(tmp_path, pooling="mean").pooling == PoolingConfig(Pooling.MEAN, is_named=False)
    listed = json.loads((tmp_path / "modules.json").read_text())
    for changes, words in (
        ({"type": f"{pooled.MODULES}CNN"}, "CNN, which is not supported"),
        ({"type": f"{pooled.MODULES}Dense"}, "lacks"),
        ({"path": "../secret"}, "lacks"),
        ({"path": "2_Elsewhere"}, "lacks"),
    ):
        (tmp_path / "modules.json").write_text(json.dumps([listed[0], {**listed[1], **changes}]))
        with pytest.raises(ValueError, match=words):
            open_model(tmp_path)


def test_models_that_only_generate_are_told_what_to_do() -> None:
    assert open_model(stories_gguf()).pooling is None
    with pytest.raises(ValueError, match="--pooling mean"):
        LLM(stories_gguf(), threads=1).embed("Once")
    with pytest.raises(ValueError, match="no reranker"):
        LLM(stories_gguf(), threads=1).rerank("Once", ["upon"])
    with pytest.raises(ValueError, match=r"no token <\|im_start\|>"):
        LLM(stories_gguf(), threads=1, pooling="rank")


@pytest.mark.parametrize(("mode", "others"), [("lasttoken", ["Normalize"]), ("mean_tokens", []), ("cls_token", [])])
def test_vectors_are_transformers(mode: str, others: list[str], tmp_path: Path) -> None:
    """By sentence-transformers' rules: the states of all tokens, the end's included, pooled, then scaled."""
    llm = LLM(pooled.save_embedder(tmp_path, mode, *others), **EXACT)
    end = llm.tokenizer.encode("", add_special=True)
    assert len(end) == 1, "the tokenizer's end of text"
    for text, output in zip(TEXTS, llm.embed(TEXTS), strict=True):
        assert output.prompt_token_ids == (*llm.tokenizer.encode(text, add_special=False), *end)
        states = pooled.states(output.prompt_token_ids)
        wanted = {"mean_tokens": states.mean(0), "cls_token": states[0], "lasttoken": states[-1]}[mode]
        wanted = wanted / np.linalg.norm(wanted) if others else wanted
        assert np.abs(np.array(output.embedding) - wanted).max() < 1e-3 * np.abs(wanted).max()


def test_a_gguf_is_its_folder(tmp_path: Path) -> None:
    """Last token, scaled to length 1, an end of text after each text."""
    file = LLM(pooled.save_gguf(tmp_path, 3), **EXACT)
    folder = LLM(pooled.save_embedder(tmp_path / "folder", "lasttoken", "Normalize"), **EXACT)
    for one, other in zip(file.embed(TEXTS), folder.embed(TEXTS), strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        assert one.embedding == pytest.approx(other.embedding, abs=1e-5)


def test_the_same_bits_however_it_is_run(tmp_path: Path) -> None:
    folder = pooled.save_embedder(tmp_path, "lasttoken", "Normalize")
    alone = [LLM(folder, threads=1).embed(text)[0].embedding for text in TEXTS]
    for options in (
        {"threads": 2, "max_chunk": 7},
        {"threads": 1, "max_chunk": 1, "prefix_caching": False},
        {"threads": 2, "max_running": 2, "block_size": 16},
        {"threads": 1, "variant": "portable"},
    ):
        llm = LLM(folder, **options)  # type: ignore[arg-type]
        assert [output.embedding for output in llm.embed(TEXTS)] == alone
        assert [output.embedding for output in llm.embed(TEXTS[::-1])] == alone[::-1]


def test_unit_vectors() -> None:
    assert unit((3.0, 4.0)) == tuple(np.array([0.6, 0.8], np.float32).tolist())
    assert unit((3.0, 4.0, 12.0), 2) == unit((3.0, 4.0)), "the first dimensions are scaled anew"
    assert unit((0.0, 0.0)) == (0.0, 0.0)
