"""Reads a running server's /metrics for `surefoot top`."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 5.0
MOST_BYTES = 8 << 20
ADVICE = {401: "give a key with --key", 403: "give an admin key with --key (surefoot keys add --admin makes one)"}

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Mapping[Labels, float]]


@dataclass(frozen=True)
class View:
    """What `top` shows. Rates and means cover the time between two reads; None where nothing happened."""

    model: str
    requests_running: int
    requests_waiting: int
    requests_in_server: int
    kv_use: float  # share of KV blocks in use
    generated_per_second: float  # tokens
    prompt_per_second: float  # tokens
    step_ms: float | None  # mean time of a step
    tokens_per_step: float | None
    ttft_ms: float | None  # mean time to the first token
    gap_ms: float | None  # mean time between two tokens of an answer
    queue_ms: float | None  # mean time in the queue
    cache_hit_rate: float | None  # share of prompt tokens found in the prefix cache
    preemptions: int  # since the start, as are the next three
    refused: int
    engine_failures: int
    throttled_s: float
    tokens_by_user: Mapping[str, float]  # tokens per second, the busiest user first


def fetch(address: str, key: str | None) -> Samples:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=TIMEOUT_S) as reply:
            return parse(reply.read(MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        advice = ADVICE.get(error.code, error.reason)
        raise OSError(f"{address} answers {error.code}: {advice}") from None
    except (urllib.error.URLError, ValueError) as error:
        raise OSError(f"{address} cannot be read: {getattr(error, 'reason', error)}") from None


def parse(text: str) -> Samples:
    """Values of all metrics, by name and labels."""
    values: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


def look(before: Samples, after: Samples, seconds: float) -> View:
    def total(samples: Samples, name: str) -> float:
        return sum(samples.get(name, {}).values())

    def value(name: str) -> float:
        return total(after, name)

    def grown(name: str) -> float:
        return value(name) - total(before, name)

    def mean(name: str, scale: float = 1.0) -> float | None:
        count = grown(f"{name}_count")
        return scale * grown(f"{name}_sum") / count if count else None

    queries = grown("vllm:prefix_cache_queries_total")
    models = {dict(labels).get("model_name", "") for labels in after.get("vllm:num_requests_running", {})}
    return View(
        model=next(iter(sorted(models)), ""),
        requests_running=int(value("vllm:num_requests_running")),
        requests_waiting=int(value("vllm:num_requests_waiting")),
        requests_in_server=int(value("surefoot:requests_in_server")),
        kv_use=value("vllm:kv_cache_usage_perc"),
        generated_per_second=grown("vllm:generation_tokens_total") / seconds,
        prompt_per_second=grown("vllm:prompt_tokens_total") / seconds,
        step_ms=mean("surefoot:step_seconds", 1000),
        tokens_per_step=mean("vllm:iteration_tokens_total"),
        ttft_ms=mean("vllm:time_to_first_token_seconds", 1000),
        gap_ms=mean("vllm:inter_token_latency_seconds", 1000),
        queue_ms=mean("vllm:request_queue_time_seconds", 1000),
        cache_hit_rate=grown("vllm:prefix_cache_hits_total") / queries if queries else None,
        preemptions=int(value("vllm:num_preemptions_total")),
        refused=int(value("surefoot:refused_requests_total")),
        engine_failures=int(value("surefoot:engine_failures_total")),
        throttled_s=value("surefoot:cpu_throttled_seconds_total"),
        tokens_by_user=by_user(before, after, seconds),
    )


def by_user(before: Samples, after: Samples, seconds: float) -> dict[str, float]:
    """Tokens a second, the busiest first."""
    name = "surefoot:user_tokens_total"
    grown = {
        dict(labels).get("user", ""): (value - before.get(name, {}).get(labels, 0.0)) / seconds
        for labels, value in after.get(name, {}).items()
    }
    return dict(sorted(grown.items(), key=lambda pair: -pair[1]))
