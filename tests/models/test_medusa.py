"""Medusa heads beside torch, for targets of several families, and heads that do not fit."""

from pathlib import Path

import numpy as np
import pytest

from surefoot.formats import FLOAT32, SERVED
from surefoot.models import Model, Workspace, load, load_medusa
from surefoot.models.medusa import MedusaHeads
from surefoot.ops import Backend
from surefoot.ops.arrays import F32
from surefoot.runner import MedusaGuesser
from surefoot.weights import MetadataError, open_medusa
from tests.models import tiny, tiny_medusa

STATES = np.random.default_rng(8).standard_normal((5, 96)).astype(np.float32)


def output_of(name: str = "llama") -> F32:
    head: F32 = tiny.reference(name).get_output_embeddings().weight.detach().numpy()
    return head


def loaded(backend: Backend, path: Path, target: Model, *, served: bool = True) -> MedusaHeads:
    return load_medusa(backend, open_medusa(path), target, SERVED if served else FLOAT32)


@pytest.mark.parametrize("form", tiny_medusa.FORMS)
@pytest.mark.parametrize(("num_blocks", "bias"), [(1, True), (2, False), (0, False)])
def test_logits_are_torchs(backend: Backend, tmp_path: Path, form: str, num_blocks: int, bias: bool) -> None:
    """In float32, and near enough as served that the likeliest token is the same."""
    heads = tiny_medusa.make_heads(output_of(), num_blocks=num_blocks, bias=bias)
    path, target = tiny_medusa.save(heads, form, tmp_path), load(backend, tiny.checkpoint("llama"), FLOAT32)
    exact, served = (loaded(backend, path, target, served=served) for served in (False, True))
    assert len(exact.heads) == len(heads.outputs)
    weight = target.norm.weight.astype(np.float64)
    normed = STATES / np.sqrt((STATES.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-6) * weight
    for number in range(len(heads.outputs)):
        want = tiny_medusa.logits(heads, number, normed)
        got, near = (
            one.heads[number].logits(backend, one.normed(backend, STATES), Workspace()) for one in (exact, served)
        )
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
        assert np.abs(near - want).max() < 0.05 * np.abs(want).max()
    first, second = (MedusaGuesser(backend, exact) for _ in range(2))
    rows, logits = first.guess(STATES, np.zeros(5, np.int64), 0)
    assert logits.argmax(axis=1).tolist() == tiny_medusa.logits(heads, 0, normed).argmax(axis=1).tolist()
    assert second.guess(rows, np.ones(5, np.int64), 2)[1].argmax(axis=1).tolist() == (
        tiny_medusa.logits(heads, 2, normed).argmax(axis=1).tolist()
    )


@pytest.mark.parametrize(
    ("form", "changes", "message"),
    [
        ("medusa", {"0__0__linear__weight": np.ones((64, 96), np.float32)}, "medusa.0.0.weight has the shape"),
        ("medusa", {"1__1__weight": np.ones((300, 96), np.float32)}, r"\(300, 96\), and the model needs \(256, 96\)"),
        ("medusa", {"2__1__weight": None}, "lacks medusa.2.output.weight"),
        ("medusa", {"0__0__linear__weight": None, "0__1__weight": None}, "not numbered from 0 on"),
        ("medusa", {"20__1__weight": np.ones((256, 96), np.float32)}, "more than 16 heads"),
        ("medusa", {"0__2__weight": np.ones((256, 96), np.float32)}, "a part twice"),
        ("vllm", {"token_map": np.arange(4)}, "a tensor token_map"),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    backend: Backend, tmp_path: Path, form: str, changes: dict[str, F32 | None], message: str
) -> None:
    path = tiny_medusa.save(tiny_medusa.make_heads(output_of()), form, tmp_path, **changes)
    with pytest.raises(MetadataError, match=message):
        loaded(backend, path, tiny.make_model(backend, "llama"))


def test_a_target_without_a_single_stream_is_refused(backend: Backend, tmp_path: Path) -> None:
    path = tiny_medusa.save(tiny_medusa.make_heads(output_of("gemma3n")), "medusa", tmp_path)
    with pytest.raises(MetadataError, match="no single stream"):
        loaded(backend, path, tiny.make_model(backend, "gemma3n"))
