"""Drafters that know the answers and draft wrong tokens by a rule, and random depths."""

import random
from collections.abc import Callable, Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.ops.arrays import F32
from surefoot.speculate import Prospect

Truth = Mapping[SampleKey, Sequence[int]]
Rule = Callable[[random.Random, int, int], bool]

# Whether the drafted token at this place of a draft of this depth is right.
RULES: Mapping[str, Rule] = {
    "wrong": lambda rng, place, depth: False,
    "random": lambda rng, place, depth: rng.random() < 0.7,
    "right until the last": lambda rng, place, depth: place < depth - 1,
}


class Scripted:
    """A Drafter that knows the answers. It drafts a wrong token where the rule says so, and after the answer's end."""

    def __init__(self, truth: Truth, rule: Rule, vocab_size: int, seed: int = 0) -> None:
        self._truth, self._rule, self._vocab_size = truth, rule, vocab_size
        self._rng = random.Random(seed)
        self._num_drawn: dict[SampleKey, int] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._num_drawn[key] = len(tokens) - len(request.prompt)

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        self._num_drawn[key] += len(tokens)

    def end(self, key: SampleKey) -> None:
        del self._num_drawn[key]

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        return [Prospect(most)] * len(keys)

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {key: tuple(self._guess(key, place, depth) for place in range(depth)) for key, depth in depths.items()}

    def _guess(self, key: SampleKey, place: int, depth: int) -> int:
        answer, number = self._truth[key], self._num_drawn[key] + place
        right = answer[number] if number < len(answer) else 0
        is_right = self._rule(self._rng, place, depth)
        return right if is_right else (right + self._rng.randrange(1, self._vocab_size)) % self._vocab_size


class RandomDepths:
    """A DepthChooser that chooses at random and learns nothing."""

    def __init__(self, deepest: int = 9, seed: int = 0) -> None:
        self._deepest, self._rng = deepest, random.Random(seed)

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def is_open(self, num_tokens: int) -> bool:
        return self._rng.random() < 0.9

    def depths(self, prospects: Mapping[SampleKey, Prospect], num_tokens: int) -> dict[SampleKey, int]:
        chosen = {key: min(one.most, self._rng.randint(0, self._deepest)) for key, one in prospects.items()}
        return {key: depth for key, depth in chosen.items() if depth}
