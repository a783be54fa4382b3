"""An outline has every shape and format of the loaded model, so all counts over it are the loaded model's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from surefoot.models import Model, load
from surefoot.models.outline import OutlineCheckpoint
from surefoot.ops import Backend
from surefoot.runner import slot_bytes
from surefoot.speed import decode_bytes, linear_products, model_work, weight_bytes
from surefoot.weights import Checkpoint, GgufFile
from tests.models import tiny
from tests.smollm2 import find_file
from tests.stories import stories_gguf


def counts(backend: Backend, model: Model) -> tuple[object, ...]:
    work = model_work(model, slot_bytes(backend, model.config))
    return decode_bytes(model), linear_products(model), weight_bytes(model), work


def assert_alike(backend: Backend, checkpoint: Checkpoint) -> None:
    outline = load(backend, OutlineCheckpoint(checkpoint))
    assert counts(backend, outline) == counts(backend, load(backend, checkpoint))


@pytest.mark.parametrize("name", sorted(tiny.MODELS))
def test_outline_counts_as_the_loaded_model(backend: Backend, name: str) -> None:
    assert_alike(backend, tiny.checkpoint(name))


@pytest.mark.parametrize("find", [stories_gguf, find_file], ids=["stories", "smollm2"])
def test_outline_of_a_file(backend: Backend, find: Callable[[], Path]) -> None:
    assert_alike(backend, GgufFile(find()))


def test_outline_keeps_no_weights(backend: Backend) -> None:
    head = load(backend, OutlineCheckpoint(tiny.checkpoint("llama"))).head.matrices[0]
    assert head.data.strides == (0,)
    assert head.nbytes > tiny.VOCAB * 96


def test_all_weights_are_in_the_arrays_of_the_model(backend: Backend) -> None:
    """Every tensor of a dense model is counted once: at 8 bits and some scales, a bit over a byte a weight."""
    checkpoint = tiny.checkpoint("llama")
    num_weights = sum(
        tensor.shape[0] * tensor.shape[1] for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2
    )
    assert num_weights < weight_bytes(load(backend, checkpoint)) < 1.6 * num_weights
