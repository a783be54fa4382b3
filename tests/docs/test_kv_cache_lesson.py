"""The KV cache changes nothing, and the lesson's plot shows what it was given."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from surefoot import LLM
from tests.stories import stories_gguf

LESSON = Path(__file__).parents[2] / "docs/lessons/kv_cache.py"


@pytest.fixture(scope="module")
def lesson() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kv_cache", LESSON)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kv_cache"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_tokens_and_logprobs_are_identical(lesson: ModuleType, temperature: float) -> None:
    llm = LLM(stories_gguf(), prefix_caching=False)
    prompt = llm.tokenizer.encode("Once upon a time")
    cached = lesson.with_cache(llm, prompt, lesson.sampling(64, temperature))
    assert len(cached) == 64
    assert lesson.without_cache(llm, prompt, lesson.sampling(1, temperature), 64) == cached


@pytest.mark.nightly
def test_longer_pasts_cost_more_without_a_cache(lesson: ModuleType) -> None:
    llm = LLM(stories_gguf(), prefix_caching=False)
    timings = lesson.measure(llm, [1] * 256, [8, 256], rounds=3)
    assert timings[1].without > 2 * timings[0].without
    assert timings[1].speed_up > 2


def test_the_plot_is_svg_with_every_point(lesson: ModuleType) -> None:
    timings = [lesson.Timing(16, 5.0, 2.0), lesson.Timing(64, 20.0, 2.1), lesson.Timing(256, 90.0, 2.4)]
    root = ElementTree.fromstring(lesson.draw(timings, "a model"))
    shapes = [child.tag.partition("}")[2] for child in root]
    assert (shapes.count("polyline"), shapes.count("circle")) == (2, 6)
    assert {"16", "64", "256", "a model"} <= {child.text for child in root}
