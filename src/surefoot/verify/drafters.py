"""A drafter that knows the answers and drafts wrong tokens by a rule, and a chooser of random depths."""

import random
from collections.abc import Callable, Mapping, Sequence

from surefoot.core import Request, SampleKey
from surefoot.speculate import DraftOffer, TargetRow

Answers = Mapping[SampleKey, Sequence[int]]
Rule = Callable[[random.Random, int, int], bool]

# Whether the drafted token at this index of a draft of this depth is right.
RULES: Mapping[str, Rule] = {
    "wrong": lambda rng, index, depth: False,
    "random": lambda rng, index, depth: rng.random() < 0.7,
    "right until the last": lambda rng, index, depth: index < depth - 1,
}


class ScriptedDrafter:
    """A Drafter that knows the answers. It drafts a wrong token where the rule says so, and after the answer's end."""

    def __init__(self, answers: Answers, rule: Rule, vocab_size: int, seed: int = 0) -> None:
        self._answers, self._rule, self._vocab_size = answers, rule, vocab_size
        self._rng = random.Random(seed)
        self._num_generated: dict[SampleKey, int] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._num_generated[key] = len(tokens) - len(request.prompt)

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        self._num_generated[key] += len(tokens)

    def end(self, key: SampleKey) -> None:
        del self._num_generated[key]

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        return [DraftOffer(max_depth)] * len(keys)

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        return {key: tuple(self._token(key, index, depth) for index in range(depth)) for key, depth in depths.items()}

    def _token(self, key: SampleKey, index: int, depth: int) -> int:
        answer, position = self._answers[key], self._num_generated[key] + index
        right = answer[position] if position < len(answer) else 0
        is_right = self._rule(self._rng, index, depth)
        return right if is_right else (right + self._rng.randrange(1, self._vocab_size)) % self._vocab_size


class RandomDepths:
    """A DepthChooser that chooses at random and learns nothing."""

    def __init__(self, max_depth: int = 9) -> None:
        self._max_depth, self._rng = max_depth, random.Random(0)

    def observe_step(self, num_tokens: int, elapsed_ms: float) -> None: ...
    def observe_drafting(self, depth: int, elapsed_ms: float) -> None: ...
    def observe_verified(self, key: SampleKey, kind: int, num_drafted: int, num_accepted: int) -> None: ...
    def forget(self, key: SampleKey) -> None: ...
    def can_pay(self, num_tokens: int) -> bool:
        return self._rng.random() < 0.9

    def depths(self, offers: Mapping[SampleKey, DraftOffer], num_tokens: int) -> dict[SampleKey, int]:
        depths = {key: min(offer.max_depth, self._rng.randint(0, self._max_depth)) for key, offer in offers.items()}
        return {key: depth for key, depth in depths.items() if depth}
