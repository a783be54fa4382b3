"""`draft:FOLDER` with Medusa heads: answers are those without them, and drafts are made and accepted."""

from pathlib import Path

import pytest

from surefoot import LLM, SamplingParams
from surefoot.api.footprint import ModelOptions, plan_footprint
from surefoot.api.opening import open_model
from surefoot.api.speculation import check_draft
from surefoot.weights import MetadataError

tiny = pytest.importorskip("tests.models.tiny")
tiny_medusa = pytest.importorskip("tests.models.tiny_medusa")

PROMPTS = [[1 + number % 200 for number in range(100)], [7, 8, 9], [number * number % 251 for number in range(40)]]
PARAMS = [
    SamplingParams(max_tokens=40, temperature=0, logprobs=1, ignore_eos=True),
    SamplingParams(max_tokens=40, temperature=0.8, seed=3, n=2, logprobs=1, ignore_eos=True),
    SamplingParams(max_tokens=40, temperature=0.5, seed=4, presence_penalty=0.5, logprobs=1, ignore_eos=True),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    tiny.save("llama", folder)
    return folder


def save_heads(folder: Path, form: str = "medusa") -> Path:
    output = tiny.reference("llama").lm_head.weight.detach().numpy()
    path: Path = tiny_medusa.save(tiny_medusa.make_heads(output), form, folder)
    return path


def opened(target: Path, speculate: str) -> LLM:
    return LLM(target, threads=1, speculate=speculate, kv_bytes=32 << 20, max_context=256)


@pytest.mark.parametrize("form", tiny_medusa.FORMS)
def test_answers_are_the_same(target: Path, tmp_path: Path, form: str) -> None:
    answers = []
    for speculate in ("off", f"draft:{save_heads(tmp_path / 'heads', form)}"):
        llm = opened(target, speculate)
        outputs = llm.generate(PROMPTS, PARAMS)
        answers.append([[(one.token_ids, one.logprobs) for one in output.outputs] for output in outputs])
        assert llm.speculator is None or llm.speculator.is_enabled
        llm.close()
    assert answers[0] == answers[1]


def test_another_models_heads_are_refused(target: Path, tmp_path: Path) -> None:
    heads = tiny_medusa.make_heads(tiny.torch.zeros(300, 96).numpy())
    with pytest.raises(MetadataError, match=r"cannot draft for this model: medusa\.0\.output\.weight has the shape"):
        opened(target, f"draft:{tiny_medusa.save(heads, 'medusa', tmp_path)}")


def test_heads_count_in_the_footprint(target: Path, tmp_path: Path) -> None:
    model = open_model(target)
    plain, with_heads = (
        plan_footprint(model, ModelOptions(max_context=256, speculate=speculate))
        for speculate in ("lookup", f"draft:{save_heads(tmp_path / 'heads')}")
    )
    assert with_heads.weights > plain.weights


def test_heads_of_the_hub_are_not_taken_for_a_model() -> None:
    """Their config names no model type."""
    check_draft({"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "x"})
    check_draft({"model_type": "medusa"})
