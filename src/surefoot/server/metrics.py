"""What an operator watches, in Prometheus' form. Where vLLM has a metric of the same meaning, its name is used."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from surefoot.api.outputs import RequestOutput

SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 3, 5, 10, 20, 60, 300)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)
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

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...] = SECONDS) -> Histogram:
        made = Histogram(name, text, ["model_name"], registry=self.registry, buckets=buckets)
        return made.labels(self._model)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        made = Counter(name, text, ["model_name", *labels], registry=self.registry)
        return made if labels else made.labels(self._model)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A number that is read when somebody asks; one whose name ends in _total only grows."""
        self.registry.register(_Watched(name, text, self._model, read))

    def refuse(self, status: int) -> None:
        self._refused.labels(self._model, str(status)).inc()

    def charge(self, user: str, num_tokens: int) -> None:
        self._user_tokens.labels(self._model, user).inc(num_tokens)

    def count(self, output: RequestOutput) -> None:
        """A request has ended."""
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

    def text(self) -> bytes:
        return generate_latest(self.registry)
