"""A draft head: its file, its arithmetic, and that its drafts do not change answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from surefoot.api import LLM
from surefoot.core import Request, SampleKey, SamplingParams
from surefoot.formats import W4, round_to
from surefoot.ops import embed
from surefoot.ops.weights import dequantise
from surefoot.runner import DraftHead, StateDrafter, load_head
from surefoot.speculate import Speculator
from surefoot.weights import SafetensorsError
from tests.engine.engine import backend, expected, model, requests, run
from tests.engine.speculation import FixedDepth, make_engine
from tests.stories import stories_gguf

WIDTH, INSIDE, VOCAB = 64, 48, 512


def head_file(folder: Path, scale: float = 0.3, vocabulary: Sequence[int] = ()) -> Path:
    rng, path = np.random.default_rng(4), folder / "head.safetensors"
    tensors = {
        "in.weight": scale * rng.standard_normal((INSIDE, 2 * WIDTH)),
        "out.weight": scale * rng.standard_normal((WIDTH, INSIDE)),
        "state_norm.weight": 1 + 0.1 * rng.standard_normal(WIDTH),
        "token_norm.weight": 1 + 0.1 * rng.standard_normal(WIDTH),
    }
    arrays = {name: one.astype(np.float32) for name, one in tensors.items()}
    save_file(arrays | ({"vocabulary": np.array(vocabulary, np.int32)} if vocabulary else {}), path)
    return path


def normed(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return rows / np.sqrt((rows.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5) * weight


@pytest.mark.parametrize(("depth", "vocabulary"), [(1, ()), (5, ()), (5, range(3, 500, 3))])
def test_a_draft_head_does_not_change_answers(tmp_path: Path, depth: int, vocabulary: Sequence[int]) -> None:
    weights = load_head(head_file(tmp_path, vocabulary=vocabulary), WIDTH, VOCAB)
    drafter = StateDrafter(backend(), DraftHead(backend(), model(), weights))
    speculator = Speculator(drafter, FixedDepth(depth))
    assert run(make_engine(speculator), requests()) == expected()
    assert speculator.is_enabled


def test_a_draft_head_follows_its_formula(tmp_path: Path) -> None:
    """Against the formula in numpy, over the weights as they are rounded; of activations the kernels take 15 bits."""
    weights = load_head(head_file(tmp_path), WIDTH, VOCAB)
    rng = np.random.default_rng(5)
    states, tokens = rng.standard_normal((3, WIDTH)).astype(np.float32), np.array([5, 400, 7])
    answers = DraftHead(backend(), model(), weights).step(states, tokens)

    embedded = embed(backend(), tokens, model().embeddings)
    given = np.concatenate([normed(states, weights.state_norm), normed(embedded, weights.token_norm)], axis=1)
    inside = given @ dequantise(weights.inner).T
    wanted = states + (inside / (1 + np.exp(-inside))) @ dequantise(weights.outer).T
    assert np.abs(answers - wanted).max() < 2**-13 * np.abs(wanted).max()


def test_the_first_state_of_a_draft_head_is_the_targets(tmp_path: Path) -> None:
    """A head that adds nothing to the state has the logits of the sample's last token: it drafts that token again."""
    weights = load_head(head_file(tmp_path, scale=0.0), WIDTH, VOCAB)
    guesses: list[tuple[int, int]] = []

    class Watched(StateDrafter):
        def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
            drafts = super().draft(depths)
            guesses.extend((self._samples[key].last, tokens[0]) for key, tokens in drafts.items())
            return drafts

    watched = Watched(backend(), DraftHead(backend(), model(), weights))
    greedy = [
        Request(f"{number}", (1, 300 + number), SamplingParams(temperature=0, max_tokens=30)) for number in range(5)
    ]
    run(make_engine(Speculator(watched, FixedDepth(2))), greedy)
    assert len(guesses) > 100
    assert all(last == guess for last, guess in guesses)


def test_a_draft_head_drafts_from_its_vocabulary(tmp_path: Path) -> None:
    """Among these ids the target's own logits of the state, of the target's rows rounded to four bits."""
    ids = np.arange(1, VOCAB, 7)
    head = DraftHead(backend(), model(), load_head(head_file(tmp_path, vocabulary=ids.tolist()), WIDTH, VOCAB))
    states = np.random.default_rng(6).standard_normal((4, WIDTH)).astype(np.float32)
    answers = head.logits(states)
    rows = dequantise(round_to(W4, model().head.rows(backend(), ids)))
    expected = normed(states, model().norm.weight) @ rows.T
    assert np.isneginf(np.delete(answers, ids, axis=1)).all()
    assert np.abs(answers[:, ids] - expected).max() < 2**-12 * np.abs(expected).max()


@pytest.mark.parametrize("vocabulary", [[5, 4], [4, 4], [-1, 4], [4, VOCAB]])
def test_invalid_vocabularies_are_refused(tmp_path: Path, vocabulary: list[int]) -> None:
    with pytest.raises(SafetensorsError, match="ascending order"):
        load_head(head_file(tmp_path, vocabulary=vocabulary), WIDTH, VOCAB)


def test_invalid_draft_heads_are_refused(tmp_path: Path) -> None:
    path = str(stories_gguf())
    with pytest.raises(SafetensorsError, match="other sizes"):
        load_head(head_file(tmp_path), 32, VOCAB)
    save_file({"in.weight": np.zeros((2, 2), np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(SafetensorsError, match=r"lacks out\.weight"):
        LLM(path, threads=1, max_context=64, speculate=f"draft:{tmp_path / 'other.safetensors'}")
    llm = LLM(path, threads=1, max_context=64, speculate=f"draft:{head_file(tmp_path)}")
    assert llm.generate("Once upon", SamplingParams(temperature=0, max_tokens=20))[0].usage.num_generated == 20
