"""Encoders: BERT and RoBERTa beside transformers, and the same bits however they are run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM
from surefoot.api.opening import open_model
from surefoot.api.pooling import PoolingConfig
from surefoot.core import Pooling
from surefoot.ops import KvForm
from surefoot.ops.backend import supported_variants
from tests.api import bert

EXACT: dict[str, Any] = {"threads": 2, "float_format": "f32", "kv_form": KvForm.TWO_LIMBS}
TEXTS = ["A cat sleeps.", "x", "The kitten is sleeping, and nobody! " * 12, "The café is [SEP] öde?", "cats " * 9, "東"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert.save(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize(
    ("kind", "pooling"), [("bert", "mean_tokens"), ("bert", "cls_token"), ("roberta", "mean_tokens")]
)
def test_vectors_are_sentence_transformers(tmp_path: Path, kind: str, pooling: str) -> None:
    saved = bert.save(tmp_path, kind, pooling)
    exact, rounded = LLM(saved, **EXACT), LLM(saved, threads=2)
    assert exact.context_length == bert.CONTEXT
    for output, other in zip(exact.embed(TEXTS), rounded.embed(TEXTS), strict=True):
        wanted = bert.vector(kind, output.prompt_token_ids, pooling)
        assert np.abs(np.array(output.embedding) - wanted).max() < 1e-5
        assert np.array(other.embedding) @ wanted > 0.999, "the cosine, after rounding to 8 bits"


def test_tokens_are_the_librarys(folder: Path) -> None:
    """But for the special ones in a text, which stay text."""
    library, llm = bert.tokenizer(), LLM(folder, threads=1)
    library.no_truncation()
    library.no_padding()
    assert llm.pooling == PoolingConfig(Pooling.MEAN, normalizes=True)
    for text in TEXTS:
        ids = llm.tokenizer.encode(text)
        if "[SEP]" not in text:
            assert ids == library.encode(text).ids
        assert ids.count(library.token_to_id("[SEP]")) == 1
    assert llm.tokenizer.decode(llm.tokenizer.encode("The cats sleeping")) == "the cats sleeping"


def test_a_gguf_is_its_folder(folder: Path, tmp_path: Path) -> None:
    file = LLM(bert.save_gguf(tmp_path), **EXACT)
    for one, other in zip(file.embed(TEXTS), LLM(folder, **EXACT).embed(TEXTS), strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


def test_the_same_bits_however_it_is_run(folder: Path) -> None:
    alone = [LLM(folder, threads=1).embed(text)[0].embedding for text in TEXTS]
    cases: list[dict[str, Any]] = [{"threads": 1, "variant": variant} for variant in supported_variants()]
    cases += [{"threads": 2, "max_chunk": 7}, {"threads": 2, "max_running": 2, "block_size": 32}]
    for options in cases:
        llm = LLM(folder, **options)
        assert [output.embedding for output in llm.embed(TEXTS)] == alone
        assert [output.embedding for output in llm.embed(TEXTS[::-1])] == alone[::-1]


def test_what_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="generates no text"):
        LLM(folder, threads=1).generate("Once")
    config = json.loads((folder / "config.json").read_text())
    for changes, words in (
        ({"is_decoder": True}, "decoder"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        for name in ("model.safetensors", "tokenizer.json"):
            if not (tmp_path / name).exists():
                (tmp_path / name).symlink_to(folder / name)
        with pytest.raises(ValueError, match=words):
            LLM(open_model(tmp_path), threads=1)
