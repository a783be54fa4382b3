"""Embeddings: the same bits under any schedule, and equal to those of transformers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot import LLM, SamplingParams
from surefoot.core import FinishReason, Pooling, Request
from surefoot.engine import Engine
from surefoot.ops import KvForm
from surefoot.scheduler import SchedulerConfig
from tests.engine.engine import CONFIG, make_engine, model

PROMPTS = [tuple(range(300, 300 + length)) for length in (1, 15, 16, 17, 120)] + [tuple(range(300, 400))]
PARAMS = SamplingParams(max_tokens=1, seed=0)


def run(engine: Engine, given: list[Request], preempt_every: int = 0) -> dict[str, tuple[float, ...]]:
    for request in given:
        engine.add(request)
    answers, num_steps = {}, 0
    while engine.has_work:
        for event in engine.step():
            if event.embedding is not None:
                assert (event.tokens, event.reason) == ((), FinishReason.STOP)
                answers[event.key.request] = event.embedding
        engine.planner.audit()
        num_steps += 1
        # Preempted a few times only: embeddings are not cached, so each preemption starts over.
        if preempt_every and num_steps % preempt_every == 0 and num_steps < 20:
            for sample in list(engine.planner._running.prefilling):
                engine.planner.preempt(sample.key)
    return answers


def asked() -> list[Request]:
    """Each prompt with each pooling."""
    return [
        Request(f"{pooling.value}{number}", prompt, PARAMS, pooling=pooling)
        for number, prompt in enumerate(PROMPTS)
        for pooling in Pooling
    ]


def company() -> list[Request]:
    """Some of it with the same beginnings, so that the cache has them."""
    params = SamplingParams(max_tokens=6, seed=3, n=2)
    return [Request(f"c{number}", prompt, params) for number, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[float, ...]]:
    answers: dict[str, tuple[float, ...]] = {}
    for request in asked():
        answers |= run(make_engine(), [request])
    assert len(answers) == len(PROMPTS) * len(Pooling)
    single = {answers[f"{pooling.value}0"] for pooling in Pooling}
    assert len(single) == 1, "of one token, all poolings are its state"
    means = {answers[f"mean{number}"] for number in range(len(PROMPTS))}
    lasts = {answers[f"last{number}"] for number in range(len(PROMPTS))}
    assert len(means) == len(lasts) == len(PROMPTS)
    assert len({answers[f"cls{number}"] for number in range(len(PROMPTS))}) == 1, "all begin with the same token"
    assert {len(one) for one in answers.values()} == {model().config.width}
    return answers


@pytest.mark.parametrize(
    ("config", "preempt_every"),
    [
        (CONFIG, 0),
        (replace(CONFIG, max_chunk=1), 0),
        (replace(CONFIG, max_chunk=7, max_running=2), 0),
        (replace(CONFIG, max_chunk=33), 3),
    ],
    ids=["together", "token by token", "few rows", "preempted"],
)
def test_batching_does_not_change_embeddings(
    alone: dict[str, tuple[float, ...]], config: SchedulerConfig, preempt_every: int
) -> None:
    engine = make_engine(config)
    assert run(engine, company() + asked(), preempt_every) == alone
    before = engine.planner.kv.tree.num_nodes
    assert before > 0
    assert run(engine, asked(), preempt_every) == alone, "with all its blocks in the cache"
    assert engine.planner.kv.tree.num_nodes == before, "an embedding leaves nothing in the cache"
    assert engine.planner.num_preemptions > 0 or not preempt_every


def test_a_failing_neighbour_does_not_change_answers(
    alone: dict[str, tuple[float, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is run again, one by one, after its hidden states were added."""
    engine = make_engine(replace(CONFIG, max_chunk=16))
    honest = engine._executor._sampler.draw

    def fail_together(logits: object, draws: list) -> list:
        if len(draws) > 1:
            raise RuntimeError("together")
        return honest(logits, draws)

    monkeypatch.setattr(engine._executor._sampler, "draw", fail_together)
    greedy = SamplingParams(max_tokens=9, temperature=0, seed=0)
    others = [Request(f"g{number}", PROMPTS[1], greedy) for number in range(2)]
    assert run(engine, others + asked()) == alone


def test_cancelled_and_refused() -> None:
    engine = make_engine(replace(CONFIG, max_chunk=16))
    request = next(one for one in asked() if len(one.prompt) == 120)
    engine.add(request)
    engine.step()
    engine.abort(request.id)
    (last,) = engine.step()
    assert (last.reason, last.embedding) == (FinishReason.CANCELLED, None)
    engine.planner.audit()
    with pytest.raises(ValueError, match="n must be 1"):
        replace(request, params=replace(PARAMS, n=2))


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_pools_transformers_hidden_states(family: str, pooling: str, tmp_path: Path) -> None:
    torch, tiny = pytest.importorskip("torch"), pytest.importorskip("tests.models.tiny")
    tiny.save(family, tmp_path)
    prompts = [tiny.tokens(length) for length in (1, 40, 150)]
    llm = LLM(tmp_path, threads=2, float_format="f32", kv_form=KvForm.TWO_LIMBS, pooling=pooling)
    for output in llm.embed(prompts):
        with torch.no_grad():
            states = tiny.reference(family).model(torch.tensor([output.prompt_token_ids])).last_hidden_state[0]
        wanted = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling].numpy()
        assert np.abs(np.array(output.embedding) - wanted).max() < 1e-3 * np.abs(wanted).max()
