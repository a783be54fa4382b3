"""Float checkpoints in each of the formats that a user may ask for."""

import numpy as np
import pytest

from surefoot.formats import MODEL_FORMATS
from surefoot.models import load
from surefoot.ops import Backend, KvForm, PackedWeights
from tests.models import tiny

# Difference of logits from transformers', root mean square over spread, by format.
LARGEST = {"w8": 0.01, "w12": 0.001, "w8-rows": 0.02, "w8a8": 0.05, "w4": 0.2, "w4-narrow": 0.3, "f32": 1e-4}


@pytest.mark.parametrize("name", list(MODEL_FORMATS))
def test_float_weights_in_each_format(backend: Backend, name: str) -> None:
    model = load(backend, tiny.checkpoint("llama"), MODEL_FORMATS[name])
    assert isinstance(model.embeddings, PackedWeights) == (name != "f32")
    if isinstance(model.embeddings, PackedWeights):
        assert model.embeddings.format == MODEL_FORMATS[name].weights
    runner = tiny.make_runner(backend, model, KvForm.TWO_LIMBS, record=name != "f32")
    want = tiny.reference_logits("llama", 100)
    difference = tiny.all_logits(runner, tiny.tokens(100), [100]) - want
    assert np.sqrt((difference**2).mean()) < LARGEST[name] * want.std()
