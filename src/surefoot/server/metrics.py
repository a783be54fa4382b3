"""What the server measures: Prometheus metrics, under vLLM's names where the meaning is the same, and where the time of
the last requests went."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from surefoot import machine
from surefoot.api.answers import RequestOutput
from surefoot.api.async_llm import AsyncLLM
from surefoot.cache import DiskTier
from surefoot.core import Chunk, SampleKey
from surefoot.engine import Event, Times

SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 3, 5, 10, 20, 60, 300)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)
NUM_RECENT = 1000  # ended requests of which the slowest are shown
NUM_SLOWEST = 20
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Watched(Collector):
    def __init__(self, name: str, text: str, model: str, read: Callable[[], float]) -> None:
        self._name, self._text, self._model, self._read = name, text, model, read

    def collect(self) -> Iterator[Metric]:
        kind = CounterMetricFamily if self._name.endswith("_total") else GaugeMetricFamily
        family = kind(self._name.removesuffix("_total"), self._text, labels=["model_name"])
        family.add_metric([self._model], self._read())
        yield family


class Metrics:
    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self.ttft = self._histogram("vllm:time_to_first_token_seconds", "Arrival to first token")
        self.gap = self._histogram("vllm:inter_token_latency_seconds", "Between two tokens of one answer")
        self.queue = self._histogram("vllm:request_queue_time_seconds", "Arrival to first step")
        self.prefill = self._histogram("vllm:request_prefill_time_seconds", "First step to first token")
        self.decode = self._histogram("vllm:request_decode_time_seconds", "First token to end")
        self.total = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to end")
        self.prompt_size = self._histogram("vllm:request_prompt_tokens", "Tokens of a prompt", TOKENS)
        self.answer_size = self._histogram("vllm:request_generation_tokens", "Tokens of an answer", TOKENS)
        self.step_size = self._histogram("vllm:iteration_tokens_total", "Tokens in a step", TOKENS)
        self.step_time = self._histogram("surefoot:step_seconds", "Time of a step")
        self.prompt_tokens = self._counter("vllm:prompt_tokens", "Tokens of all prompts")
        self.generated = self._counter("vllm:generation_tokens", "Tokens of all answers")
        self.cache_queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked for in the cache")
        self.cache_hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the cache")
        self.drafted = self._counter("vllm:spec_decode_num_draft_tokens", "Tokens that were guessed ahead")
        self.accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Of these, those that were right")
        self.passes = self._counter("surefoot:decode_passes", "Passes of the model that gave tokens to an answer")
        self._finished = self._counter("vllm:request_success", "Answers by how they ended", "finished_reason")
        self._refused = self._counter("surefoot:refused_requests", "Requests answered with an error", "status")
        self.ignored = self._counter("surefoot:ignored_parameters", "Unknown parameters of requests that were answered")
        self._user_tokens = self._counter("surefoot:user_tokens", "Prompt and answer tokens by user", "user")
        self._user_cached = self._counter("surefoot:user_cached_tokens", "Prompt tokens from the cache by user", "user")
        repeated = (
            "Prompt tokens behind a change, that the user's earlier prompt had too: a stable prefix would save them"
        )
        self._user_repeated = self._counter("surefoot:user_repeated_tokens", repeated, "user")

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        histogram = Histogram(name, text, ["model_name"], registry=self.registry, buckets=buckets)
        return histogram.labels(self._model)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        counter = Counter(name, text, ["model_name", *labels], registry=self.registry)
        return counter if labels else counter.labels(self._model)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a metric that is read on each scrape. A name that ends in _total is a counter, any other a gauge."""
        self.registry.register(_Watched(name, text, self._model, read))

    def refuse(self, status: int) -> None:
        self._refused.labels(self._model, str(status)).inc()

    def charge(self, user: str, num_tokens: int, num_cached: int, num_repeated: int) -> None:
        self._user_tokens.labels(self._model, user).inc(num_tokens)
        self._user_cached.labels(self._model, user).inc(num_cached)
        self._user_repeated.labels(self._model, user).inc(num_repeated)

    def count(self, output: RequestOutput) -> None:
        """Record a request that has ended."""
        usage, times = output.usage, output.timings
        self.prompt_tokens.inc(usage.num_prompt)
        self.cache_queries.inc(usage.num_prompt)
        self.cache_hits.inc(usage.num_cached)
        self.drafted.inc(usage.num_drafted)
        self.accepted.inc(usage.num_accepted)
        self.passes.inc(usage.num_passes)
        self.prompt_size.observe(usage.num_prompt)
        self.queue.observe(times.queued)
        if usage.num_generated:
            self.ttft.observe(times.to_first_token)
            self.prefill.observe(times.to_first_token - times.queued)
            self.decode.observe(times.total - times.to_first_token)
        self.total.observe(times.total)
        for answer in output.outputs:
            self.answer_size.observe(len(answer.token_ids))
            self._finished.labels(self._model, answer.finish_reason or "error").inc()

    async def read(self) -> bytes:
        return self.text()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StepMetrics:
    """Counts steps and times the gaps between an answer's tokens. Called on the engine's thread."""

    def __init__(self) -> None:
        self.metrics: Metrics | None = None
        self._last: dict[SampleKey, float] = {}

    def on_step(self, num_tokens: int, elapsed_ms: float, events: Sequence[Event], chunks: Sequence[Chunk]) -> None:
        if self.metrics is None:
            return
        self.metrics.step_size.observe(num_tokens)
        self.metrics.step_time.observe(elapsed_ms / 1000)
        self.metrics.generated.inc(sum(len(event.tokens) for event in events))
        now = time.monotonic()
        for event in events:
            if event.tokens and event.key in self._last:
                self.metrics.gap.observe(now - self._last[event.key])
            if event.tokens:
                self._last[event.key] = now
            if event.reason is not None:
                self._last.pop(event.key, None)


def watch_engine(metrics: Metrics, llm: AsyncLLM) -> None:
    watch = metrics.watch
    watch("vllm:num_requests_running", "Answers in the steps", lambda: llm.progress.load.num_running)
    watch("vllm:num_requests_waiting", "Answers that wait", lambda: llm.progress.load.num_waiting)
    watch("vllm:kv_cache_usage_perc", "Share of KV blocks in use", lambda: llm.progress.load.kv_use)
    cached = "Share of KV blocks with prefixes for later requests"
    watch("surefoot:kv_cache_cached_perc", cached, lambda: llm.progress.load.kv_cached)
    watch("surefoot:memory_bytes", "Memory of the process, without mapped files", machine.used_bytes)
    watch("surefoot:memory_limit_bytes", "Memory that it may use", lambda: machine.memory().limit_bytes)
    watch("vllm:num_preemptions_total", "Preemptions of running answers", lambda: llm.progress.load.num_preemptions)
    watch("surefoot:engine_steps_total", "Steps taken", lambda: llm.progress.num_steps)
    watch("surefoot:engine_failures_total", "Steps that failed as a whole", lambda: llm.progress.num_failures)
    watch("surefoot:cpu_throttled_seconds_total", "Time held back by the CPU quota", machine.throttled_s)
    if llm.disk_tier is not None:
        watch_disk(metrics, llm.disk_tier)


def watch_disk(metrics: Metrics, tier: DiskTier) -> None:
    """Metrics of the prompt cache on disk."""
    store, counters, watch = tier.store, tier.store.counters, metrics.watch
    watch("surefoot:cache_disk_bytes", "Bytes on disk", lambda: store.total_bytes)
    watch("surefoot:cache_disk_max_bytes", "Budget on disk", lambda: store.max_bytes)
    watch("surefoot:cache_disk_hits_total", "Blocks read", lambda: counters.num_hits)
    watch("surefoot:cache_disk_hit_tokens_total", "Tokens that were not computed again", lambda: tier.num_hit_tokens)
    watch("surefoot:cache_disk_read_bytes_total", "Bytes read", lambda: counters.read_bytes)
    watch("surefoot:cache_disk_writes_total", "Blocks written", lambda: counters.num_writes)
    watch("surefoot:cache_disk_written_bytes_total", "Bytes written", lambda: counters.written_bytes)
    watch("surefoot:cache_disk_evictions_total", "Blocks evicted", lambda: counters.num_evicted)
    watch("surefoot:cache_disk_checksum_failures_total", "Damaged blocks", lambda: counters.num_damaged)
    watch("surefoot:cache_disk_read_errors_total", "Reads that failed", lambda: counters.num_read_errors)
    watch("surefoot:cache_disk_write_errors_total", "Writes that failed", lambda: counters.num_write_errors)


# ---- the last requests ----


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of a request by what it did."""

    queue_s: float
    prefill_s: float
    decode_s: float
    other_s: float = 0.0  # template, tokens, grammar before the engine; a reader that lags behind it

    @classmethod
    def so_far(cls, times: Times, now: float) -> "PhaseTimes":
        started = now if times.started is None else times.started
        first = now if times.first_token is None else times.first_token
        return cls(started - times.arrived, first - started, now - first)

    @classmethod
    def of(cls, outputs: Sequence[RequestOutput], total_s: float) -> "PhaseTimes":
        """Of the answer that took longest. An answer that was abandoned leaves no times: all is `other_s`."""
        if not outputs:
            return cls(0.0, 0.0, 0.0, total_s)
        times = max((output.timings for output in outputs), key=lambda timings: timings.total)
        prefill, decode = times.to_first_token - times.queued, times.total - times.to_first_token
        return cls(times.queued, prefill, decode, max(0.0, total_s - times.total))


@dataclass(frozen=True)
class EndedRequest:
    id: str
    user: str
    route: str
    end: str  # how it ended: whole, abandoned, deadline …
    ended_at: float  # seconds since 1970
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seconds: float
    times: PhaseTimes


class RecentRequests:
    """The last requests that ended, a bounded number of them."""

    def __init__(self) -> None:
        self._recent: deque[EndedRequest] = deque(maxlen=NUM_RECENT)

    def add(self, request: EndedRequest) -> None:
        self._recent.append(request)

    def slowest(self) -> list[EndedRequest]:
        """The slowest first."""
        return heapq.nlargest(NUM_SLOWEST, self._recent, key=lambda request: request.seconds)
