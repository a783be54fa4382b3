"""surefoot verify, in this process."""

import json

import pytest
from typer.testing import CliRunner

from surefoot.cli.main import app
from surefoot.ops import supported_variants
from surefoot.sampling import Sampler
from tests.stories import stories_gguf


def words() -> list[str]:
    return ["verify", str(stories_gguf()), "--quick", "--requests", "8"]


def test_same_bits() -> None:
    result = CliRunner().invoke(app, [*words(), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["same"]
    assert report["num_requests"] == 8
    machines = {(one["variant"], one["threads"]) for one in report["conditions"]}
    assert machines >= {(variant, threads) for variant in supported_variants() for threads in (1, 2)}
    assert all(one["same"] and one["num_tokens"] > 0 for one in report["conditions"])


def test_one_variant() -> None:
    result = CliRunner().invoke(app, [*words(), "--variant", "portable", "--json"])
    found = json.loads(result.output)["conditions"]
    assert [one["threads"] for one in found if one["condition"]["variant"] == "portable"] == [1, 2]
    assert {one["variant"] for one in found} == {"portable", supported_variants()[0]}
    assert "no variant is named" in CliRunner().invoke(app, [*words(), "--variant", "gpu"]).output


def test_a_difference_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Sampler.draw

    def off(sampler: Sampler, logits: object, draws: list) -> list:
        drawn = honest(sampler, logits, draws)
        return [one._replace(token=one.token ^ 1) if len(draws) > 4 else one for one in drawn]

    monkeypatch.setattr(Sampler, "draw", off)
    result = CliRunner().invoke(app, words())
    assert result.exit_code == 1
    assert "differ" in result.output
