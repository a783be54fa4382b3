"""The requests that have not ended, with their samples, and the limits that a request must respect."""

from collections.abc import Iterator
from itertools import count

from surefoot.core import Delta, FinishReason, Request, SampleKey
from surefoot.kv import KvManager
from surefoot.scheduler.config import SchedulerConfig
from surefoot.scheduler.rows import RunningSamples
from surefoot.scheduler.sample import LazyHeap, Sample, State, Users


class RequestRefused(ValueError):
    """The request can never run here, or the queue is full."""


class Limits:
    """The limits of requests. A request that could never run is refused before anything is allocated."""

    def __init__(self, config: SchedulerConfig, kv: KvManager) -> None:
        self._config = config
        self._kv = kv

    def end(self, request: Request) -> tuple[int, FinishReason]:
        """Length in tokens at which each of its samples ends, and the reason. Only MEMORY depends on this machine."""
        context, max_tokens = self._config.context_length or self._config.max_context, request.params.max_tokens
        length = context if max_tokens is None else min(context, len(request.prompt) + max_tokens)
        if length > self._config.max_context:
            return self._config.max_context, FinishReason.MEMORY
        return length, FinishReason.LENGTH

    def price(self, request: Request) -> tuple[int, ...]:
        """The most blocks that it can take, for each group of the layout."""
        num_prompt = len(request.prompt)
        num_new = self.end(request)[0] - num_prompt
        return self._kv.layout.price(num_prompt, num_new, request.params.n, self._config.max_chunk)

    def check(self, request: Request) -> None:
        """Raises RequestRefused if the request could never run."""
        if self._config.whole_prompts and not request.embeds:
            raise RequestRefused("this model makes embeddings and generates no text: use /v1/embeddings")
        num_prompt, memory = len(request.prompt), self._config.max_context
        context = self._config.context_length or memory
        if num_prompt >= context:
            raise RequestRefused(f"the prompt has {num_prompt} tokens, the context holds {context}: shorten the prompt")
        if num_prompt >= memory:
            raise RequestRefused(
                f"the prompt has {num_prompt} tokens, memory on this machine holds {memory}: shorten the prompt, or "
                "grant the process more memory"
            )
        if request.begun and num_prompt + max(map(len, request.begun)) >= self.end(request)[0]:
            num_most = self.end(request)[0] - num_prompt
            raise RequestRefused(f"the resumed answer already has all of its {num_most} tokens")
        if request.params.n > self._config.max_running:
            raise RequestRefused(
                f"n is {request.params.n}, but {self._config.max_running} samples run at once: lower n"
            )
        for blocks, pool in zip(self.price(request), self._kv.pools, strict=True):
            if blocks > pool.num_blocks:
                raise RequestRefused(
                    f"{self.end(request)[0]} tokens in {request.params.n} samples may need {blocks} blocks of memory, "
                    f"there are {pool.num_blocks}: lower max_tokens or n"
                )


class Requests:
    """Adds requests, forks their samples at the end of the prompt, and ends them."""

    def __init__(self, kv: KvManager, users: Users, running: RunningSamples) -> None:
        self._kv = kv
        self._users = users
        self._running = running
        self._samples: dict[str, dict[int, Sample]] = {}
        self._deadlines: LazyHeap[str] = LazyHeap()
        self._num_computed: dict[str, int] = {}  # of requests that were overdue in their prompt
        self._answering: list[str] = []  # requests whose prompt has been computed since the last look at deadlines
        self._arrivals = count()

    def __len__(self) -> int:
        return len(self._samples)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._samples

    def __iter__(self) -> Iterator[Sample]:
        return (sample for siblings in self._samples.values() for sample in siblings.values())

    def find(self, key: SampleKey) -> Sample | None:
        return self._samples.get(key.request, {}).get(key.sample)

    @property
    def first_deadline(self) -> float | None:
        first = self._deadlines.peek()
        return None if first is None else first[0]

    def add(self, request: Request, end: int, end_reason: FinishReason) -> list[Sample]:
        """The request's first sample, which represents all n samples until the end of the prompt. If its outputs have
        begun, one sample for each: they meet again in the prefix tree."""
        n, arrival = request.params.n, next(self._arrivals)
        represented = [(number,) for number in range(n)] if request.begun else [tuple(range(n))]
        samples = [self._begin(request, numbers, arrival, end, end_reason) for numbers in represented]
        self._samples[request.id] = {sample.key.sample: sample for sample in samples}
        if request.deadline is not None:
            self._deadlines.push(request.deadline, request.id)
        return samples

    def _begin(
        self, request: Request, numbers: tuple[int, ...], arrival: int, end: int, end_reason: FinishReason
    ) -> Sample:
        user = self._users.enter(request.user, request.weight)
        holding = self._kv.open(request.namespace, request.num_public_tokens)
        sample = Sample(request, numbers[0], user, holding, arrival, end, end_reason)
        sample.sample_numbers = numbers
        if request.begun:
            sample.tokens += request.begun[numbers[0]]
        sample.tag = self._users.num_served + len(sample.tokens)
        return sample

    def fork(self, parent: Sample, number: int) -> Sample:
        """A new sample at the end of the prompt. It shares all blocks of its parent, and samples its own tokens."""
        holding = self._kv.fork(parent.holding)
        user = self._users.enter(parent.request.user)
        sample = Sample(parent.request, number, user, holding, parent.arrival, parent.end, parent.end_reason)
        sample.tag, sample.num_cached = parent.tag, parent.num_cached
        sample.num_charged = holding.num_computed
        self._samples[parent.request.id][number] = sample
        parent.sample_numbers = (parent.key.sample,)
        parent.num_slots = 0  # the last block is shared now: copy on write
        self._running.add_fork(sample)
        return sample

    def end(self, sample: Sample) -> None:
        self._running.leave(sample, State.ENDED)
        sample.fast_until = 0
        if sample.reading is not None:
            sample.reading.cancel()
        self._kv.close(sample.holding)
        self._users.leave(sample.user)
        siblings = self._samples[sample.key.request]
        del siblings[sample.key.sample]
        if not siblings:
            del self._samples[sample.key.request]
            self._deadlines.discard(sample.key.request)
            self._num_computed.pop(sample.key.request, None)

    def end_request(self, request_id: str, reason: FinishReason) -> list[Delta]:
        """End all samples of a request, forked or not. Does nothing if the request has ended."""
        samples = list(self._samples.get(request_id, {}).values())
        ended = [(number, sample.num_cached) for sample in samples for number in sample.sample_numbers]
        for sample in samples:
            self.end(sample)
        return [Delta(SampleKey(request_id, number), (), reason, num_cached) for number, num_cached in ended]

    def begin_answer(self, sample: Sample) -> None:
        """Its prompt is computed. The time of its answer counts from the next look at deadlines on."""
        if sample.request.answer_s is not None:
            self._answering.append(sample.key.request)

    def end_overdue(self, now: float) -> list[Delta]:
        """End the requests whose deadline has passed, but for prompts that advance."""
        for request_id in self._answering:
            if request_id in self._deadlines:
                self._postpone(request_id, now)
        self._answering.clear()
        dropped: list[Delta] = []
        while (first := self._deadlines.peek()) is not None and first[0] <= now:
            if self._prompt_advances(first[1]):
                self._postpone(first[1], now)
            else:
                dropped += self.end_request(first[1], FinishReason.DEADLINE)
        return dropped

    def _postpone(self, request_id: str, now: float) -> None:
        sample = next(iter(self._samples[request_id].values()))
        assert sample.request.answer_s is not None
        self._deadlines.push(now + sample.request.answer_s, request_id)

    def _prompt_advances(self, request_id: str) -> bool:
        """Whether more of its prompt has been computed since the deadline that has passed was set."""
        samples = self._samples[request_id].values()
        if any(sample.request.answer_s is None or sample.num_answered for sample in samples):
            return False
        num_computed = sum(sample.num_computed for sample in samples)
        before = self._num_computed.get(request_id, 0)
        self._num_computed[request_id] = num_computed
        return num_computed > before
