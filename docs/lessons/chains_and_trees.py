"""Chains and trees of drafts: which gives more tokens for the same rows, and for the same time. See
chains-and-trees.md.

python docs/lessons/chains_and_trees.py MODEL [--quick] [--svg plot.svg]
"""

import heapq
import random
from collections.abc import Sequence

from lesson import arguments, best_seconds, draw, predicted_steps, show

from surefoot import LLM
from surefoot.runner import SessionRunner, Work
from surefoot.speed.step_time import ChunkLoad

CONTEXT, RANKS, TRIALS = 64, 4, 4000
Path = tuple[int, ...]  # the rank of each token on the way from the root; 0 is the likeliest


def rank_odds(first: float) -> list[float]:
    """How often the right token is the drafter's first, second … choice, if each is right as often as the first where
    those before were wrong."""
    return [first * (1 - first) ** rank for rank in range(RANKS)]


def best_tree(odds: Sequence[float], size: int) -> dict[Path, float]:
    """The drafts most worth checking, each with the probability that it and all before it are right."""
    found: dict[Path, float] = {}
    open_ = [(-odds[0], (0,))]
    while len(found) < size:
        negative, path = heapq.heappop(open_)
        found[path] = -negative
        heapq.heappush(open_, (negative * odds[0], (*path, 0)))
        if path[-1] + 1 < len(odds):
            heapq.heappush(open_, (negative / odds[path[-1]] * odds[path[-1] + 1], (*path[:-1], path[-1] + 1)))
    return found


def chain(odds: Sequence[float], size: int) -> dict[Path, float]:
    return {(0,) * depth: odds[0] ** depth for depth in range(1, size + 1)}


def tried(drafts: dict[Path, float], odds: Sequence[float], rng: random.Random) -> float:
    """Tokens of a pass, drawn many times: a draft is kept while the right token's rank is in the tree."""
    total = 0
    for _ in range(TRIALS):
        path: Path = ()
        while True:
            drawn, rank = rng.random(), 0
            while rank < len(odds) and drawn >= odds[rank]:
                drawn, rank = drawn - odds[rank], rank + 1
            path = (*path, rank)
            if path not in drafts:
                break
        total += len(path)
    return total / TRIALS


def measured_seconds(llm: LLM, rows: int, rounds: int) -> float:
    """A step of so many tokens of one text. A tree's tokens cost what a chain's do: only their masks differ."""
    runner = SessionRunner.make(llm.backend, llm.model, num_tokens=CONTEXT + 64)
    session = runner.open(CONTEXT + rows)
    runner.execute([Work(session, [1] * CONTEXT, 1)])

    def step() -> None:
        session.num_tokens = CONTEXT
        runner.execute([Work(session, [1] * rows, rows)])

    return best_seconds(step, rounds)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words)
    sizes, rounds = ((1, 3), 1) if asked.quick else ((1, 2, 3, 4, 6, 8, 12, 15), 8)
    times, rng = predicted_steps(asked.model, asked.threads, asked.quick), random.Random(1)
    llm = LLM(asked.model, max_context=256, speculate="off", threads=asked.threads)
    measured = {size: measured_seconds(llm, 1 + size, rounds) for size in (0, *sizes)}
    predicted = {size: times.seconds([ChunkLoad(1 + size, CONTEXT)], 1 + size) for size in measured}
    show(("drafted tokens", "step, ms: predicted", "measured"),
         [(size, 1e3 * predicted[size], 1e3 * measured[size]) for size in measured])  # fmt: skip
    rows, lines = [], dict[str, list[tuple[float, float]]]()
    for first in (0.5, 0.6, 0.7, 0.8, 0.9):
        odds = rank_odds(first)
        for name, make in (("chain", chain), ("tree", best_tree)):
            gains = {size: (1 + sum(make(odds, size).values())) * measured[0] / measured[size] for size in sizes}
            best = max(gains, key=lambda size: gains[size])
            drafts = make(odds, best)
            tokens = 1 + sum(drafts.values())
            guess = tokens * predicted[0] / predicted[best]
            rows.append((first, name, best, tokens, tried(drafts, odds, rng), guess, gains[best]))
            lines.setdefault(name, []).append((first, gains[best]))
    show(("first choice right", "drafts", "best number", "tokens a pass: predicted", "drawn", "gain: predicted",
          "by measured steps"), rows)  # fmt: skip
    draw(asked.svg, "Speed over no drafts, at the best size", "probability that the first choice is right", "times",
         lines)  # fmt: skip


if __name__ == "__main__":
    main()
