"""`draft:PATH` with a published head: answers are those without it, and a restart finds its keys and values."""

import json
from pathlib import Path

import pytest

from surefoot import LLM, SamplingParams
from surefoot.api.footprint import ModelOptions, plan_footprint
from surefoot.api.opening import open_model
from surefoot.api.speculation import check_draft
from surefoot.weights import MetadataError

tiny = pytest.importorskip("tests.models.tiny")
tiny_eagle = pytest.importorskip("tests.models.tiny_eagle")

PROMPT = [1 + number % 200 for number in range(100)]
PARAMS = SamplingParams(max_tokens=30, temperature=0, logprobs=1, ignore_eos=True)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    tiny.save("llama", folder)
    return folder


def save_head(form: str, folder: Path, seed: int = 3) -> Path:
    model = tiny.reference("llama")
    tables = (part.weight.detach().numpy() for part in (model.get_input_embeddings(), model.lm_head))
    path: Path = tiny_eagle.save(tiny_eagle.make_head(*tables, seed=seed), form, folder)
    return path


def opened(target: Path, speculate: str, cache: Path | None = None) -> LLM:
    return LLM(target, threads=1, speculate=speculate, prompt_cache=cache, kv_bytes=32 << 20, max_context=256)


@pytest.mark.parametrize("form", tiny_eagle.FORMS)
def test_answers_are_the_same(target: Path, tmp_path: Path, form: str) -> None:
    answers = []
    for speculate in ("off", f"draft:{save_head(form, tmp_path / 'head')}"):
        llm = opened(target, speculate)
        assert (llm.model.drafting is not None) == (speculate != "off")
        (output,) = llm.generate([PROMPT], PARAMS)
        answers.append((output.outputs[0].token_ids, output.outputs[0].logprobs))
        assert llm.speculator is None or llm.speculator.is_enabled
        llm.close()
    assert answers[0] == answers[1]


def test_a_restart_is_warm_for_the_same_head_alone(target: Path, tmp_path: Path) -> None:
    heads = [f"draft:{save_head('speculators', tmp_path / str(seed), seed)}" for seed in (3, 4)]
    cached = []
    for speculate in ("off", heads[0], heads[0], heads[1]):
        llm = opened(target, speculate, tmp_path / "cache")
        (output,) = llm.generate([PROMPT], PARAMS)
        llm.close()
        cached.append(output.usage.num_cached)
    assert cached == [0, 0, 96, 0]


def test_another_models_head_is_refused(target: Path, tmp_path: Path) -> None:
    folder = save_head("specforge", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 300}))
    with pytest.raises(MetadataError, match="cannot draft for this model: it knows 300 tokens, and the model 256"):
        opened(target, f"draft:{folder}")


@pytest.mark.parametrize("form", tiny_eagle.FORMS)
def test_a_head_counts_in_the_footprint(target: Path, tmp_path: Path, form: str) -> None:
    model = open_model(target)
    plain, with_head = (
        plan_footprint(model, ModelOptions(max_context=256, speculate=speculate))
        for speculate in ("lookup", f"draft:{save_head(form, tmp_path / 'head')}")
    )
    assert with_head.weights > plain.weights


def test_a_head_of_the_hub_is_not_taken_for_a_model() -> None:
    """Its architecture is checked before its weights are fetched."""
    check_draft({"speculators_model_type": "eagle3", "transformer_layer_config": {}})
    check_draft({"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"})
    check_draft({"general.architecture": "eagle3"})
    with pytest.raises(ValueError, match="not supported"):
        check_draft({"model_type": "mamba"})
