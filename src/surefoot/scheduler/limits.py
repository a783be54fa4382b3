"""What a request may ask for: what could never run is refused before anything is allocated."""

from surefoot.core import Request
from surefoot.kv import KvManager
from surefoot.scheduler.config import SchedulerConfig


class Refused(ValueError):
    """The request can never run here, or the queue is full."""


class Limits:
    def __init__(self, config: SchedulerConfig, kv: KvManager) -> None:
        self._config = config
        self._kv = kv

    def length(self, request: Request) -> int:
        """Tokens at which each of its samples ends."""
        wanted = request.params.max_tokens
        return self._config.max_context if wanted is None else len(request.prompt) + wanted

    def price(self, request: Request) -> tuple[int, ...]:
        """Blocks of each group that it takes at most."""
        num_prompt = len(request.prompt)
        num_new = self.length(request) - num_prompt
        return self._kv.layout.price(num_prompt, num_new, request.params.n, self._config.max_chunk)

    def check(self, request: Request) -> None:
        num_prompt, limit, context = len(request.prompt), self.length(request), self._config.max_context
        if num_prompt >= context:
            raise Refused(f"the prompt has {num_prompt} tokens, the context holds {context}: shorten the prompt")
        if limit > context:
            raise Refused(
                f"the prompt has {num_prompt} tokens and max_tokens is {limit - num_prompt}, the context holds "
                f"{context}: set max_tokens to {context - num_prompt} at most"
            )
        if request.params.n > self._config.max_running:
            raise Refused(f"n is {request.params.n}, but {self._config.max_running} samples run at once: lower n")
        for blocks, pool in zip(self.price(request), self._kv.pools, strict=True):
            if blocks > pool.num_blocks:
                raise Refused(
                    f"{limit} tokens in {request.params.n} samples may need {blocks} blocks of memory, there are "
                    f"{pool.num_blocks}: lower max_tokens or n"
                )
