"""What the scheduler can be told."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SchedulerConfig:
    """max_context: tokens of one sample, prompt and output, that memory holds. max_chunk: tokens of one sample in one
    step. context_length: tokens at which an answer ends for length, by default max_context; where it is more, answers
    that reach max_context end for lack of memory.

    gap_ms: how long a step may take while interactive requests decode, since that is the gap between their tokens;
    max_gap_ratio: nor more than so many times a step that only decodes. Otherwise gap_ms too, or crowd_ms while several
    wait for their prompts to be read, since whoever comes waits for its end; but never less than full_chunk takes, the
    rows from which on larger steps are hardly cheaper. late_ms: how long after its deadline a request may still run.
    min_chunk: prompt tokens that a step takes even when decoding alone is slower than that. row_context: so many tokens
    before one cost as much as a row without any.

    turn_every: one admission in so many, and one step's first chunk in so many, goes to who has waited longest.
    output_cost: what a generated token costs its user, in prompt tokens. slack_tokens: requests whose turn differs by
    less are equals, of which the one with most tokens cached goes first.
    headroom_tokens: output that must fit, besides the prompt, before a request is admitted.
    """

    max_context: int = 8192
    max_running: int = 64
    max_waiting: int = 100_000
    max_chunk: int = 512
    min_chunk: int = 16
    first_chunk: int = 64
    max_step_tokens: int = 4096
    gap_ms: float = 200.0
    max_gap_ratio: float = 2.5
    crowd_ms: float = 50.0
    full_chunk: int = 64
    row_context: float = math.inf
    late_ms: float = 400.0
    turn_every: int = 4
    output_cost: float = 2.0
    slack_tokens: int = 512
    headroom_tokens: int = 64
    num_candidates: int = 4
    context_length: int | None = None
    user_weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        least_one = (
            "max_context",
            "max_running",
            "max_chunk",
            "min_chunk",
            "first_chunk",
            "full_chunk",
            "num_candidates",
        )
        for name in least_one:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.turn_every < 2:
            raise ValueError("turn_every must be at least 2: at 1 there would be no order but waiting time")
        if min(self.gap_ms, self.crowd_ms, *self.user_weights.values()) <= 0:
            raise ValueError("gaps and weights must be above 0")
