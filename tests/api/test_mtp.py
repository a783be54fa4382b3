"""A folder whose checkpoint brings a layer for drafting: `auto` uses it, and answers are those without it."""

from pathlib import Path

import pytest

from surefoot import LLM, SamplingParams

tiny_mtp = pytest.importorskip("tests.models.tiny_mtp")

PROMPT = [1 + number % 200 for number in range(100)]
PARAMS = SamplingParams(max_tokens=20, temperature=0, logprobs=1, ignore_eos=True)


def test_auto_drafts_with_the_models_own_layer_and_restarts_warm(tmp_path: Path) -> None:
    model, cache = tmp_path / "model", tmp_path / "cache"
    model.mkdir()
    tiny_mtp.save("qwen3_5", model)
    answers, cached = [], []
    for speculate, has_layer in (("off", False), ("lookup", False), ("auto", True), ("auto", True)):
        llm = LLM(model, threads=1, speculate=speculate, prompt_cache=cache, kv_bytes=32 << 20, max_context=256)
        assert (llm.model.drafting is not None) == has_layer
        (output,) = llm.generate([PROMPT], PARAMS)
        llm.close()
        answers.append((output.outputs[0].token_ids, output.outputs[0].logprobs))
        cached.append(output.usage.num_cached)
    assert all(answer == answers[0] for answer in answers)
    assert cached == [0, 96, 0, 96], "the layer keeps keys and values of its own"
