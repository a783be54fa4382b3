"""A request: a prompt with its sampling parameters, its user, and how urgent it is. Values are validated here, once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple

MOST_SAMPLES = 128
MOST_LOGPROBS = 20
MOST_STOPS = 64
MOST_BIASES = 4096
MOST_GRAMMAR_CHARACTERS = 1 << 18
LARGEST_TEMPERATURE = 100.0
LARGEST_SEED = 2**64 - 1
# Parameters that may have other defaults: the model's files and the operator say which.
SETTABLE = (
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
GOLDEN = 0x9E3779B97F4A7C15  # increment of splitmix64
LARGEST_PRIORITY = 8
MEMORY_ONLY = "memory only: "  # a namespace that begins with this has no block on any disk


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are sampled."""

    temperature: float = 1.0  # 0: greedy
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()  # stop strings
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None  # None: chosen when the request is made; a request in the engine always has a seed
    n: int = 1  # number of continuations
    max_tokens: int | None = None  # None: until the context is full
    logprobs: int | None = None  # alternatives reported for each token; 0: only the token's logprob; None: none
    ignore_eos: bool = False
    grammar: str | None = None  # constrains the output; in the form that sampling/grammar.py makes
    min_tokens: int = 0  # before that, no stop token is sampled; stop strings still end the output
    skip_special_tokens: bool = True  # leave special tokens out of the text
    prompt_logprobs: int | None = None  # as logprobs, for prompt tokens; all of them are then computed, cached or not

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, 0.0, LARGEST_TEMPERATURE)
        _check_integer("top_k", self.top_k, 0, 2**31 - 1)
        _check_range("top_p", self.top_p, 0.0, 1.0, above=True)
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("repetition_penalty", self.repetition_penalty, 0.0, 100.0, above=True)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_integer("n", self.n, 1, MOST_SAMPLES)
        _check_integer("seed", self.seed, 0, LARGEST_SEED)
        _check_integer("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _check_integer("logprobs", self.logprobs, 0, MOST_LOGPROBS)
        _check_integer("prompt_logprobs", self.prompt_logprobs, 0, MOST_LOGPROBS)
        _check_integer("min_tokens", self.min_tokens, 0, 2**31 - 1)
        self._check_stops()
        self._check_biases()
        self._check_grammar()

    def _check_stops(self) -> None:
        if len(self.stop) > MOST_STOPS or not all(isinstance(text, str) and text for text in self.stop):
            raise ValueError(f"stop must be at most {MOST_STOPS} strings, none of them empty")
        if len(self.stop_token_ids) > MOST_STOPS:
            raise ValueError(f"stop_token_ids must be at most {MOST_STOPS}")
        for token in self.stop_token_ids:
            _check_integer("stop_token_ids", token, 0, 2**31 - 1)

    def _check_biases(self) -> None:
        if len(self.logit_bias) > MOST_BIASES:
            raise ValueError(f"logit_bias must name at most {MOST_BIASES} tokens")
        for token, bias in self.logit_bias.items():
            _check_integer("logit_bias's tokens", token, 0, 2**31 - 1)
            _check_range("logit_bias", bias, -100.0, 100.0)

    def _check_grammar(self) -> None:
        if self.grammar is not None and len(self.grammar) > MOST_GRAMMAR_CHARACTERS:
            raise ValueError(f"grammar must have at most {MOST_GRAMMAR_CHARACTERS} characters")
        if self.grammar is not None and self.ignore_eos:
            raise ValueError("grammar does not go with ignore_eos: it ends the answer")
        if self.grammar is not None and self.min_tokens:
            raise ValueError("grammar does not go with min_tokens: it ends the answer")

    @property
    def settable(self) -> dict[str, float]:
        """The values of SETTABLE, by name."""
        return {name: getattr(self, name) for name in SETTABLE}

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def changes_logits(self) -> bool:
        """Whether penalties, biases, a grammar or `min_tokens` change logits before sampling."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        is_masked = self.grammar is not None or self.min_tokens > 0
        return bool(self.logit_bias) or is_masked or penalties != (1.0, 0.0, 0.0)


def sample_seed(seed: int, sample: int) -> int:
    """The seed of a request's sample: the request's seed for the first, hashed with splitmix64 for the others."""
    if sample == 0:
        return seed
    z = (seed + sample * GOLDEN) & LARGEST_SEED
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & LARGEST_SEED
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & LARGEST_SEED
    return z ^ (z >> 31)


def _check_range(name: str, value: float, low: float, high: float, above: bool = False) -> None:
    """above: `low` itself is not allowed."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    if not low <= value <= high or (above and value == low):
        raise ValueError(f"{name} must lie {'above' if above else 'between'} {low} and {high}, not at {value}")


def _check_integer(name: str, value: int | None, low: int, high: int) -> None:
    if value is None and name in ("seed", "max_tokens", "logprobs", "prompt_logprobs"):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, not {value!r}")


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
