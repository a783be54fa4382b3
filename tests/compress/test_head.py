"""A draft head of stories260K: trained on the target's stories, then used for drafts."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e ./compress")
from surefoot.api import LLM, SamplingParams  # noqa: E402
from surefoot.ops.weights import dequantise  # noqa: E402
from surefoot.runner import DraftHead, load_head  # noqa: E402
from surefoot_compress.answers import read_answers, write_answers  # noqa: E402
from surefoot_compress.distill import TrainingProgress, TrainingSettings  # noqa: E402
from surefoot_compress.errors import CompressError  # noqa: E402
from surefoot_compress.head import HeadTarget, TrainableHead  # noqa: E402
from surefoot_compress.make_head import HeadOptions, make_head  # noqa: E402
from tests.stories import stories_gguf  # noqa: E402

NAMES = ("Tim", "Lily", "Ben", "Mia", "Sam", "Sue", "Tom", "Anna")
THINGS = ("a dog", "a red ball", "a big tree", "the sea", "a cake")
BEGINNINGS = [f"Once upon a time, {name} saw {thing}" for thing in THINGS for name in NAMES]


def options(folder: Path, steps: int) -> HeadOptions:
    prompts = folder / "prompts.txt"
    prompts.write_text("\n".join(BEGINNINGS), encoding="utf-8")
    settings = TrainingSettings(steps=steps, rate=3e-3, warm_up=2, reverse=0.0, batch=64)
    return HeadOptions(prompts, settings, num_new=32, inside=96, vocabulary=300)


def test_a_draft_head_learns_and_drafts(tmp_path: Path) -> None:
    out = tmp_path / "head.safetensors"
    summary = make_head(stories_gguf(), out, options(tmp_path, 60))
    assert summary.known > 0.9
    assert summary.accepted_untaught[0] < 0.1
    assert summary.accepted_taught[0] > summary.accepted_untaught[0] + 0.2
    assert sorted(summary.accepted_taught, reverse=True) == list(summary.accepted_taught)
    assert not list(tmp_path.glob("*.training"))
    llm = LLM(stories_gguf(), threads=1, max_context=128, speculate=f"draft:{out}")
    plain = LLM(stories_gguf(), threads=1, max_context=128, speculate="off")
    greedy = SamplingParams(temperature=0, max_tokens=60)
    drafted, plainly = (each.generate("Once upon a time, Lucy saw", greedy)[0] for each in (llm, plain))
    assert drafted.outputs == plainly.outputs


def test_training_resumes(tmp_path: Path) -> None:
    """An interrupted training gives the same bits as an uninterrupted one, and no answer is written twice."""
    straight, stopped = tmp_path / "straight.safetensors", tmp_path / "stopped.safetensors"
    make_head(stories_gguf(), straight, options(tmp_path, 4))

    def stop(progress: TrainingProgress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_head(stories_gguf(), stopped, options(tmp_path, 4), stop)
    (wave,) = (tmp_path / "stopped.answers").iterdir()
    written = wave.stat().st_mtime_ns
    make_head(stories_gguf(), stopped, options(tmp_path, 4))
    assert wave.stat().st_mtime_ns == written
    assert straight.read_bytes() == stopped.read_bytes()


def test_the_torch_head_equals_the_runners(tmp_path: Path) -> None:
    llm = LLM(stories_gguf(), threads=1, max_context=64, speculate="off")
    target, path = HeadTarget(llm), tmp_path / "head.safetensors"
    head = TrainableHead(target, 48, 2.0, seed=1)
    with torch.no_grad():
        head.parameters()["out.weight"].normal_(0, 0.1, generator=torch.Generator().manual_seed(2))
    head.save(np.arange(512), path)
    states, tokens = np.random.default_rng(3).standard_normal((5, target.width)).astype(np.float32), np.arange(40, 45)
    weights = load_head(path, target.width, llm.config.vocab_size)
    with torch.no_grad():  # with the runner's weights, which are rounded
        head.parameters()["in.weight"].copy_(torch.tensor(dequantise(weights.inner)))
        head.parameters()["out.weight"].copy_(torch.tensor(dequantise(weights.outer)) / 2.0)
        states_after = head.step(torch.tensor(states), torch.tensor(target.embeddings(tokens))).numpy()
    expected = DraftHead(llm.backend, llm.model, weights).step(states, tokens)
    assert np.abs(states_after - expected).max() < 0.02 * np.abs(expected - states).max()  # of bfloat16


def test_recorded_answers_are_the_targets(tmp_path: Path) -> None:
    llm = LLM(stories_gguf(), threads=1, max_context=128, max_running=8, speculate="off")
    write_answers(llm, BEGINNINGS[:2], 12, tmp_path / "answers", lambda done, total: None)
    greedy, _ = read_answers(tmp_path / "answers" / "0000.safetensors")
    expected = llm.generate(BEGINNINGS[0], SamplingParams(temperature=0, max_tokens=12))[0].outputs[0]
    assert greedy.tokens.tolist() == list(expected.token_ids)
    assert HeadTarget(llm).logits(greedy.states).argmax(axis=-1).tolist() == greedy.tokens.tolist()


def test_too_few_prompts_are_refused(tmp_path: Path) -> None:
    prompts = tmp_path / "few.txt"
    prompts.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(CompressError, match="2 prompts"):
        make_head(stories_gguf(), tmp_path / "head.safetensors", HeadOptions(prompts, TrainingSettings(steps=1)))
