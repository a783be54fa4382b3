"""A request: a prompt with its parameters, its user, and how urgent it is."""

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from surefoot.core.sampling import SamplingParams

LARGEST_PRIORITY = 8


class ServiceClass(IntEnum):
    INTERACTIVE = 0  # a reader follows, so gaps between tokens are kept short
    BATCH = 1  # only the end counts


class FinishReason(Enum):
    STOP = "stop"  # an end-of-text token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the end of the model's context
    MEMORY = "memory"  # no machine memory for more: elsewhere the answer goes on, and begins with the same tokens
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


class SampleKey(NamedTuple):
    """One of a request's `n` continuations. A request of one sample is known by (id, 0)."""

    request: str
    sample: int = 0


@dataclass(frozen=True)
class Request:
    """One prompt with its parameters."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    user: str = ""
    priority: int = 0  # larger is served first, except in turns that go to the longest wait
    service: ServiceClass = ServiceClass.INTERACTIVE
    namespace: str = ""  # whose cached prefixes it may use, besides public ones
    num_public_tokens: int = 0  # first tokens of the prompt that every namespace may share
    eos_token_ids: frozenset[int] = frozenset()
    deadline: float | None = None  # seconds on the scheduler's clock
    weight: float | None = None  # of the user's fair share from now on; None leaves it as it was
    embeds: bool = False  # the mean of the prompt's hidden states is wanted, not tokens; nothing is cached

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("a prompt has at least one token")
        if not all(isinstance(token, int) and not isinstance(token, bool) for token in self.prompt):
            raise ValueError("token ids are whole numbers")
        if min(self.prompt) < 0:
            raise ValueError("token ids are not negative")
        if abs(self.priority) > LARGEST_PRIORITY:
            raise ValueError(f"priority must lie within ±{LARGEST_PRIORITY}, not at {self.priority}")
        if self.weight is not None and not 0 < self.weight < math.inf:
            raise ValueError(f"weight must be above 0, not {self.weight}")
        if not 0 <= self.num_public_tokens <= len(self.prompt):
            raise ValueError("num_public_tokens is at most the prompt's length")
        if self.embeds and self.params.n > 1:
            raise ValueError("a prompt has one embedding: n must be 1")

    @property
    def needs_every_token(self) -> bool:
        """Whether something is wanted of each of the prompt's tokens, so that none can come from the prefix cache."""
        return self.embeds or self.params.prompt_logprobs is not None

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end it."""
        eos = frozenset[int]() if self.params.ignore_eos else self.eos_token_ids
        return eos.union(self.params.stop_token_ids)
