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
    """One continuation of a request; until the prompt's end, one stands for all n (`covers`).

    room: tokens that its blocks hold and that it may write, so that a step below needs no look at the blocks.
    plain_until: while fewer are computed, one more changes nothing but counts. end, end_reason: tokens at which it ends
    if nothing ended it before, and what that is called.
    tag: its place among its user's requests. num_charged: tokens that its user has paid for.
    """

    __slots__ = (
        "arrival", "covers", "drafts", "end", "end_reason", "holding", "key", "keys", "num_cached", "num_charged",
        "plain_until", "request", "room", "state", "stops", "tag", "tokens", "user",
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
        self.arrival = arrival
        self.end = end
        self.end_reason = end_reason
        self.stops = request.stop_ids
        self.tokens = list(request.prompt)
        self.keys: list[BlockKey] = []
        self.covers: tuple[int, ...] = (number,)
        self.drafts: tuple[int, ...] = ()
        self.state = State.WAITING
        self.tag = 0.0
        self.num_charged = self.num_cached = 0
        self.room = self.plain_until = 0

    @property
    def age(self) -> tuple[int, int]:
        """Smaller is older."""
        return self.arrival, self.key.sample

    @property
    def band(self) -> tuple[int, int]:
        """Smaller is served first."""
        return self.request.service, -self.request.priority

    @property
    def rank(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Larger gives way first."""
        return self.band, self.age

    @property
    def is_urgent(self) -> bool:
        """Somebody waits for it, and for nothing else."""
        return self.user.num_samples == 1 and self.request.service is ServiceClass.INTERACTIVE

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
        """Tokens of its full blocks. None where something is wanted of each token: it can skip nothing, and many
        documents would drive out what others could share."""
        if self.request.needs_every_token:
            return self.keys
        for start in range(len(self.keys) * block_size, len(self.tokens) - block_size + 1, block_size):
            self.keys.append(tuple(self.tokens[start : start + block_size]))
        return self.keys

    def known_keys(self, block_size: int) -> list[BlockKey]:
        """Those that may come from the cache: at least one token is computed, since its logits are wanted."""
        return self.full_keys(block_size)[: (len(self.tokens) - 1) // block_size]
