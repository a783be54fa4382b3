"""What a request may ask for: what could never run is refused before anything is allocated."""

from surefoot.core import FinishReason, Request
from surefoot.kv import KvManager
from surefoot.scheduler.config import SchedulerConfig


class Refused(ValueError):
    """The request can never run here, or the queue is full."""


class Limits:
    def __init__(self, config: SchedulerConfig, kv: KvManager) -> None:
        self._config = config
        self._kv = kv

    def end(self, request: Request) -> tuple[int, FinishReason]:
        """Tokens at which each of its samples ends, and why. Only the reason MEMORY depends on this machine."""
        context, max_tokens = self._config.context_length or self._config.max_context, request.params.max_tokens
        length = context if max_tokens is None else min(context, len(request.prompt) + max_tokens)
        if length > self._config.max_context:
            return self._config.max_context, FinishReason.MEMORY
        return length, FinishReason.LENGTH

    def price(self, request: Request) -> tuple[int, ...]:
        """Blocks of each group that it takes at most."""
        num_prompt = len(request.prompt)
        num_new = self.end(request)[0] - num_prompt
        return self._kv.layout.price(num_prompt, num_new, request.params.n, self._config.max_chunk)

    def check(self, request: Request) -> None:
        num_prompt, memory = len(request.prompt), self._config.max_context
        context = self._config.context_length or memory
        if num_prompt >= context:
            raise Refused(f"the prompt has {num_prompt} tokens, the context holds {context}: shorten the prompt")
        if num_prompt >= memory:
            raise Refused(
                f"the prompt has {num_prompt} tokens, memory on this machine holds {memory}: shorten the prompt, or "
                "grant the process more memory"
            )
        if request.params.n > self._config.max_running:
            raise Refused(f"n is {request.params.n}, but {self._config.max_running} samples run at once: lower n")
        for blocks, pool in zip(self.price(request), self._kv.pools, strict=True):
            if blocks > pool.num_blocks:
                raise Refused(
                    f"{self.end(request)[0]} tokens in {request.params.n} samples may need {blocks} blocks of memory, "
                    f"there are {pool.num_blocks}: lower max_tokens or n"
                )
