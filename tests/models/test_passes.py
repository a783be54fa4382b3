"""Which families are recorded once for all shapes, and which shape by shape."""

import pytest

from surefoot.engine.capacity import MAX_STEP_TOKENS, workspace_bytes
from surefoot.models import ENCODERS, FAMILIES
from surefoot.ops import Backend
from tests.models import tiny

# Latent attention, and streams side by side, have arguments that are no multiples of the rows.
SHAPE_BY_SHAPE = ("deepseek_v2", "gemma3n", "kimi_linear", "mistral4")
decoders = pytest.mark.parametrize("name", sorted({*FAMILIES} - set(ENCODERS)))


@decoders
def test_recorded_once(backend: Backend, name: str) -> None:
    runner = tiny.make_runner(backend, tiny.make_model(backend, name)).runner
    runner.prepare(64, 8, 8)
    assert runner._passes is not None
    assert bool(runner._passes._programs) == (name not in SHAPE_BY_SHAPE)
    assert runner._passes.capacity == (64, 8, 8)


@decoders
def test_a_step_takes_no_more_than_was_reckoned(backend: Backend, name: str) -> None:
    runner = tiny.make_runner(backend, tiny.make_model(backend, name)).runner
    runner.prepare(MAX_STEP_TOKENS, 32, 32)
    assert runner._workspace.total_bytes <= workspace_bytes(runner.model.config, 32)


def test_where_all_layers_have_experts_only_their_units_are_reckoned(backend: Backend) -> None:
    assert tiny.make_model(backend, "qwen3_moe").config.ffn == tiny.MOE["moe_intermediate_size"]
