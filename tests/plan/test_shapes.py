"""Shapes by name: the same work as that of the files."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.api.opening import open_model
from surefoot.models import read_config
from surefoot.models.outline import OutlineCheckpoint
from surefoot.plan.shapes import MIXES, find_shape, known_shapes, make_header
from surefoot.plan.subject import find_subject, plan_model, size_model
from surefoot.weights import find_model
from surefoot.weights.gguf import Host
from tests.smollm2 import find_file

MODELS = Path("~/.cache/surefoot/models").expanduser()


@pytest.mark.parametrize("name", known_shapes())
def test_every_shape_can_be_planned(name: str) -> None:
    subject = find_subject(name).on(Host())
    assert subject.weight_bytes > 1e8 / 2
    assert "checked" in known_shapes()[name].source  # and where, or "not checked"


def count_weights(name: str) -> int:
    return sum(math.prod(tensor.shape) for tensor in make_header(known_shapes()[name], "").tensors.values())


@pytest.mark.parametrize("name", known_shapes())
def test_a_shape_has_as_many_weights_as_its_name_says(name: str) -> None:
    size = re.search(r"-(\d+(?:\.\d+)?)([bm])", name)
    assert size is not None
    named = float(size[1]) * (1e9 if size[2] == "b" else 1e6)
    assert count_weights(name) == pytest.approx(named, rel=0.1)


@pytest.mark.parametrize(
    ("name", "count"),
    [("llama-3.2-3b", 3.21e9), ("llama-3.1-8b", 8.03e9), ("qwen2.5-7b", 7.62e9), ("lfm2-1.2b", 1.17e9)],
)
def test_a_shape_has_as_many_weights_as_llama_bench_prints(name: str, count: float) -> None:
    assert count_weights(name) == pytest.approx(count, abs=5e6)


def test_a_shape_has_as_many_weights_as_its_index_of_bfloat16_files() -> None:
    assert count_weights("mistral-small-24b") == 47_144_806_400 // 2


@pytest.mark.parametrize("fmt", [*MIXES, "w8", "w4"])
def test_every_format(fmt: str) -> None:
    assert find_subject(f"smollm2-135m:{fmt}").on(Host()).weight_bytes > 0


def test_eight_bits_take_more_than_four() -> None:
    assert (
        find_subject("llama-1.2b:w8").on(Host()).weight_bytes
        > 1.5 * find_subject("llama-1.2b:q4_0").on(Host()).weight_bytes
    )


def test_an_unknown_format_is_refused_and_an_unknown_name_is_none() -> None:
    with pytest.raises(ValueError, match="q4_k_m"):
        find_shape("qwen3-8b:q3_x")
    assert find_shape("owner/name:Q4_0") is None


def test_embeddings_and_head_of_a_format_that_ends_in_l_have_eight_bits() -> None:
    types = {name: info.type.name for name, info in make_header(known_shapes()["qwen3-8b"], "q4_0_l").tensors.items()}
    assert {types.pop("token_embd.weight"), types.pop("output.weight")} == {"Q8_0"}
    assert set(types.values()) == {"Q4_0", "F32"}


def test_lfm2_has_as_many_bytes_as_its_file() -> None:
    """LiquidAI's LFM2.5-1.2B-Instruct-Q4_K_M.gguf, of the same shape; tokens and merges take some MB of it."""
    tensors = make_header(known_shapes()["lfm2-1.2b"], "q4_k_m").tensors.values()
    assert 2e6 < 730_895_168 - sum(tensor.nbytes for tensor in tensors) < 3e6


@pytest.mark.parametrize("name", ["lfm2-1.2b", "qwen3.5-2b"])
def test_six_layers_of_a_hybrid_have_attention_and_the_others_states(name: str) -> None:
    config = read_config(OutlineCheckpoint(make_header(known_shapes()[name], "q8_0")))
    assert len(config.attention_layers) == 6
    assert config.state_bytes > 0
    assert not known_shapes()[name].is_dense


def test_smollm2_is_its_file() -> None:
    planned, named = plan_model(open_model(find_file())), find_subject("smollm2-135m:q4_1").on(Host())
    assert (named.work, named.weight_bytes, named.file_bytes) == (
        planned.work, planned.weight_bytes, planned.file_bytes,
    )  # fmt: skip
    assert find_subject("smollm2-135m:w8").on(Host()).file_bytes is None


def _files() -> Iterator[tuple[str, str, bool]]:
    yield "gemma-3-270m", "gemma-3-270m-Q4_K_M.gguf", True
    yield "qwen2.5-1.5b", "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf", False  # this file has a head of its own


@pytest.mark.reference
@pytest.mark.parametrize(("name", "file", "tied"), list(_files()))
def test_a_shape_in_q4_k_m_is_its_file(name: str, file: str, tied: bool) -> None:
    path = MODELS / file
    if not path.exists():
        pytest.skip(f"{file} is not in the cache")
    planned = plan_model(open_model(find_model(str(path))))
    named = size_model(name, make_header(replace(known_shapes()[name], tied=tied), "q4_k_m"))
    assert (named.work, named.weight_bytes) == (planned.work, planned.weight_bytes)
