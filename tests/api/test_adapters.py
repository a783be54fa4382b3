"""Adapters by task beside transformers' model with the adapter added, and apart from each other wherever weights or
answers are kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surefoot import LLM
from surefoot.api.fingerprint import fingerprint
from surefoot.api.opening import open_model
from surefoot.ops import KvForm
from surefoot.ops.backend import supported_variants
from surefoot.weights import SafetensorsError
from tests.api import adapted, bert
from tests.api.pooled import torch
from tests.stories import stories_gguf

TEXTS = ["A cat sleeps.", "x", "The kitten is sleeping, and nobody! " * 6, "cats " * 9]
EXACT: dict[str, Any] = {"threads": 2, "float_format": "f32", "kv_form": KvForm.TWO_LIMBS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapted.save(tmp_path_factory.mktemp("jina"))


def vectors(model: Path, **options: Any) -> list[tuple[float, ...] | None]:
    return [output.embedding for output in LLM(model, **options).embed(TEXTS)]


@pytest.mark.parametrize("task", [None, *adapted.TASKS[:2]])
def test_vectors_are_those_of_the_sum(folder: Path, task: str | None) -> None:
    reference = adapted.reference(task, folder)
    exact, served = LLM(folder, adapter=task, **EXACT), LLM(folder, adapter=task, threads=2)
    for output, near in zip(exact.embed(TEXTS), served.embed(TEXTS), strict=True):
        with torch.no_grad():
            states = reference(torch.tensor([list(output.prompt_token_ids)])).last_hidden_state[0].double().numpy()
        wanted = states.mean(0) / np.linalg.norm(states.mean(0))
        assert np.abs(np.array(output.embedding) - wanted).max() < 2**-15
        assert np.array(near.embedding) @ wanted > 0.9999


def test_the_same_bits_however_it_is_run(folder: Path) -> None:
    task = adapted.TASKS[1]
    alone = [LLM(folder, adapter=task, threads=1).embed(text)[0].embedding for text in TEXTS]
    for variant in supported_variants():
        assert vectors(folder, adapter=task, threads=2, variant=variant) == alone


def test_packed_weights_and_fingerprints_are_one_tasks(folder: Path, tmp_path: Path) -> None:
    found = {task: vectors(folder, adapter=task, threads=1) for task in (None, *adapted.TASKS)}
    assert len({repr(value) for value in found.values()}) == len(found)
    for _ in range(2):  # the second time, packed weights are read
        assert found == {task: vectors(folder, adapter=task, threads=1, packed_cache=tmp_path) for task in found}
    assert len({fingerprint(LLM(folder, adapter=task, threads=1)).settings for task in found}) == len(found)


def test_what_is_no_adapter_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"choose one of retrieval\.query, separation"):
        open_model(folder, adapter="classification")
    for model in (bert.save(tmp_path / "bert"), stories_gguf()):
        with pytest.raises(ValueError, match="this model has none"):
            open_model(model, adapter="separation")
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SafetensorsError, match="the tensors have none"):
        open_model(tmp_path / "bert", adapter="separation")
    (tmp_path / "bert" / "config.json").write_text(json.dumps({**config, "lora_adaptations": ["separation"]}))
    (tmp_path / "bert" / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(SafetensorsError, match="each of 1 tasks"):
        open_model(tmp_path / "bert", adapter="separation")
