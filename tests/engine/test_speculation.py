"""Drafts in the engine do not change answers. Batches, chunks and preemption with drafts: test_invariance."""

import functools
from collections.abc import Callable, Mapping, Sequence

import pytest

from surefoot.api import LLM
from surefoot.core import FinishReason, Request, SampleKey, SamplingParams
from surefoot.engine import Engine, Usage
from surefoot.ops import Stopped
from surefoot.runner import DraftModel, executor
from surefoot.sampling import Sampler
from surefoot.sampling.grammar import Constraint
from surefoot.speculate import NO_DRAFT, Drafter, LookupDrafter, LookupFirst, Speculator
from surefoot.verify.drafters import RULES, RandomDepths, ScriptedDrafter
from tests.engine.engine import Answers, expected, finish, requests, run
from tests.engine.speculation import (
    FixedDepth,
    draft_runner,
    grammar_answers,
    grammar_requests,
    make_engine,
    scripted,
    truth_of,
)
from tests.stories import stories_gguf


@pytest.mark.parametrize("depth", [1, 6])
@pytest.mark.parametrize("name", [*RULES, "lookup", "draft model", "both"])
def test_drafts_do_not_change_answers(name: str, depth: int) -> None:
    makers: dict[str, Callable[[], Drafter]] = {
        "lookup": LookupDrafter,
        "draft model": lambda: DraftModel(draft_runner(), 512),
        "both": lambda: LookupFirst(LookupDrafter(), DraftModel(draft_runner(), 512)),
    }
    make = makers[name] if name in makers else scripted(expected(), name)
    assert run(make_engine(Speculator(make(), FixedDepth(depth))), requests()) == expected()


@pytest.mark.parametrize("name", [*RULES, "lookup", "draft model"])
def test_grammars_and_stops_inside_drafts(name: str) -> None:
    """A grammar ends with a stop token, which some drafts contain."""
    wanted = grammar_answers()
    assert {reason for _, _, reason in wanted.values()} <= {FinishReason.STOP, FinishReason.LENGTH}
    assert FinishReason.STOP in {reason for _, _, reason in wanted.values()}
    makers: dict[str, Callable[[], Drafter]] = {
        "lookup": LookupDrafter,
        "draft model": lambda: DraftModel(draft_runner(), 512),
    }
    make = makers[name] if name in makers else scripted(wanted, name)
    engine = make_engine(Speculator(make(), RandomDepths(max_depth=7)), with_grammars=True)
    assert run(engine, grammar_requests()) == wanted


def test_forced_tokens_are_drafted_and_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLE_S", "MASKS_S"):  # a mask that is late ends the drafts, and a busy machine makes masks late
        monkeypatch.setattr(executor, name, 60.0)
    request = grammar_requests()[3]
    nothing = ScriptedDrafter({}, RULES["wrong"], 512)
    nothing.offers = lambda keys, max_depth: [NO_DRAFT] * len(keys)
    (used,) = usages(make_engine(Speculator(nothing, FixedDepth(9)), with_grammars=True), [request])
    assert used.num_drafted == used.num_accepted > 8  # "name": , "age": and the quotes around


def test_forced_tokens_are_not_computed_if_drafts_cannot_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Constraint] = []
    monkeypatch.setattr(Constraint, "forced", lambda constraint: asked.append(constraint) or ())
    closed, speculator = FixedDepth(9), Speculator(LookupDrafter(), FixedDepth(9))
    speculator.is_paused = True
    closed.can_pay = lambda num_tokens: False
    for still in (speculator, Speculator(LookupDrafter(), closed)):
        run(make_engine(still, with_grammars=True), grammar_requests())
    assert not asked
    run(make_engine(Speculator(LookupDrafter(), FixedDepth(9)), with_grammars=True), grammar_requests())
    assert asked


def test_a_failure_after_drafts_equals_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """With penalties, drafts are verified one by one: tokens before the failure count."""
    original, request = Sampler.draw, requests()[2]
    wanted = expected()["r2", 0][0]

    def fail(sampler: Sampler, logits: object, draws: list) -> list:
        if any(draw.seed == request.params.seed and draw.position > 20 for draw in draws):
            raise RuntimeError("injected failure")
        return original(sampler, logits, draws)

    monkeypatch.setattr(Sampler, "draw", fail)
    num_right = 20 - len(request.prompt) + 1
    for speculator in (None, Speculator(scripted(expected(), "right until the last")(), FixedDepth(6))):
        tokens, _, reason = run(make_engine(speculator), requests())["r2", 0]
        assert (tokens, reason) == (wanted[:num_right], FinishReason.ERROR)


def long_requests() -> list[Request]:
    params = [SamplingParams(seed=seed, max_tokens=400, ignore_eos=True) for seed in range(16)]
    return [Request(f"long{number}", (1, 300 + number), each) for number, each in enumerate(params)]


@functools.cache
def long_answers() -> Answers:
    return run(make_engine(None), long_requests())


def usages(engine: Engine, batch: Sequence[Request]) -> list[Usage]:
    for request in batch:
        engine.add(request)
    ended = []
    while engine.has_work:
        ended += [event.usage for event in engine.step() if event.usage is not None]
    return ended


@pytest.mark.parametrize(("alpha", "depth"), [(0.5, 3), (0.8, 4), (0.9, 8)])
def test_tokens_per_pass_are_what_theory_says(alpha: float, depth: int) -> None:
    drafter = ScriptedDrafter(truth_of(long_answers()), lambda rng, index, depth: rng.random() < alpha, 512)
    used = usages(make_engine(Speculator(drafter, FixedDepth(depth))), long_requests())
    # The first token comes with the prompt, without drafts.
    num_tokens = sum(usage.num_generated - 1 for usage in used)
    num_passes = sum(usage.num_passes - 1 for usage in used)
    assert num_tokens == 16 * 399
    theory = (1 - alpha ** (depth + 1)) / (1 - alpha)
    assert num_tokens / num_passes == pytest.approx(theory, rel=0.05)


@pytest.mark.parametrize("error", [RuntimeError, Stopped])
def test_a_drafter_that_fails_is_switched_off(error: type[Exception]) -> None:
    """A drafter whose pass was interrupted is not."""

    class Broken(ScriptedDrafter):
        def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
            raise error("injected failure")

    speculator = Speculator(Broken({}, RULES["wrong"], 512), FixedDepth(3))
    assert run(make_engine(speculator), requests()) == expected()
    assert speculator.is_enabled == (error is Stopped)


def test_a_draft_model_releases_its_blocks() -> None:
    runner = draft_runner(1024)
    free = runner.num_free
    engine = make_engine(Speculator(DraftModel(runner, 512), FixedDepth(4)))
    for request in [*requests(), *long_requests()]:
        engine.add(request)
    events = [event for _ in range(30) for event in engine.step()]
    engine.abort("long3")
    answers = finish(engine, events)
    assert answers["long3", 0][2] is FinishReason.CANCELLED
    for key, answer in (expected() | long_answers()).items():
        assert key.request == "long3" or answers[key] == answer
    engine.step()  # the next plan frees the rows of ended samples
    assert runner.num_free == free
    engine.add(long_requests()[0])
    for _ in range(20):
        engine.step()
    assert runner.num_free != free
    engine.reset()
    assert runner.num_free == free


def test_a_token_unknown_to_the_draft_model_only_stops_drafts() -> None:
    drafter = DraftModel(draft_runner(), 400)
    used = usages(make_engine(Speculator(drafter, FixedDepth(4))), long_requests()[:2])
    assert sum(usage.num_drafted for usage in used) < 100


def test_speculate_by_name() -> None:
    prompts = ["Once upon a time", "The cat and the dog"]
    params = SamplingParams(seed=3, max_tokens=80)
    path = str(stories_gguf())
    plain = LLM(path, threads=2, max_context=256, speculate="off")
    drafting = LLM(path, threads=2, max_context=256, speculate=f"draft:{path}")
    without_drafts, with_drafts = plain.generate(prompts, params), drafting.generate(prompts, params)
    assert [output.outputs for output in without_drafts] == [output.outputs for output in with_drafts]
    assert [output.usage.num_drafted for output in without_drafts] == [0, 0]
    assert all(output.usage.num_passes == 80 for output in without_drafts)
    for name in ("on", "draft:", "lookup:x"):
        with pytest.raises(ValueError, match="speculate is off, auto, lookup or draft:MODEL"):
            LLM(path, threads=1, speculate=name)
