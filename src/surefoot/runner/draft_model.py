"""A smaller model that drafts: it follows the samples' texts in sessions of its own.

It draws with the target's seeds and positions: with the same noise, similar distributions mostly pick the same token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from surefoot.core import Request, SampleKey, sample_seed
from surefoot.ops.arrays import F32
from surefoot.runner.sessions import Session, SessionRunner, Work
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import MAX_DEPTH, NO_DRAFT, DraftOffer

MOST_BEHIND = 64  # tokens that a draft makes up for by itself
CATCH_UP = 256  # tokens of all samples together, in a step
LEAST_CHUNK = CATCH_UP + MAX_DEPTH  # of the runner: a window's ring must hold what is gone back over, and a chunk
SPARE = 256


class _Follower:
    """A sample's text, and how much of it the draft model has computed."""

    def __init__(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        # Penalties and grammars would need the text's state; without them drafts are wrong more often, no more.
        self.params = replace(request.params, logprobs=None, grammar=None)
        self.seed = sample_seed(request.params.seed or 0, key.sample)
        self.text = list(tokens)
        self.computed: list[int] = []  # in the caches: the text's beginning, then perhaps drafts that were wrong
        self.session: Session | None = None
        self.is_lost = False  # no room for it, or a token that the draft model does not have

    def go_back(self) -> int:
        """Back to what text and caches have in common, and never the whole text: its last token's logits are wanted.
        Returns how many tokens it is behind."""
        least = min(len(self.computed), len(self.text) - 1)
        place = max(0, least - MAX_DEPTH)  # before, they were compared already
        while place < least and self.computed[place] == self.text[place]:
            place += 1
        del self.computed[place:]
        if self.session is not None:
            self.session.num_tokens = place
        return len(self.text) - place


class DraftModel:
    """A Drafter. A sample that finds no room for a session gets no drafts."""

    def __init__(self, sessions: SessionRunner, vocab_size: int) -> None:
        """vocab_size: the target's."""
        runner = sessions.runner
        if runner.max_chunk < LEAST_CHUNK:
            raise ValueError(f"a draft model's chunks are of at least {LEAST_CHUNK} tokens, not {runner.max_chunk}")
        if runner.model.config.states:
            raise ValueError(f"a draft model goes back, which {runner.model.config.family}'s states do not allow")
        self._sessions, self._sampler = sessions, Sampler(runner.backend)
        self._vocab_size = min(vocab_size, runner.model.config.vocab_size)
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
        if follower is not None and follower.session is not None:
            self._sessions.close(follower.session)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        """A follower that is far behind catches up by some tokens, and drafts in a later step."""
        followers = [self._followers[key] for key in keys]
        behind = {follower: follower.go_back() for follower in followers if self._holds(follower, max_depth)}
        self._catch_up({follower: count for follower, count in behind.items() if count > MOST_BEHIND})
        ready = [behind.get(follower, MOST_BEHIND + 1) <= MOST_BEHIND for follower in followers]
        return [DraftOffer(max_depth) if is_ready else NO_DRAFT for is_ready in ready]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """All samples together, a token of each at a time."""
        drafts: dict[SampleKey, list[int]] = {key: [] for key in depths}
        left = list(depths)
        while left:
            followers = [self._followers[key] for key in left]
            pairs = zip(left, followers, strict=True)
            chunks = [(follower.text + drafts[key])[len(follower.computed) :] for key, follower in pairs]
            logits = self._execute(followers, chunks, 1)
            draws = [Draw(row, own.params, own.seed, len(own.computed)) for row, own in enumerate(followers)]
            for key, drawn in zip(left, self._sampler.draw(logits, draws), strict=True):
                drafts[key].append(drawn.token)
            left = [key for key in left if len(drafts[key]) < depths[key] and self._is_known(drafts[key][-1])]
        return {key: tuple(draft if self._is_known(draft[-1]) else draft[:-1]) for key, draft in drafts.items()}

    def _is_known(self, token: int) -> bool:
        return 0 <= token < self._vocab_size

    def _holds(self, follower: _Follower, max_depth: int) -> bool:
        """Whether it has blocks for its text and `max_depth` tokens more. If it outgrows them, it gets twice as many,
        and computes its text again."""
        needed = len(follower.text) + max_depth
        if follower.is_lost or (follower.session is not None and needed <= follower.session.max_tokens):
            return not follower.is_lost
        if follower.session is not None:
            self._sessions.close(follower.session)
            follower.session = None
        follower.computed.clear()
        try:
            follower.session = self._sessions.open(min(2 * needed + SPARE, max(needed, self._sessions.max_tokens)))
        except (MemoryError, ValueError):
            follower.is_lost = True
        return not follower.is_lost

    def _catch_up(self, behind: Mapping[_Follower, int]) -> None:
        room, followers, chunks = CATCH_UP, list[_Follower](), list[list[int]]()
        for follower, count in behind.items():
            if room > 0:
                first = len(follower.computed)
                chunks.append(follower.text[first : first + min(count - 1, room)])
                followers.append(follower)
                room -= len(chunks[-1])
        if followers:
            self._execute(followers, chunks, 0)

    def _execute(self, followers: Sequence[_Follower], chunks: Sequence[list[int]], num_logits: int) -> F32:
        works = []
        for follower, tokens in zip(followers, chunks, strict=True):
            assert follower.session is not None
            works.append(Work(follower.session, tokens, num_logits))
        logits = self._sessions.execute(works)
        for follower, tokens in zip(followers, chunks, strict=True):
            follower.computed += tokens
        return logits
