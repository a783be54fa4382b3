"""Families that are recognised and not run are refused by name, before anything is fetched."""

from pathlib import Path

import pytest

from surefoot.models import check_supported, family_of
from surefoot.models.not_run import NOT_RUN

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.mark.parametrize(
    ("metadata", "title"),
    [
        ({"model_type": "deepseek_v4"}, "DeepSeek V4"),
        ({"model_type": "glm5_next_text"}, "GLM 5.3 Flash"),
        ({"model_type": "kimi_linear", "attn_res_block_size": 12}, "Kimi K3"),
        ({"model_type": "minimax_m3_vl_text"}, "MiniMax M3"),
        ({"model_type": "qwen4_exp_text"}, "Qwen 3.8 Flash-Next"),
        ({"general.architecture": "deepseek4"}, "DeepSeek V4"),
        ({"general.architecture": "glm5next"}, "GLM 5.3 Flash"),
        ({"general.architecture": "kimi-k3"}, "Kimi K3"),
        ({"general.architecture": "minimax-m3"}, "MiniMax M3"),
        ({"general.architecture": "qwen4exp"}, "Qwen 3.8 Flash-Next"),
    ],
)
def test_the_refusal_names_the_model_and_what_is_missing(metadata: dict[str, str], title: str) -> None:
    name, missing = NOT_RUN[family_of(metadata)]
    assert name == title
    with pytest.raises(ValueError, match=f"^{title} .* is not supported yet: what is missing are {missing}$"):
        check_supported(metadata)


def test_the_page_lists_them() -> None:
    text = PAGE.read_text()
    assert [title for title, _ in NOT_RUN.values() if f"| {title} |" not in text] == []


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("kimi_k2", "deepseek_v2"),  # what published files of Kimi K2 and of K2.5's text model say
        ("qwen3_5_text", "qwen3_5"),  # Qwen 3.6 and 3.8 too
        ("qwen3_5_moe_text", "qwen3_5_moe"),
        ("qwen3_next", "qwen3_next"),  # Qwen3-Coder-Next too
    ],
)
def test_types_that_several_models_share(kind: str, family: str) -> None:
    check_supported({"model_type": kind})
    assert family_of({"model_type": kind}) == family
