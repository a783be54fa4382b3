"""The scheduler's view of a sample: its tokens, its blocks, and where it stands."""

from enum import Enum, auto

from surefoot.core import FinishReason, Request, SampleKey, ServiceClass
from surefoot.kv import BlockKey, Holding
from surefoot.scheduler.users import User


class State(Enum):
    WAITING = auto()  # holds nothing
    PREFILLING = auto()  # holds a row and blocks, with more than one token to compute
    DECODING = auto()  # its last token is the only one to compute
    ENDED = auto()


class Sample:
    """One continuation of a request. Until the prompt's end, one sample stands for all n."""

    __slots__ = (
        "arrival", "covers", "drafts", "end", "end_reason", "holding", "key", "keys", "num_cached", "num_charged",
        "num_slots", "plain_until", "request", "state", "stops", "tag", "tokens", "user",
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
        self.arrival = arrival  # the request's number
        self.end = end  # tokens at which it ends, if nothing ended it before
        self.end_reason = end_reason
        self.stops = request.stop_ids
        self.tokens = list(request.prompt)
        self.keys: list[BlockKey] = []  # of its full blocks
        self.covers: tuple[int, ...] = (number,)  # the samples that it stands for, itself included
        self.drafts: tuple[int, ...] = ()
        self.state = State.WAITING
        self.tag = 0.0  # its place among its user's requests: the lowest goes first
        self.num_charged = 0  # tokens that its user has paid for
        self.num_cached = 0  # prompt tokens that needed no computing
        self.num_slots = 0  # in its blocks: below that it may write without a look at them
        self.plain_until = 0  # while fewer tokens are computed, one more changes nothing but counts

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
        """Tokens to compute before the next can be drawn."""
        return len(self.tokens) - self.num_computed

    def accept(self, drawn: tuple[int, ...]) -> tuple[tuple[int, ...], FinishReason | None]:
        """Its new tokens, up to the one that ends it. An embedding ends without one."""
        for number, token in enumerate(drawn, 1):
            if token < 0:
                return drawn[: number - 1], FinishReason.ERROR
            self.tokens.append(token)
            if token in self.stops:
                return drawn[:number], FinishReason.STOP
            if len(self.tokens) >= self.end:
                return drawn[:number], self.end_reason
        return drawn, None if drawn else FinishReason.STOP

    def full_keys(self, block_size: int) -> list[BlockKey]:
        """Tokens of its full blocks. None if something is wanted of each token: it can skip no token, and many
        documents would evict what others could share."""
        if self.request.needs_every_token:
            return self.keys
        for start in range(len(self.keys) * block_size, len(self.tokens) - block_size + 1, block_size):
            self.keys.append(tuple(self.tokens[start : start + block_size]))
        return self.keys

    def known_keys(self, block_size: int) -> list[BlockKey]:
        """Keys of blocks that may come from the cache: at least one token is computed, since its logits are wanted."""
        return self.full_keys(block_size)[: (len(self.tokens) - 1) // block_size]
