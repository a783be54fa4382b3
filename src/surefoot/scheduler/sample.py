"""The scheduler's view of a sample: its tokens, its blocks and its state."""

from enum import Enum, auto

from surefoot.core import FinishReason, Request, SampleKey, ServiceClass
from surefoot.kv import BlockKey, Holding
from surefoot.scheduler.cold import ColdRead
from surefoot.scheduler.users import User


class State(Enum):
    WAITING = auto()  # has no row and no blocks
    PREFILLING = auto()  # has a row and blocks, and more than one token to compute
    DECODING = auto()  # has one token to compute, its last
    ENDED = auto()


class Sample:
    """One continuation of a request. Until the end of the prompt, one sample represents all n."""

    __slots__ = (
        "arrival", "drafts", "end", "end_reason", "fast_until", "holding", "key", "keys", "num_cached", "num_charged",
        "num_slots", "reading", "request", "sample_numbers", "state", "stops", "tag", "tokens", "user",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        number: int,
        user: User,
        holding: Holding,
        arrival: int,
        end: int,
        end_reason: FinishReason,
    ) -> None:
        self.request = request
        self.key = SampleKey(request.id, number)
        self.user = user
        self.holding = holding
        self.arrival = arrival  # number of the request, in order of arrival
        self.end = end  # length in tokens at which the sample ends, unless it ends earlier
        self.end_reason = end_reason  # reported if it ends there
        self.stops = request.stop_ids
        self.tokens = list(request.prompt)
        self.keys: list[BlockKey] = []  # of full blocks
        self.sample_numbers: tuple[int, ...] = (number,)  # the samples that it represents, itself included
        self.drafts: tuple[int, ...] = ()
        self.state = State.WAITING
        self.tag = 0.0  # order among the user's requests: the lowest goes first
        self.num_charged = 0  # tokens charged to the user
        self.num_cached = 0  # prompt tokens that came from the prefix cache
        self.num_slots = 0  # slots of blocks that only this sample writes: up to there no block must be allocated
        self.reading: ColdRead | None = None  # blocks that it waits for before it is admitted
        self.fast_until = 0  # while fewer tokens are computed, a token fills no block and is not the last

    @property
    def age(self) -> tuple[int, int]:
        """Smaller is older."""
        return self.arrival, self.key.sample

    @property
    def precedence(self) -> tuple[int, int]:
        """Smaller is served first."""
        return self.request.service, -self.request.priority

    @property
    def rank(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Larger is preempted first."""
        return self.precedence, self.age

    @property
    def is_urgent(self) -> bool:
        """Interactive, and its user's only sample."""
        return self.user.num_samples == 1 and self.request.service is ServiceClass.INTERACTIVE

    @property
    def is_batch(self) -> bool:
        return self.request.service is ServiceClass.BATCH

    @property
    def num_computed(self) -> int:
        return self.holding.num_computed

    @property
    def num_left(self) -> int:
        """Tokens to compute before the next token can be sampled."""
        return len(self.tokens) - self.num_computed

    @property
    def num_answered(self) -> int:
        """Tokens of the answer that were sampled here."""
        begun = self.request.begun
        return len(self.tokens) - len(self.request.prompt) - (len(begun[self.key.sample]) if begun else 0)

    def accept(self, sampled: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Append sampled tokens up to the one that ends the sample. Returns those tokens, and the reason if it ends.

        An embedding ends without a token.
        """
        for count, token in enumerate(sampled, 1):
            if token < 0:
                return sampled[: count - 1], FinishReason.ERROR
            self.tokens.append(token)
            if token in self.stops:
                return sampled[:count], FinishReason.STOP
            if len(self.tokens) >= self.end:
                return sampled[:count], self.end_reason
        return sampled, None if sampled else FinishReason.STOP

    def full_keys(self, block_size: int) -> list[BlockKey]:
        """Keys of the full blocks. A request that needs every token computed has no keys: it cannot use the prefix
        cache, and many such documents would evict what other requests could share."""
        if self.request.needs_every_token:
            return self.keys
        for start in range(len(self.keys) * block_size, len(self.tokens) - block_size + 1, block_size):
            self.keys.append(tuple(self.tokens[start : start + block_size]))
        return self.keys

    def known_keys(self, block_size: int) -> list[BlockKey]:
        """Keys of blocks that may come from the cache. The last token is always computed: its logits are needed."""
        return self.full_keys(block_size)[: (len(self.tokens) - 1) // block_size]
