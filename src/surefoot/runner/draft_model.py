"""A drafter: a smaller model that computes each sample's text in a session of its own.

It samples with the target's seeds and positions: with the same noise, similar distributions mostly pick the same token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from surefoot.core import Request, SampleKey, sample_seed
from surefoot.ops.arrays import F32
from surefoot.runner.sessions import Session, SessionRunner, Work
from surefoot.sampling import Draw, Sampler
from surefoot.speculate import MAX_DEPTH, NO_DRAFT, DraftOffer, TargetRow

MAX_LAG = 64  # tokens; a session that lags further behind its text catches up before it drafts
MAX_CATCH_UP = 256  # tokens of catching up in a step, over all samples
MIN_CHUNK = MAX_CATCH_UP + MAX_DEPTH  # of the runner: a window's ring must hold a chunk and the tokens rolled back
SPARE_TOKENS = 256  # reserved beyond twice a text's length


class _Follower:
    """A sample's text, and the tokens of it that the draft model has computed."""

    def __init__(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        # Penalties and grammars would need the sample's state. Without them drafts are rejected more often, no more.
        self.params = replace(request.params, logprobs=None, grammar=None)
        self.seed = sample_seed(request.params.seed or 0, key.sample)
        self.text = list(tokens)
        self.computed: list[int] = []  # tokens in the KV cache: the text's beginning, then perhaps rejected drafts
        self.session: Session | None = None
        self.is_disabled = False  # no memory for it, or a token outside the draft model's vocabulary

    def roll_back(self) -> int:
        """Roll the session back to its common prefix with the text. Returns the number of tokens left to compute.

        That is at least 1: the logits of the text's last token are needed.
        """
        limit = min(len(self.computed), len(self.text) - 1)
        prefix = max(0, limit - MAX_DEPTH)  # tokens before were compared already
        while prefix < limit and self.computed[prefix] == self.text[prefix]:
            prefix += 1
        del self.computed[prefix:]
        if self.session is not None:
            self.session.num_tokens = prefix
        return len(self.text) - prefix


class DraftModel:
    """Implements Drafter with a smaller model. A sample without memory for a session gets no drafts."""

    def __init__(self, sessions: SessionRunner, vocab_size: int) -> None:
        """vocab_size: the target's."""
        runner = sessions.runner
        if runner.max_chunk < MIN_CHUNK:
            raise ValueError(f"a draft model's chunks are of at least {MIN_CHUNK} tokens, not {runner.max_chunk}")
        if runner.model.config.states:
            raise ValueError(f"a draft model goes back, which {runner.model.config.family}'s states do not allow")
        self._sessions, self._sampler = sessions, Sampler(runner.backend)
        self._vocab_size = min(vocab_size, runner.model.config.vocab_size)
        self._followers: dict[SampleKey, _Follower] = {}

    def start(self, key: SampleKey, request: Request, tokens: Sequence[int]) -> None:
        self._followers[key] = _Follower(key, request, ())
        self.advance(key, tokens)

    def advance(self, key: SampleKey, tokens: Sequence[int], row: TargetRow | None = None) -> None:
        follower = self._followers[key]
        follower.text += tokens
        follower.is_disabled |= max(tokens) >= self._vocab_size

    def end(self, key: SampleKey) -> None:
        follower = self._followers.pop(key, None)
        if follower is not None and follower.session is not None:
            self._sessions.close(follower.session)

    def offers(self, keys: Sequence[SampleKey], max_depth: int) -> list[DraftOffer]:
        """Offers for samples whose sessions are up to date. Sessions with a larger lag catch up instead, partly."""
        followers = [self._followers[key] for key in keys]
        lags = {follower: follower.roll_back() for follower in followers if self._reserve(follower, max_depth)}
        self._catch_up({follower: lag for follower, lag in lags.items() if lag > MAX_LAG})
        ready = [lags.get(follower, MAX_LAG + 1) <= MAX_LAG for follower in followers]
        return [DraftOffer(max_depth) if is_ready else NO_DRAFT for is_ready in ready]

    def draft(self, depths: Mapping[SampleKey, int]) -> dict[SampleKey, tuple[int, ...]]:
        """Drafts for all samples in one batch; each round adds a token to every draft."""
        drafts: dict[SampleKey, list[int]] = {key: [] for key in depths}
        active = list(depths)
        while active:
            followers = [self._followers[key] for key in active]
            pairs = zip(active, followers, strict=True)
            chunks = [(follower.text + drafts[key])[len(follower.computed) :] for key, follower in pairs]
            logits = self._execute(followers, chunks, 1)
            draws = [
                Draw(row, follower.params, follower.seed, len(follower.computed))
                for row, follower in enumerate(followers)
            ]
            for key, drawn in zip(active, self._sampler.draw(logits, draws), strict=True):
                drafts[key].append(drawn.token)
            active = [key for key in active if len(drafts[key]) < depths[key] and self._is_known(drafts[key][-1])]
        return {key: tuple(draft if self._is_known(draft[-1]) else draft[:-1]) for key, draft in drafts.items()}

    def _is_known(self, token: int) -> bool:
        """Whether the token is in both vocabularies."""
        return 0 <= token < self._vocab_size

    def _reserve(self, follower: _Follower, max_depth: int) -> bool:
        """Whether its session has blocks for its text and `max_depth` more tokens.

        A text that outgrows its session gets a new one of twice the length, and is computed again.
        """
        needed = len(follower.text) + max_depth
        if follower.is_disabled or (follower.session is not None and needed <= follower.session.max_tokens):
            return not follower.is_disabled
        if follower.session is not None:
            self._sessions.close(follower.session)
            follower.session = None
        follower.computed.clear()
        try:
            most = max(needed, self._sessions.max_tokens)
            follower.session = self._sessions.open(min(2 * needed + SPARE_TOKENS, most))
        except (MemoryError, ValueError):
            follower.is_disabled = True
        return not follower.is_disabled

    def _catch_up(self, lags: Mapping[_Follower, int]) -> None:
        budget, followers, chunks = MAX_CATCH_UP, list[_Follower](), list[list[int]]()
        for follower, lag in lags.items():
            if budget > 0:
                first = len(follower.computed)
                chunks.append(follower.text[first : first + min(lag - 1, budget)])
                followers.append(follower)
                budget -= len(chunks[-1])
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
