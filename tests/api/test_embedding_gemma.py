"""EmbeddingGemma, whose tokens see later ones: beside transformers, and the same bits however it is run."""

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
from surefoot.runner import SessionRunner
from tests.api import embedding_gemma
from tests.api.encoded import check_same_bits

EXACT: dict[str, Any] = {"threads": 2, "float_format": "f32", "kv_form": KvForm.TWO_LIMBS}
TEXTS = ["A cat sleeps.", "x", "The kitten is asleep, and nobody wakes it. " * 20, "yes and no", "Not a word. " * 9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedding_gemma.save(tmp_path_factory.mktemp("embedding_gemma"))


def test_vectors_are_sentence_transformers(folder: Path) -> None:
    exact, rounded = LLM(folder, **EXACT), LLM(folder, threads=2)
    assert exact.pooling == PoolingConfig(Pooling.MEAN, normalizes=True)
    for output, other in zip(exact.embed(TEXTS), rounded.embed(TEXTS), strict=True):
        wanted = embedding_gemma.vector(output.prompt_token_ids)
        assert np.abs(np.array(output.embedding) - wanted).max() < 1e-3 * np.abs(wanted).max()
        assert np.array(other.embedding) @ wanted > 0.99, "the cosine, after rounding to 8 bits"


def test_a_gguf_is_its_folder(folder: Path, tmp_path: Path) -> None:
    file = LLM(embedding_gemma.save_gguf(tmp_path), **EXACT)
    for one, other in zip(file.embed(TEXTS), LLM(folder, **EXACT).embed(TEXTS), strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        assert one.embedding == pytest.approx(other.embedding, abs=1e-5)


def test_the_same_bits_however_it_is_run(folder: Path) -> None:
    check_same_bits(folder, TEXTS)


def test_it_generates_nothing(folder: Path) -> None:
    llm = LLM(folder, threads=1)
    with pytest.raises(ValueError, match="generates no text"):
        llm.generate("Once")
    runner = SessionRunner.make(llm.backend, llm.model, num_tokens=64)
    with pytest.raises(ValueError, match="one chunk"):
        runner.prefill(runner.open(8), [1, 2, 3], [2, 1])


def test_dense_layers_that_are_not_matrices_are_refused(tmp_path: Path) -> None:
    embedding_gemma.save(tmp_path)
    for changes, words in (({"bias": True}, "bias"), ({"activation_function": "torch.nn.Tanh"}, "Tanh")):
        (tmp_path / "2_Dense" / "config.json").write_text(json.dumps({**embedding_gemma.DENSE, **changes}))
        with pytest.raises(ValueError, match=words):
            open_model(tmp_path)
