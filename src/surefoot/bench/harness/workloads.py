"""Requests as token ids. Every run gets different ids, so that no prompt is cached."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

LONG_PROMPT = 8192
MIN_NEW = 4  # tokens of the shortest answer, so that there are steps in which all requests decode
SPARED = 1000  # unused ids at both ends of a vocabulary, where control tokens are


@dataclass(frozen=True)
class Task:
    """A request of a workload."""

    prompt: tuple[int, ...]
    num_new: int  # tokens of the answer
    namespace: str = ""  # requests in the same namespace share cached prefixes
    is_forced: bool = True  # whether the answer continues past the model's end token


def ids(rng: random.Random, count: int, vocab: int) -> tuple[int, ...]:
    """Random token ids."""
    spared = min(SPARED, vocab // 4)
    return tuple(rng.randrange(spared, vocab - spared) for _ in range(count))


def scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))


def mixed(count: int, vocab: int, seed: int, scale: float = 1.0, shared: int = 0) -> list[Task]:
    """Tasks with prompts of 128 to 256 tokens and answers of 16 to 128. Lengths do not depend on the seed.

    scale: factor on all lengths. shared: length of a common prefix of all prompts.
    """
    lengths, rng = random.Random(777), random.Random(seed)
    sizes = [(lengths.randint(128, 256), lengths.randint(16, 128)) for _ in range(count)]
    prefix = ids(rng, shared, vocab)
    return [
        Task(prefix + ids(rng, scaled(prompt, scale), vocab), max(MIN_NEW, scaled(new, scale))) for prompt, new in sizes
    ]


def num_tokens(tasks: Sequence[Task]) -> int:
    """The total length of all answers."""
    return sum(task.num_new for task in tasks)
