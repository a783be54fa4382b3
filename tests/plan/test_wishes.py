"""What is asked of a machine, in words."""

import pytest

from surefoot.plan.planning import ServiceLevel
from surefoot.plan.wishes import EXAMPLE, Wish, nearest_shape, read_wish


def test_the_example() -> None:
    service = ServiceLevel(2000, 300, 5.0, 5.0)
    assert read_wish(EXAMPLE.strip('"')) == Wish(20, "llama-3.1-8b", service)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("8B at 8 bits", "llama-3.1-8b:q8_0"),
        ("1.2b:w8", "llama-1.2b:w8"),
        ("qwen3-30b-a3b", "qwen3-30b-a3b"),
        ("70B", "llama-3.3-70b"),
        ("lfm2-1.2b:q8_0", "lfm2-1.2b:q8_0"),
        ("gemma-4-26b-a4b", "gemma-4-26b-a4b"),
    ],
)
def test_models(text: str, model: str) -> None:
    assert read_wish(text).model == model


@pytest.mark.parametrize("text", ["20 elephants", "0 users", "qwen9", "answers of 1"])
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"like|at least"):
        read_wish(text)


def test_the_nearest_shape_is_dense() -> None:
    assert nearest_shape(3e10) == "qwen3-32b"
