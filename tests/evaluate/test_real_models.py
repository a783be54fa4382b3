"""Real files: perplexity as good as llama.cpp's, and logits closer to float32 than those of llama.cpp and bfloat16."""

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surefoot.evaluate import evaluate
from surefoot.evaluate.engines import float_engine, integer_engine
from surefoot.models import load
from surefoot.ops import Backend, KvForm, SamplingRows
from surefoot.runner import SessionRunner
from tests.cli.process import COMMAND
from tests.models import llama2c

SHARED = Path(__file__).parents[3] / "shared"
TEXT = SHARED / "data" / "wikitext2-test.raw"

pytestmark = pytest.mark.reference


def run(model: Path, *options: str) -> dict[str, Any]:
    if not TEXT.exists():
        pytest.skip(f"{TEXT} is not there")
    done = subprocess.run(
        [*COMMAND, "eval", "perplexity", str(model), "--text", str(TEXT), "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def smollm2(model_file: Callable[[str], Path]) -> dict[str, Any]:
    peer = ["--llamacpp"] if importlib.util.find_spec("xllamacpp") else []
    forms = [word for form in ("keys-two-limbs", "two-limbs", "one-limb") for word in ("--kv-form", form)]
    return run(model_file("smollm2"), "--limit", "512", "--re-expressed", *forms, *peer)


@pytest.mark.nightly
def test_as_good_as_llama_cpp(smollm2: dict[str, Any]) -> None:
    if "llama.cpp" not in smollm2["scores"]:
        pytest.skip("xllamacpp is not installed: pip install xllamacpp")
    ours, theirs = (smollm2["scores"][name] for name in ("keys-two-limbs", "llama.cpp"))
    assert ours["perplexity"] == pytest.approx(theirs["perplexity"], rel=0.005)
    assert ours["fidelity"]["mean_kl"] < theirs["fidelity"]["mean_kl"] / 10


@pytest.mark.nightly
def test_served_arithmetic_is_more_accurate_than_bfloat16(smollm2: dict[str, Any]) -> None:
    """Engines that compute in bfloat16 are at 0.0005 on this file."""
    fidelity = {name: score["fidelity"] for name, score in smollm2["scores"].items() if score["fidelity"]}
    assert fidelity["keys-two-limbs"]["mean_kl"] <= 0.0002
    assert fidelity["two-limbs"]["mean_kl"] <= 0.00003
    assert fidelity["re-expressed"]["mean_kl"] <= 0.00001
    assert 0.0002 < fidelity["one-limb"]["mean_kl"] < 0.002  # the option has its price


def test_rounding_float_weights_to_w8(model_file: Callable[[str], Path]) -> None:
    """stories15M on sixteen stories that it generates itself, as a text of its kind."""
    backend, checkpoint = Backend(threads=2), llama2c.read(model_file("stories15m"))
    model = load(backend, checkpoint)
    windows = tell(backend, SessionRunner.make(backend, model, num_tokens=16 * 256, max_sessions=16))
    results = evaluate(
        windows, [integer_engine(backend, model, KvForm.KEYS_TWO_LIMBS, 256)], float_engine(backend, checkpoint, 256)
    )
    fidelity = results.scores["keys-two-limbs"].fidelity
    assert fidelity is not None
    assert results.scores["float32"].perplexity < 4
    assert fidelity.mean_kl <= 0.001


def tell(backend: Backend, runner: SessionRunner, bos: int = 1) -> list[list[int]]:
    stories = [[bos] for _ in range(16)]
    sessions = [runner.open(256) for _ in stories]
    for position in range(1, 256):
        logits = runner.decode(sessions, [story[-1] for story in stories])
        rows = SamplingRows.of(16, temperature=1.0, seeds=list(range(16)), positions=position)
        for story, token in zip(stories, runner.sample(logits, rows).tokens, strict=True):
            story.append(int(token))
    return stories
