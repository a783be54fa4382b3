"""The target makes a head of its own: it answers prompts, and the head learns to foresee it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surefoot.api import LLM
from surefoot.compress.answers import WAVE, write_answers
from surefoot.compress.distill import Progress, Settings, train
from surefoot.compress.head import Head, Lesson, Target, accepted, choose_vocabulary, likeliest, loss_of
from surefoot.compress.later import CompressError, torch
from surefoot.compress.whole import check_place

HELD_OUT = 16  # answers, the last
LONGEST_PROMPT = 224
HEAD_SETTINGS = Settings(steps=1000, rate=1e-3, reverse=0.0, batch=512)


@dataclass(frozen=True)
class HeadOrder:
    """prompts: a file, one a line. num_new: tokens of an answer. inside: the head's own width."""

    prompts: Path
    settings: Settings
    num_new: int = 160
    inside: int = 2048
    vocabulary: int = 16384
    threads: int = 1


@dataclass(frozen=True)
class HeadSummary:
    """Of held-out places: the shares where one guess is right, where two are, where three are; before and after
    training. known: of held-out tokens, those that the head can guess at all."""

    num_tokens: int
    num_weights: int
    known: float
    accepted_untaught: tuple[float, ...]
    accepted_taught: tuple[float, ...]

    @property
    def tokens_per_pass(self) -> float:
        return 1 + sum(self.accepted_taught)


def make_head(
    source: Path,
    out: Path,
    order: HeadOrder,
    say: Callable[[Progress], None] = lambda progress: None,
    say_written: Callable[[int, int], None] = lambda done, total: None,
) -> HeadSummary:
    """Answers and training's state stand beside `out`; with them the same command goes on where it was."""
    prompts = [line for line in order.prompts.read_text(encoding="utf-8").splitlines() if line.strip()]
    if len(prompts) <= 2 * HELD_OUT:
        raise CompressError(f"{order.prompts} has {len(prompts)} prompts, one a line: give at least {2 * HELD_OUT + 1}")
    check_place(out)
    torch.set_num_threads(order.threads)
    llm = LLM(
        source, threads=order.threads, max_context=LONGEST_PROMPT + order.num_new, max_running=WAVE, speculate="off"
    )
    answers = write_answers(llm, prompts, order.num_new, out.with_suffix(".answers"), say_written)
    learned, held_out = answers[:-HELD_OUT], answers[-HELD_OUT:]
    target = Target(llm)
    vocabulary = choose_vocabulary(learned, llm.config.vocab_size, order.vocabulary)
    rows, exam = target.head(vocabulary), Lesson.of(target, held_out)
    expected = likeliest(target, exam)
    lesson = Lesson.of(target, learned)
    scale = float(lesson.states.float().pow(2).mean().sqrt())
    head = Head(target, order.inside, scale, order.settings.seed)
    before = accepted(head, target, exam, expected, vocabulary, rows)
    state = out.with_suffix(".training")
    train(
        head.parameters(),
        lambda step: loss_of(head, target, lesson, rows, step, order.settings),
        order.settings,
        state,
        say,
    )
    after = accepted(head, target, exam, expected, vocabulary, rows)
    head.save(vocabulary, out)
    state.unlink(missing_ok=True)
    known = float(torch.isin(expected, torch.from_numpy(vocabulary)).float().mean())
    num_weights = sum(one.numel() for one in head.parameters().values())
    return HeadSummary(len(lesson.tokens), num_weights, known, before, after)
