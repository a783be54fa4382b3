"""Figures between two readings of the metrics, for `surefoot top` and for the operator's page."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from prometheus_client.core import Metric

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]
USER_TOKENS = "surefoot:user_tokens_total"


@dataclass(frozen=True)
class View:
    """Rates and means cover the time between two readings; None where nothing happened or nothing is known."""

    model: str
    requests_running: int
    requests_waiting: int
    requests_in_server: int
    kv_use: float  # share of KV blocks in use
    kv_cached: float  # share of KV blocks with prefixes for later requests
    generated_per_second: float  # tokens
    prompt_per_second: float  # tokens
    step_ms: float | None  # mean time of a step
    tokens_per_step: float | None
    weights_bandwidth_use: float | None  # share of the measured memory bandwidth that reading weights took
    ttft_ms: float | None  # mean time to the first token
    gap_ms: float | None  # mean time between two tokens of an answer
    queue_ms: float | None  # mean time in the queue
    cache_hit_rate: float | None  # share of prompt tokens found in the prefix cache
    drafts_accepted: float | None  # share of draft tokens that were right
    memory_bytes: int  # anonymous memory of the process
    memory_limit_bytes: int
    disk_bytes: int | None  # of the prompt cache on disk; None if there is none
    disk_max_bytes: int | None
    disk_hit_tokens_per_second: float
    preemptions: int  # since the start, as are the next three
    refused: int
    engine_failures: int
    throttled_s: float
    tokens_by_user: Mapping[str, float]  # tokens per second, the busiest user first


def samples_of(families: Iterable[Metric]) -> Samples:
    """Values of all metrics, by name and labels."""
    values: dict[str, dict[Labels, float]] = {}
    for family in families:
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


@dataclass(frozen=True)
class Interval:
    """Two readings of the metrics. Values are sums over all labels."""

    before: Samples
    after: Samples
    seconds: float

    def value(self, name: str) -> float:
        return _total(self.after, name)

    def known(self, name: str) -> int | None:
        return int(self.value(name)) if name in self.after else None

    def growth(self, name: str) -> float:
        return self.value(name) - _total(self.before, name)

    def rate(self, name: str) -> float:
        return self.growth(name) / self.seconds

    def mean(self, name: str, scale: float = 1.0) -> float | None:
        count = self.growth(f"{name}_count")
        return scale * self.growth(f"{name}_sum") / count if count else None

    def share(self, part: str, whole: str) -> float | None:
        growth = self.growth(whole)
        return self.growth(part) / growth if growth else None

    def observed(self, name: str, most: float = math.inf) -> int:
        """How many values of a histogram were at most so large; `most` is the bound of a bucket."""
        return int(sum(count for bound, count in self._buckets(name) if bound <= most))

    def quantile(self, name: str, share: float) -> float | None:
        """Of a histogram's values, linear within a bucket. Of the last bucket, which has no bound, its beginning."""
        buckets = self._buckets(name)
        rest = share * sum(count for _, count in buckets)
        for (start, _), (bound, count) in pairwise([(0.0, 0.0), *buckets]):
            if count and count >= rest:
                return start if math.isinf(bound) else start + (bound - start) * rest / count
            rest -= count
        return None

    def _buckets(self, name: str) -> list[tuple[float, float]]:
        """Bounds of a histogram's buckets, and how many values came into each."""
        counts: dict[float, float] = {}
        for samples, sign in ((self.after, 1), (self.before, -1)):
            for labels, count in samples.get(f"{name}_bucket", {}).items():
                bound = float(dict(labels)["le"])
                counts[bound] = counts.get(bound, 0.0) + sign * count
        bounds = sorted(counts)
        below = [0.0, *(counts[bound] for bound in bounds)]
        return [(bound, counts[bound] - less) for bound, less in zip(bounds, below, strict=False)]

    def weights_bandwidth_use(self) -> float | None:
        bandwidth = self.value("surefoot:memory_bandwidth_bytes_per_second")
        if not bandwidth or math.isnan(bandwidth):
            return None
        return self.rate("surefoot:engine_steps_total") * self.value("surefoot:weight_bytes") / bandwidth


def look(before: Samples, after: Samples, seconds: float) -> View:
    interval = Interval(before, after, seconds)
    value, rate, mean, share = interval.value, interval.rate, interval.mean, interval.share
    models = {dict(labels).get("model_name", "") for labels in after.get("vllm:num_requests_running", {})}
    return View(
        model=next(iter(sorted(models)), ""),
        requests_running=int(value("vllm:num_requests_running")),
        requests_waiting=int(value("vllm:num_requests_waiting")),
        requests_in_server=int(value("surefoot:requests_in_server")),
        kv_use=value("vllm:kv_cache_usage_perc"),
        kv_cached=value("surefoot:kv_cache_cached_perc"),
        generated_per_second=rate("vllm:generation_tokens_total"),
        prompt_per_second=rate("vllm:prompt_tokens_total"),
        step_ms=mean("surefoot:step_seconds", 1000),
        tokens_per_step=mean("vllm:iteration_tokens_total"),
        weights_bandwidth_use=interval.weights_bandwidth_use(),
        ttft_ms=mean("vllm:time_to_first_token_seconds", 1000),
        gap_ms=mean("vllm:inter_token_latency_seconds", 1000),
        queue_ms=mean("vllm:request_queue_time_seconds", 1000),
        cache_hit_rate=share("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
        drafts_accepted=share(
            "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"
        ),
        memory_bytes=int(value("surefoot:memory_bytes")),
        memory_limit_bytes=int(value("surefoot:memory_limit_bytes")),
        disk_bytes=interval.known("surefoot:cache_disk_bytes"),
        disk_max_bytes=interval.known("surefoot:cache_disk_max_bytes"),
        disk_hit_tokens_per_second=rate("surefoot:cache_disk_hit_tokens_total"),
        preemptions=int(value("vllm:num_preemptions_total")),
        refused=int(value("surefoot:refused_requests_total")),
        engine_failures=int(value("surefoot:engine_failures_total")),
        throttled_s=value("surefoot:cpu_throttled_seconds_total"),
        tokens_by_user=_rate_by_user(before, after, seconds),
    )  # fmt: skip


def tokens_by_user(samples: Samples) -> dict[str, float]:
    """Tokens of ended requests since the start."""
    return {dict(labels).get("user", ""): value for labels, value in samples.get(USER_TOKENS, {}).items()}


def _rate_by_user(before: Samples, after: Samples, seconds: float) -> dict[str, float]:
    old = tokens_by_user(before)
    rates = {user: (tokens - old.get(user, 0.0)) / seconds for user, tokens in tokens_by_user(after).items()}
    return dict(sorted(rates.items(), key=lambda pair: -pair[1]))


def _total(samples: Samples, name: str) -> float:
    return sum(samples.get(name, {}).values())
