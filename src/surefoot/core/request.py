"""A request: a prompt with its parameters, its user, and how urgent it is."""

import math
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

from surefoot.core.sampling import SamplingParams

LARGEST_PRIORITY = 8
MEMORY_ONLY = "memory only: "  # a namespace that begins with this has no block on any disk


class ServiceClass(IntEnum):
    """How urgent a request is."""

    INTERACTIVE = 0  # a person reads along: inter-token latency counts
    BATCH = 1  # only the time of completion counts


class FinishReason(Enum):
    """Why a sample ended."""

    STOP = "stop"  # an end-of-text token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the end of the model's context
    MEMORY = "memory"  # out of KV memory: with more memory the answer continues after the same tokens
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ERROR = "error"


class Pooling(Enum):
    """Which hidden states after the last norm make a prompt's vector."""

    MEAN = "mean"  # of all tokens
    FIRST = "cls"  # the first token's
    LAST = "last"  # the last token's


class SampleKey(NamedTuple):
    """Identifies one of a request's `n` samples."""

    request: str  # id
    sample: int = 0  # number


@dataclass(frozen=True)
class Request:
    """One prompt with its parameters."""

    id: str
    prompt: tuple[int, ...]  # token ids
    params: SamplingParams = field(default_factory=SamplingParams)
    user: str = ""
    priority: int = 0  # larger is served first, except in turns that go to the request that has waited longest
    service: ServiceClass = ServiceClass.INTERACTIVE
    namespace: str = ""  # of the cached prefixes that it may use, besides public ones
    num_public_tokens: int = 0  # first tokens of the prompt that all namespaces share
    eos_token_ids: frozenset[int] = frozenset()
    deadline: float | None = None  # seconds on the scheduler's clock
    answer_s: float | None = None  # allowed from the end of the prompt's computation on, which itself may take any time
    weight: float | None = None  # of the user's fair share from now on; None: unchanged
    pooling: Pooling | None = None  # return a vector of the prompt's hidden states, no tokens; nothing is cached
    begun: tuple[tuple[int, ...], ...] = ()
    """Output tokens of each sample that were sampled before, perhaps on another machine. Sampling goes on after them,
    as after a preemption. Empty: no sample has begun."""

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
        if self.begun:
            self._check_begun()

    def _check_begun(self) -> None:
        if len(self.begun) != self.params.n:
            raise ValueError(f"begun has {len(self.begun)} outputs, n is {self.params.n}")
        if self.needs_every_token:
            raise ValueError("a request for embeddings or for logprobs of its prompt cannot go on: start it anew")
        stops = self.stop_ids
        if any(token < 0 or token in stops for output in self.begun for token in output):
            raise ValueError("begun has a token that is not one, or that has ended its output")

    @property
    def embeds(self) -> bool:
        return self.pooling is not None

    @property
    def needs_every_token(self) -> bool:
        """Whether every prompt token must be computed, so that the prefix cache cannot be used."""
        return self.embeds or self.params.prompt_logprobs is not None

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end the output."""
        eos = frozenset[int]() if self.params.ignore_eos else self.eos_token_ids
        return eos.union(self.params.stop_token_ids)
