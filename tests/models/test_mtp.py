"""The layer that drafts: its arithmetic, its file names, and what the model's pass keeps for it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot.formats import FLOAT32
from surefoot.models import Batch, Model, Workspace, empty_batch, load, read_config
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32, I64
from surefoot.runner import SessionRunner, Work
from surefoot.weights import GgufFile
from surefoot.weights.huggingface import HuggingFaceCheckpoint
from tests.models import test_gguf_states as written
from tests.models import tiny, tiny_mtp

LENGTH = 100
names = pytest.mark.parametrize("name", tiny_mtp.NAMES)


class FollowedText:
    """A text that the model has computed, in chunks, with the layer's keys and values."""

    def __init__(self, backend: Backend, model: Model, lengths: list[int], record: bool = True) -> None:
        self.backend, self.model, self.tokens = backend, model, tiny.tokens(sum(lengths))
        self.runner: SessionRunner = tiny.make_runner(backend, model, KvForm.TWO_LIMBS, record)
        session, hidden, start = self.runner.open(len(self.tokens)), [], 0
        for length in lengths:
            self.runner.execute([Work(session, self.tokens[start : start + length], length)])
            hidden.append(self.runner.runner.normed(0, length))
            start += length
        zeros = np.zeros((1, hidden[0].shape[1]), np.float32)
        self.before: F32 = np.concatenate([zeros, *hidden])[:-1].copy()
        self.table: I64 = session.tables[0]

    def batch(self, first: int) -> Batch:
        """The rows from the first on, as one chunk."""
        rows, size = len(self.tokens) - first, self.runner.runner.block_size
        batch = empty_batch(rows, 1, 0, {0: len(self.table)})
        batch.tokens[:], batch.positions[:] = self.tokens[first:], np.arange(first, len(self.tokens))
        kv = batch.kv[0]
        kv.chunks.starts[1], kv.chunks.lengths[0], kv.chunks.block_table[0] = rows, len(self.tokens), self.table
        kv.slots[:] = self.table[batch.positions // size] * size + batch.positions % size
        return batch

    def guesses(self, first: int) -> F32:
        assert self.model.drafting is not None
        memory, workspace = self.runner.runner.kv.memory, Workspace()
        stream = self.model.drafting.guess(self.backend, self.batch(first), self.before[first:], memory, workspace)
        return replace(self.model, norm=self.model.drafting.outputs.norm).logits(self.backend, stream, workspace)

    @property
    def cache(self) -> F32:
        return self.runner.runner.kv.caches[len(self.model.config.layers)].data


@names
@pytest.mark.parametrize("first", [0, LENGTH - 1])
def test_guesses_are_those_of_the_published_layer(backend: Backend, name: str, first: int) -> None:
    """The last row alone reads what the model's pass has written of all the others."""
    text = FollowedText(backend, load(backend, tiny_mtp.checkpoint(name), FLOAT32), [LENGTH], record=False)
    want = tiny_mtp.reference_logits(name, text.tokens)[first:]
    assert np.abs(text.guesses(first) - want).max() < 1e-3 * np.abs(want).max()


@names
def test_following_writes_what_guessing_writes(backend: Backend, name: str) -> None:
    text = FollowedText(backend, tiny_mtp.make_model(backend, name), [LENGTH])
    written = text.cache.tobytes()
    text.cache[:] = 0
    text.guesses(0)
    assert text.cache.tobytes() == written


@names
def test_chunks_do_not_change_what_is_kept(backend: Backend, name: str) -> None:
    model = tiny_mtp.make_model(backend, name)
    whole, parts = FollowedText(backend, model, [LENGTH]), FollowedText(backend, model, [1, 30, 1, 1, 47, 20])
    assert whole.cache.tobytes() == parts.cache.tobytes()
    assert whole.before.tobytes() == parts.before.tobytes()


@names
def test_the_model_is_the_same_with_and_without(backend: Backend, name: str) -> None:
    model = tiny_mtp.make_model(backend, name)
    logits = [
        tiny.all_logits(tiny.make_runner(backend, each), tiny.tokens(LENGTH), [LENGTH])
        for each in (model, model.without_drafting(), tiny.make_model(backend, name))
    ]
    assert logits[0].tobytes() == logits[1].tobytes() == logits[2].tobytes()
    assert model.config.state_bytes == model.without_drafting().config.state_bytes + 4 * model.config.width


def test_from_gguf(backend: Backend, tmp_path: Path) -> None:
    """With the names that llama.cpp's converter gives."""
    config = tiny.reference("qwen3_5").config
    keys = {**written.qwen3_5_keys(config), "nextn_predict_layers": 1, "block_count": config.num_hidden_layers + 1}
    tensors = written.as_converted(config, tiny_mtp.checkpoint("qwen3_5"))
    written.write(tmp_path / "qwen35.gguf", "qwen35", config, keys, tensors)
    guesses = [
        FollowedText(backend, load(backend, checkpoint, FLOAT32), [LENGTH], record=False).guesses(0)
        for checkpoint in (GgufFile(tmp_path / "qwen35.gguf"), tiny_mtp.checkpoint("qwen3_5"))
    ]
    assert np.abs(guesses[0] - guesses[1]).max() < 1e-4 * np.abs(guesses[1]).max()


@pytest.mark.parametrize("extra", ["mtp.layers.1.input_layernorm.weight", "mtp.embed_tokens.weight"])
def test_other_drafting_layers_are_left_out(backend: Backend, extra: str) -> None:
    """Several layers, or embeddings of their own."""
    given = tiny_mtp.checkpoint("qwen3_5")
    source = given.tensors["blk.0.attn_norm.weight" if "norm" in extra else "token_embd.weight"]
    config = {**given.metadata}
    stored = {**tiny_mtp.stored("qwen3_5"), extra: source}
    model = load(backend, HuggingFaceCheckpoint(config, stored))
    assert model.drafting is None
    assert read_config(HuggingFaceCheckpoint(config, stored)).drafting_layers == ()
