"""Settings of the scheduler."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from surefoot.core import TimedStep

AT_LEAST_ONE = (
    "max_context", "max_running", "max_chunk", "min_chunk", "first_chunk", "full_chunk", "num_candidates",
)  # fmt: skip


@dataclass(frozen=True)
class SchedulerConfig:
    """Settings of the scheduler."""

    # How much runs at once.
    max_context: int = 8192
    """Limit on the tokens of one sample, prompt and output together, that memory has room for."""
    max_running: int = 64
    """Limit on the samples that run at once: rows of the runner."""
    max_waiting: int = 100_000
    """Limit on the requests in the queue; the next request is refused."""
    max_chunk: int = 512
    """Limit on the tokens of one sample in one step."""
    min_chunk: int = 16
    """Prompt tokens that a step takes even if decoding alone exceeds its target time."""
    first_chunk: int = 64
    """Prompt tokens of a step before any step has been timed."""
    max_step_tokens: int = 4096
    """Limit on the tokens of one step."""
    whole_prompts: bool = False
    """A prompt is computed in one step, whatever it takes, and nothing is generated: its tokens see later ones."""

    # How long a step may take.
    gap_ms: float = 180.0
    """Target duration of a step while interactive requests decode: it is their inter-token latency. Readers notice
    200 ms; the rest is for steps that take longer than predicted. Also the target of other steps, unless `crowd_ms`
    applies."""
    max_gap_ratio: float = 2.5
    """Limit on that target, as a multiple of the duration of a step that only decodes."""
    slow_gap_ratio: float = 1.7
    """How much longer than a step that only decodes a step may always take, even beyond `gap_ms`: prompts must go on
    where decoding is slow (a large model, a slow machine)."""
    crowd_ms: float = 50.0
    """Target while several interactive requests prefill: a new request waits for the end of the step."""
    full_chunk: int = 64
    """Rows from which larger steps are hardly cheaper per token. Without interactive decoding no target is shorter
    than a step of that many prompt tokens."""
    row_context: float = math.inf
    """Context length at which attending to earlier tokens costs as much as the matrix products of the token itself."""
    step_shape: tuple[TimedStep, ...] = ()
    """Predicted durations of steps by tokens. Only their ratios count: what is measured is learnt as a factor."""
    late_ms: float = 400.0
    """How long after its deadline a request may still run."""

    # Which request is next.
    turn_every: int = 4
    """Every `turn_every`-th admission goes to the request that has waited longest. So does the first chunk of every
    `turn_every`-th step, to the request that was admitted first."""
    output_cost: float = 2.0
    """Charge for a generated token, in prompt tokens."""
    slack_tokens: int = 512
    """Requests whose counters differ by less are equals; the request with most cached tokens goes first."""
    headroom_tokens: int = 64
    """Output tokens that must fit into memory, besides the prompt, before a request is admitted."""
    num_candidates: int = 4
    """Limit on the equals that are compared."""
    context_length: int | None = None
    """Tokens at which an answer ends with reason LENGTH; None: `max_context`. If it is larger than `max_context`,
    answers that reach `max_context` end with reason MEMORY."""
    user_weights: Mapping[str, float] = field(default_factory=dict)
    """Weight of a user's fair share, by name; 1 for other users."""

    def __post_init__(self) -> None:
        for name in AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.turn_every < 2:
            raise ValueError("turn_every must be at least 2: at 1 only waiting time would decide the order")
        if min(self.gap_ms, self.crowd_ms, self.slow_gap_ratio - 1, *self.user_weights.values()) <= 0:
            raise ValueError("gaps and weights must be above 0, and slow_gap_ratio above 1")
