"""Default sampling parameters: those of the model's files or surefoot's, and what overrides them."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surefoot import LLM, SamplingParams
from surefoot.api.defaults import CALLING_TEMPERATURE, OWN, for_calls, from_generation_config, from_gguf, parse_sampling
from surefoot.api.opening import open_model
from tests.api.defaults import advised_gguf
from tests.stories import stories_gguf


def test_defaults_from_generation_config() -> None:
    config = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20.0, "eos_token_id": [1, 2]}
    defaults = from_generation_config(config)
    assert defaults.params == SamplingParams(temperature=0.6, top_p=0.9, top_k=20), "what is not stated is off"
    assert "generation_config.json" in defaults.source
    assert from_generation_config({**config, "do_sample": False}).params.is_greedy
    assert from_generation_config({"eos_token_id": 3, "temperature": None}).params == OWN


def test_our_own_defaults_are_cooler_where_tools_may_be_called() -> None:
    assert for_calls(OWN) == replace(OWN, temperature=CALLING_TEMPERATURE)
    for chosen in (SamplingParams(temperature=0.8), replace(OWN, top_k=7)):
        assert for_calls(chosen) == chosen, "chosen by the model's files or the operator"


def test_defaults_from_gguf(tmp_path: Path) -> None:
    defaults = open_model(advised_gguf(tmp_path / "advised.gguf")).sampling
    assert defaults.params == SamplingParams(temperature=0.5, top_k=7)
    (line,) = defaults.ignored
    assert "min_p must lie between 0.0 and 1.0, not at 2.5" in line
    assert open_model(stories_gguf()).sampling.params == OWN


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 1e9), ("temperature", -1), ("temperature", math.nan), ("temperature", "hot"),
        ("temperature", True), ("temperature", [1]), ("top_k", 1.5), ("top_k", -7), ("top_k", 2**40), ("top_p", 0),
        ("top_p", math.inf), ("repetition_penalty", 0), ("repetition_penalty", {}),
    ],
)  # fmt: skip
def test_invalid_defaults_of_a_file_are_ignored(name: str, value: Any) -> None:
    defaults = from_generation_config({name: value})
    assert defaults.params == OWN
    assert name in defaults.ignored[0]
    with_another = from_generation_config({name: value, "min_p": 0.25})
    assert with_another.params == SamplingParams(min_p=0.25), "one wrong value spoils no other"


def test_top_k_of_minus_one_is_off() -> None:
    assert from_gguf({"general.sampling.top_k": -1, "general.sampling.temp": 0.3}).params.top_k == 0


def test_words_of_the_command_line() -> None:
    assert parse_sampling(["temperature=0.2", "top_k=5"]) == {"temperature": 0.2, "top_k": 5}
    changed = open_model(stories_gguf(), parse_sampling(["top_k=5"])).sampling
    assert changed.params == replace(OWN, top_k=5)
    assert "changed" in str(changed)


@pytest.mark.parametrize("word", ["temperature", "temp=1", "temperature=", "temperature=1e9", "top_k=1.5", "n=2", "=1"])
def test_invalid_sampling_options_name_the_valid_ones(word: str) -> None:
    with pytest.raises(ValueError, match=r"--sampling"):
        parse_sampling([word])


def test_request_parameters_replace_defaults(tmp_path: Path) -> None:
    """In Python, SamplingParams replaces all defaults; without it, the model's recommendation counts."""
    path = advised_gguf(tmp_path / "advised.gguf")
    llm = LLM(path, max_context=64, sampling={"temperature": 0.0})
    assert llm.default_sampling == SamplingParams(temperature=0.0, top_k=7)

    def tokens(params: SamplingParams | None) -> list[int]:
        return list(llm.generate("Once", params)[0].outputs[0].token_ids[:12])

    greedy = tokens(SamplingParams(temperature=0, max_tokens=12))
    assert tokens(replace(llm.default_sampling, max_tokens=12)) == greedy
    assert tokens(None) == greedy
    assert tokens(SamplingParams(temperature=50, max_tokens=12, seed=1)) != greedy
