"""A smaller model that drafts: it follows the samples' texts in blocks of its own.

It draws with the target's seeds and positions: with the same noise, similar distributions mostly pick the same token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from surefoot.core import Request, SampleKey, sample_seed
from surefoot.ops.arrays import F32
from surefoot.runner.runner import Request as Held
from surefoot.runner.runner import Runner, Work
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import MOST_DEPTH, NOTHING, Prospect

MOST_BEHIND = 64  # tokens that a draft makes up for by itself
CATCH_UP = 256  # tokens of all samples together, in a step
LEAST_CHUNK = CATCH_UP + MOST_DEPTH  # of the runner: a window's ring must hold what is gone back over, and a chunk
SPARE = 256


class _Follower:
    """A sample's text, and how much of it the draft model has computed."""

    def __init__(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        # Penalties and grammars would need the text's state; without them drafts are wrong more often, no more.
        self.params = replace(request.params, logprobs=None, grammar=None)
        self.seed = sample_seed(request.params.seed or 0, key.sample)
        self.text = list(tokens)
        self.computed: list[int] = []  # in the caches: the text's beginning, then perhaps drafts that were wrong
        self.held: Held | None = None
        self.is_lost = False  # no room for it, or a token that the draft model does not have

    def go_back(self) -> int:
        """To what text and caches have in common, and never the whole text: its last token's logits are wanted."""
        least = min(len(self.computed), len(self.text) - 1)
        place = max(0, least - MOST_DEPTH)  # before, they were compared already
        while place < least and self.computed[place] == self.text[place]:
            place += 1
        del self.computed[place:]
        if self.held is not None:
            self.held.num_tokens = place
        return len(self.text) - place


class DraftModel:
    """A Drafter. The runner hands out its own blocks; a sample that finds none gets no drafts."""

    def __init__(self, runner: Runner, vocab_size: int) -> None:
        """vocab_size: the target's."""
        if runner.max_chunk < LEAST_CHUNK:
            raise ValueError(f"a draft model's chunks are of at least {LEAST_CHUNK} tokens, not {runner.max_chunk}")
        self._runner, self._sampler = runner, Sampler(runner.backend)
        self._vocab_size = min(vocab_size, runner.model.config.vocab_size)
        self._capacity = runner.kv.table_width * runner.kv.block_size
        self._followers: dict[SampleKey, _Follower] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._followers[key] = _Follower(key, request, ())
        self.advance(key, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], state: F32 | None = None) -> None:
        follower = self._followers[key]
        follower.text += tokens
        follower.is_lost |= max(tokens) >= self._vocab_size

    def end(self, key: SampleKey) -> None:
        follower = self._followers.pop(key, None)
        if follower is not None and follower.held is not None:
            self._runner.close(follower.held)

    def prospects(self, keys: Sequence[SampleKey], most: int) -> list[Prospect]:
        """Who is far behind catches up by some tokens, and is drafted for in a later step."""
        followers = [self._followers[key] for key in keys]
        behind = {follower: follower.go_back() for follower in followers if self._holds(follower, most)}
        self._catch_up({follower: count for follower, count in behind.items() if count > MOST_BEHIND})
        ready = [behind.get(follower, MOST_BEHIND + 1) <= MOST_BEHIND for follower in followers]
        return [Prospect(most) if one else NOTHING for one in ready]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """All samples together, a token of each at a time."""
        drafts: dict[SampleKey, list[int]] = {key: [] for key in depths}
        left = list(depths)
        while left:
            followers = [self._followers[key] for key in left]
            given = [(one.text + drafts[key])[len(one.computed) :] for key, one in zip(left, followers, strict=True)]
            logits = self._execute(followers, given, 1)
            draws = [Draw(row, one.params, one.seed, len(one.computed)) for row, one in enumerate(followers)]
            for key, drawn in zip(left, self._sampler.draw(logits, draws), strict=True):
                drafts[key].append(drawn.token)
            left = [key for key in left if len(drafts[key]) < depths[key] and self._is_known(drafts[key][-1])]
        return {key: tuple(one if self._is_known(one[-1]) else one[:-1]) for key, one in drafts.items()}

    def _is_known(self, token: int) -> bool:
        return 0 <= token < self._vocab_size

    def _holds(self, follower: _Follower, most: int) -> bool:
        """Blocks for its text and as many tokens more; twice as many when it outgrows them, and then anew."""
        needed = len(follower.text) + most
        if follower.is_lost or (follower.held is not None and needed <= follower.held.max_tokens):
            return not follower.is_lost
        if follower.held is not None:
            self._runner.close(follower.held)
            follower.held = None
        follower.computed.clear()
        try:
            follower.held = self._runner.open(min(2 * needed + SPARE, max(needed, self._capacity)))
        except (MemoryError, ValueError):
            follower.is_lost = True
        return not follower.is_lost

    def _catch_up(self, behind: Mapping[_Follower, int]) -> None:
        room, followers, given = CATCH_UP, list[_Follower](), list[list[int]]()
        for follower, count in behind.items():
            if room > 0:
                first = len(follower.computed)
                given.append(follower.text[first : first + min(count - 1, room)])
                followers.append(follower)
                room -= len(given[-1])
        if followers:
            self._execute(followers, given, 0)

    def _execute(self, followers: Sequence[_Follower], given: Sequence[list[int]], num_logits: int) -> F32:
        works = []
        for follower, tokens in zip(followers, given, strict=True):
            assert follower.held is not None
            works.append(Work(follower.held, tokens, num_logits))
        logits = self._runner.execute(works)
        for follower, tokens in zip(followers, given, strict=True):
            follower.computed += tokens
        return logits
