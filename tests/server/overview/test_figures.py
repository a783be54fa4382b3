"""Figures between two readings of the metrics."""

import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from surefoot.server.overview.figures import Interval, Samples, look, samples_of, tokens_by_user


class Source:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.steps = Counter("surefoot:engine_steps", "", registry=registry)
        self.step_time = Histogram("surefoot:step_seconds", "", registry=registry)
        self.generated = Counter("vllm:generation_tokens", "", registry=registry)
        self.hits = Counter("vllm:prefix_cache_hits", "", registry=registry)
        self.queries = Counter("vllm:prefix_cache_queries", "", registry=registry)
        self.weights = Gauge("surefoot:weight_bytes", "", registry=registry)
        self.bandwidth = Gauge("surefoot:memory_bandwidth_bytes_per_second", "", registry=registry)
        self.tokens = Counter("surefoot:user_tokens", "", ["model_name", "user"], registry=registry)

    def read(self) -> Samples:
        return samples_of(self.registry.collect())


def test_rates_and_means_are_of_the_interval() -> None:
    source = Source()
    source.generated.inc(1000)
    source.step_time.observe(8.0)
    before = source.read()
    source.generated.inc(30)
    source.step_time.observe(0.25)
    source.step_time.observe(0.75)
    source.queries.inc(8)
    source.hits.inc(2)
    view = look(before, source.read(), seconds=2.0)
    assert (view.generated_per_second, view.step_ms, view.cache_hit_rate) == (15.0, 500.0, 0.25)


def test_what_did_not_happen_has_no_mean() -> None:
    samples = Source().read()
    view = look(samples, samples, seconds=1.0)
    assert (view.step_ms, view.cache_hit_rate, view.ttft_ms, view.disk_bytes) == (None, None, None, None)
    assert view.generated_per_second == 0.0


def test_the_share_of_bandwidth_that_weights_take() -> None:
    source = Source()
    before = source.read()
    source.steps.inc(10)
    source.weights.set(100)
    for bandwidth, share in ((4000.0, 0.125), (math.nan, None), (0.0, None)):
        source.bandwidth.set(bandwidth)
        assert look(before, source.read(), seconds=2.0).weights_bandwidth_use == share


def test_users_come_by_their_speed() -> None:
    source = Source()
    source.tokens.labels("small", "idle").inc(500)
    before = source.read()
    source.tokens.labels("small", "new").inc(7)
    source.tokens.labels("small", "idle").inc(1)
    after = source.read()
    assert look(before, after, seconds=1.0).tokens_by_user == {"new": 7.0, "idle": 1.0}
    assert tokens_by_user(after) == {"idle": 501.0, "new": 7.0}


def test_how_many_values_were_small_and_how_large_most_were() -> None:
    registry = CollectorRegistry()
    times = Histogram("times", "", buckets=(1, 2, 4), registry=registry)
    times.observe(0.5)
    before = samples_of(registry.collect())
    for value in (0.5, 1.5, 1.6, 1.7, 3.0, 9.0):
        times.observe(value)
    interval = Interval(before, samples_of(registry.collect()), 1.0)
    assert (interval.observed("times"), interval.observed("times", 2)) == (6, 4)
    assert interval.quantile("times", 0.5) == 1 + 2 / 3  # the second of the three between 1 and 2
    assert interval.quantile("times", 0.99) == 4  # more is not known
    assert interval.quantile("none", 0.5) is None
    assert Interval(before, before, 1.0).quantile("times", 0.5) is None
