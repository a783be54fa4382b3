"""Encoders beside transformers: their vectors, their scores of pairs, and the same bits however they are run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM
from surefoot.api.opening import open_model
from surefoot.api.pooling import PoolingConfig
from surefoot.core import Pooling
from surefoot.engine.capacity import MAX_STEP_TOKENS, workspace_bytes
from surefoot.models import ModelConfig
from surefoot.models.load import alibi_slopes
from surefoot.ops import KvForm
from surefoot.ops.backend import supported_variants
from tests.api import bert, jina
from tests.api.encoded import check_same_bits

EXACT: dict[str, Any] = {"threads": 2, "float_format": "f32", "kv_form": KvForm.TWO_LIMBS}
WIDE = ("nomic_bert", "gte", "gte_ntk", "jina_embeddings_v3", "modernbert", *jina.KINDS)
CLOSE = (1e-5, 2**-15)  # rotated keys spread wider over the 16 bits that a cached key has; Jina's are larger
TEXTS = ["A cat sleeps.", "x", "The kitten is sleeping, and nobody! " * 12, "The café is [SEP] öde?", "cats " * 9, "東"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert.save(tmp_path_factory.mktemp("bert"))


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("bert", "mean_tokens"), ("bert", "cls_token"), ("roberta", "mean_tokens"), ("nomic_bert", "mean_tokens"),
        ("gte", "cls_token"), ("modernbert", "mean_tokens"), ("jina", "mean_tokens"), ("jina_code", "mean_tokens"),
        ("jina_plain", "mean_tokens"), ("gte_ntk", "cls_token"), ("jina_embeddings_v3", "mean_tokens"),
    ],
)  # fmt: skip
def test_vectors_are_sentence_transformers(tmp_path: Path, kind: str, pooling: str) -> None:
    saved = bert.save(tmp_path, kind, pooling)
    exact, rounded, finer = LLM(saved, **EXACT), LLM(saved, threads=2, float_format="w8"), LLM(saved, threads=2)
    assert exact.context_length == bert.CONTEXT
    for output, other, near in zip(exact.embed(TEXTS), rounded.embed(TEXTS), finer.embed(TEXTS), strict=True):
        wanted = bert.vector(kind, output.prompt_token_ids, pooling)
        assert np.abs(np.array(output.embedding) - wanted).max() < CLOSE[kind in WIDE]
        assert np.array(other.embedding) @ wanted > 0.999, "the cosine, after rounding to 8 bits"
        assert np.array(near.embedding) @ wanted > 0.9999, "with what rounding left"


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


@pytest.mark.parametrize(
    ("kind", "splits"), [*((kind, False) for kind in bert.GGUF_NAMES), ("jina", True), ("jina_code", True)]
)
def test_a_gguf_is_its_folder(kind: str, splits: bool, tmp_path: Path) -> None:
    file, folder = LLM(bert.save_gguf(tmp_path, kind, splits=splits), **EXACT), LLM(tmp_path / "source", **EXACT)
    assert _config(file) == _config(folder)
    for one, other in zip(file.embed(TEXTS), folder.embed(TEXTS), strict=True):
        assert one.prompt_token_ids == other.prompt_token_ids
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)


def _config(llm: LLM) -> ModelConfig:
    """With the epsilon in float32, as GGUF files and kernels have it."""
    config = llm.runner.model.config
    return replace(config, norm=replace(config.norm, eps=float(np.float32(config.norm.eps))))


@pytest.mark.parametrize("kind", ["bert", "nomic_bert", "modernbert", "jina", "jina_code"])
def test_the_same_bits_however_it_is_run(kind: str, tmp_path: Path) -> None:
    check_same_bits(bert.save(tmp_path, kind), TEXTS)


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 16])
def test_slopes_are_those_of_the_paper(heads: int) -> None:
    assert alibi_slopes(heads).tolist() == np.float32(jina.slopes(heads)).tolist()


@pytest.mark.parametrize("kind", ["bert", "roberta", "gte", "modernbert"])  # transformers has no such Nomic BERT
def test_scores_of_pairs_are_transformers(kind: str, tmp_path: Path) -> None:
    """Control tokens in a document are text."""
    llm, query, documents = LLM(bert.save_reranker(tmp_path, kind), **EXACT), "The cat", TEXTS[:-1]
    scores = {found.index: found.relevance_score for found in llm.rerank(query, documents)}
    for index, document in enumerate(documents):
        tokens = llm.tokenizer.encode(document, add_special=False)
        wanted = bert.score(kind, llm.tokenizer.encode(query, add_special=False), tokens)
        assert scores[index] == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(ValueError, match="makes no embeddings"):
        llm.embed(query)
    with pytest.raises(ValueError, match="scores pairs"):
        LLM(tmp_path, pooling="mean")


def test_pairs_have_the_same_scores_however_they_are_run(tmp_path: Path) -> None:
    bert.save_reranker(tmp_path, "bert")
    alone = [LLM(tmp_path, threads=1).rerank("The cat", [text])[0].relevance_score for text in TEXTS]
    for options in ({"variant": variant} for variant in supported_variants()):
        found = LLM(tmp_path, threads=2, **options).rerank("The cat", TEXTS)
        assert [score.relevance_score for score in sorted(found, key=lambda score: score.index)] == alone


@pytest.mark.parametrize("kind", ["bert", "jina_code"])
def test_a_step_takes_no_more_than_was_reckoned(kind: str, tmp_path: Path) -> None:
    runner = LLM(bert.save(tmp_path, kind), threads=1).runner
    runner.prepare(MAX_STEP_TOKENS, 32, 32)
    assert runner._workspace.total_bytes <= workspace_bytes(runner.model.config, 32)


def test_what_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="generates no text"):
        LLM(folder, threads=1).generate("Once")
    config = json.loads((folder / "config.json").read_text())
    for changes, words in (
        ({"is_decoder": True}, "decoder"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"position_embedding_type": "alibi", "feed_forward_type": "reglu"}, "reglu"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        for name in ("model.safetensors", "tokenizer.json"):
            (tmp_path / name).write_bytes((folder / name).read_bytes())
        with pytest.raises(ValueError, match=words):
            LLM(open_model(tmp_path), threads=1)
