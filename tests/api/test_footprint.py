"""The memory of a model's process, planned from its file's header."""

from dataclasses import replace

import pytest

from surefoot import LLM
from surefoot.api.footprint import ModelOptions, plan_footprint
from surefoot.api.opening import open_model
from tests.stories import stories_gguf

REQUEST = ModelOptions(max_context=256, max_running=4, speculate="off")


def test_model_runs_with_what_was_planned() -> None:
    plan = plan_footprint(open_model(stories_gguf()), REQUEST)
    llm = LLM(stories_gguf(), max_context=256, max_running=4, kv_bytes=plan.kv)
    assert llm.max_context == plan.max_context == 256
    assert llm.runner.kv.total_bytes <= plan.kv
    assert llm.read_bytes(0) <= plan.weights


def test_draft_counts() -> None:
    own = plan_footprint(open_model(stories_gguf()), REQUEST)
    both = plan_footprint(open_model(stories_gguf()), replace(REQUEST, speculate=f"draft:{stories_gguf()}"))
    assert both.weights >= 2 * own.weights - 1


def test_context_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MemoryError, match="too few for a context of 256"):
        plan_footprint(open_model(stories_gguf()), replace(REQUEST, kv_bytes=1 << 10))
