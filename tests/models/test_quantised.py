"""Whole models from quantised folders, against the float model of the weights that their codes stand for."""

import json
from pathlib import Path

import numpy as np
import pytest

from surefoot.formats import FLOAT32, SERVED
from surefoot.models import load
from surefoot.ops import Backend, KvForm
from surefoot.ops.arrays import F32
from surefoot.ops.weights import dequantise
from surefoot.weights import HuggingFaceCheckpoint
from surefoot.weights.coded import Coded
from tests.models import tiny
from tests.weights import safetensors_files
from tests.weights.schemes import SCHEMES, Scheme

LENGTH = 150


def write_folder(folder: Path, scheme: Scheme, name: str) -> HuggingFaceCheckpoint:
    """The tiny model with every matrix of its layers in the scheme; embeddings, head and norms stay in float."""
    model, tensors, fp8 = tiny.reference(name), {}, set[str]()
    for full_name, parameter in model.state_dict().items():
        values = parameter.detach().numpy()
        if not full_name.endswith("_proj.weight"):
            tensors[full_name] = values
            continue
        stem, written = full_name.removesuffix(".weight"), scheme.write(values)
        tensors |= {f"{stem}.{part}": array for part, array in written.parts.items()}
        fp8 |= {f"{stem}.{part}" for part in written.fp8}
    config = {**model.config.to_dict(), "quantization_config": scheme.config}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors_files.write(folder / "model.safetensors", tensors, frozenset(fp8))
    return HuggingFaceCheckpoint.open(folder)


class FloatOf(HuggingFaceCheckpoint):
    """What the codes stand for; of matrices that were floats, what W8 makes of them."""

    def __init__(self, given: HuggingFaceCheckpoint) -> None:
        self.metadata, self.tensors = given.metadata, given.tensors

    def floats(self, name: str) -> F32:
        tensor = self.tensors[name]
        if isinstance(tensor, Coded) or len(tensor.shape) != 2:
            return tensor.floats()
        return dequantise(self.integers(name))


def logits(backend: Backend, checkpoint: HuggingFaceCheckpoint, in_float: bool) -> F32:
    model = load(backend, checkpoint, FLOAT32 if in_float else SERVED)
    runner = tiny.make_runner(backend, model, KvForm.TWO_LIMBS, record=not in_float)
    return tiny.all_logits(runner, tiny.tokens(LENGTH), [LENGTH])


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_logits_are_the_float_models(backend: Backend, tmp_path: Path, scheme: str) -> None:
    checkpoint = write_folder(tmp_path, SCHEMES[scheme], "llama")
    want = logits(backend, FloatOf(checkpoint), in_float=True)
    difference = np.abs(logits(backend, checkpoint, in_float=False) - want).max() / np.abs(want).max()
    # FP8 and 8 bits with zeros are rounded once more, to int8; act-order too, but then the reference is as well.
    assert difference < (2e-2 if "fp8" in scheme else 5e-3 if "8" in scheme else 5e-4)


def test_qwen2_has_biases_beside_its_codes(backend: Backend, tmp_path: Path) -> None:
    checkpoint = write_folder(tmp_path, SCHEMES["gptq v1 with zeros"], "qwen2")
    want = logits(backend, FloatOf(checkpoint), in_float=True)
    assert np.abs(logits(backend, checkpoint, in_float=False) - want).max() < 5e-4 * np.abs(want).max()
