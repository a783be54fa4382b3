"""Makes a draft head from its target: the target answers prompts, and the head is trained to predict it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.api import LLM
from surefoot_compress.answers import WAVE, write_answers
from surefoot_compress.arrays import check_output_path
from surefoot_compress.distill import TrainingProgress, TrainingSettings, train
from surefoot_compress.errors import CompressError
from surefoot_compress.head import (
    HeadExamples,
    HeadTarget,
    TrainableHead,
    acceptance_rates,
    choose_vocabulary,
    loss_of,
    most_likely_tokens,
)
from surefoot_compress.lazy_torch import torch

HELD_OUT = 16  # answers, the last, that acceptance is measured on
LONGEST_PROMPT = 224  # tokens
HEAD_SETTINGS = TrainingSettings(steps=1000, rate=1e-3, reverse=0.0, batch=512)


@dataclass(frozen=True)
class HeadOptions:
    """The head to make."""

    prompts: Path  # a file with one prompt per line
    settings: TrainingSettings  # of the training
    num_new: int = 160  # tokens of an answer, at most
    inside: int = 2048  # the head's hidden width
    vocabulary: int = 16384  # token ids that the head can draft
    threads: int = 1  # that torch and the target use


@dataclass(frozen=True)
class HeadSummary:
    """The head that was made. Acceptance is measured at held-out positions: the share where the first drafted token is
    right, where the first two are, where all three are."""

    num_tokens: int  # trained on
    num_weights: int  # of the head
    known: float  # share of held-out tokens in the head's vocabulary
    accepted_untaught: tuple[float, ...]  # before training
    accepted_taught: tuple[float, ...]  # after training

    @property
    def tokens_per_pass(self) -> float:
        return 1 + sum(self.accepted_taught)


def make_head(
    source: Path,
    out: Path,
    options: HeadOptions,
    report: Callable[[TrainingProgress], None] = lambda progress: None,
    report_answers: Callable[[int, int], None] = lambda done, total: None,
) -> HeadSummary:
    """Writes a draft head of the model at `source` to `out`. Answers and training state are kept beside `out`, so that
    the same call resumes. `report_answers` gets the waves of answers done and their total."""
    prompts = [line for line in options.prompts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(prompts) <= 2 * HELD_OUT:
        raise CompressError(f"{options.prompts} has {len(prompts)} prompts (one per line): give {2 * HELD_OUT + 1}")
    check_output_path(out)
    torch.set_num_threads(options.threads)
    llm = LLM(
        source, threads=options.threads, max_context=LONGEST_PROMPT + options.num_new, max_running=WAVE, speculate="off"
    )
    answers = write_answers(llm, prompts, options.num_new, out.with_suffix(".answers"), report_answers)
    training, held_out = answers[:-HELD_OUT], answers[-HELD_OUT:]
    target = HeadTarget(llm)
    vocabulary = choose_vocabulary(training, llm.config.vocab_size, options.vocabulary)
    rows, evaluation = target.head(vocabulary), HeadExamples.of(target, held_out)
    expected = most_likely_tokens(target, evaluation)
    examples = HeadExamples.of(target, training)
    scale = float(examples.states.float().pow(2).mean().sqrt())
    head = TrainableHead(target, options.inside, scale, options.settings.seed)
    before = acceptance_rates(head, target, evaluation, expected, vocabulary, rows)
    state = out.with_suffix(".training")
    train(
        head.parameters(),
        lambda step: loss_of(head, target, examples, rows, step, options.settings),
        options.settings,
        state,
        report,
    )
    after = acceptance_rates(head, target, evaluation, expected, vocabulary, rows)
    head.save(vocabulary, out)
    state.unlink(missing_ok=True)
    known = float(torch.isin(expected, torch.from_numpy(vocabulary)).float().mean())
    num_weights = sum(parameter.numel() for parameter in head.parameters().values())
    return HeadSummary(len(examples.tokens), num_weights, known, before, after)
