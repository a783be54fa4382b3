"""Metrics of the front process and of all loaded models, as one page. Every metric has the model's name as a label."""

import asyncio
from collections.abc import Iterable, Iterator

import httpx2
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from surefoot.front.model_process import ModelProcess
from surefoot.front.pool import ModelPool
from surefoot.front.resident import ModelState
from surefoot.front.usage import TokenUsage
from surefoot.server.access.shares import Caller

SCRAPE_S = 5.0  # for a model's process to answer
NO_MODEL = ""  # label of what the front process refuses before a model is chosen


class _Pooled(Collector):
    """What is known of each model, loaded or not."""

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        residents, counters, label = self._pool.policy.residents, self._pool.counters, ["model_name"]
        state = GaugeMetricFamily("surefoot:model_state", "1 for the state that it is in", labels=[*label, "state"])
        memory = GaugeMetricFamily("surefoot:model_planned_bytes", "Memory planned for its process", labels=label)
        waiting = GaugeMetricFamily("surefoot:model_requests_waiting", "Requests that wait for its load", labels=label)
        load = GaugeMetricFamily("surefoot:model_load_seconds", "Time of its last load", labels=label)
        wait = GaugeMetricFamily("surefoot:model_longest_wait_seconds", "Longest wait for its load", labels=label)
        loads = CounterMetricFamily("surefoot:model_loads", "Times that it was loaded", labels=label)
        crashes = CounterMetricFamily("surefoot:model_crashes", "Ends of its process by itself", labels=label)
        for name, resident in residents.items():
            for possible in ModelState:
                state.add_metric([name, possible.value], float(resident.state is possible))
            memory.add_metric([name], resident.held_bytes)
            waiting.add_metric([name], len(resident.waiting))
            load.add_metric([name], counters[name].last_load_s)
            wait.add_metric([name], counters[name].longest_wait_s)
            loads.add_metric([name], counters[name].num_loads)
            crashes.add_metric([name], counters[name].num_crashes)
        yield from (state, memory, waiting, load, wait, loads, crashes)
        yield GaugeMetricFamily("surefoot:models_limit_bytes", "Memory for all models", self._pool.policy.limit_bytes)


class _Gathered(Collector):
    """Families that are known already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class FrontMetrics:
    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self._registry = CollectorRegistry()
        self._registry.register(_Pooled(pool))
        self._refused = Counter(
            "surefoot:refused_requests", "Requests answered with an error", ["model_name", "status"],
            registry=self._registry,
        )  # fmt: skip

        self._routed = Counter(
            "surefoot:routed_requests", "Answers to requests for a route, by the model that gave them and why",
            ["route", "model_name", "why"], registry=self._registry,
        )  # fmt: skip

        self._routed_s = Counter(
            "surefoot:routed_seconds", "Time of answers to requests for a route, other models' attempts included",
            ["route", "model_name"], registry=self._registry,
        )  # fmt: skip
        self._upstream_tokens = Counter(
            "surefoot:upstream_tokens", "Tokens of upstreams' answers that said so", ["model_name", "kind"],
            registry=self._registry,
        )  # fmt: skip
        self._upstream_cost = Counter(
            "surefoot:upstream_cost", "What upstreams cost, in the currency of their prices",
            ["model_name", "user", "key"], registry=self._registry,
        )  # fmt: skip

    def count_routed(self, route: str, model: str, why: str, seconds: float) -> None:
        self._routed.labels(route, model, why).inc()
        self._routed_s.labels(route, model).inc(seconds)

    def count_upstream(self, name: str, caller: Caller, usage: TokenUsage | None, cost: float) -> None:
        """A request that an upstream got."""
        self._upstream_cost.labels(name, caller.user, caller.key).inc(cost)
        for kind, num_tokens in (("prompt", usage.prompt), ("answer", usage.answer)) if usage is not None else ():
            self._upstream_tokens.labels(name, kind).inc(num_tokens)

    def refuse(self, status: int) -> None:
        self._refused.labels(NO_MODEL, str(status)).inc()

    async def text(self) -> bytes:
        """A process that does not answer in time is left out."""
        pages = await asyncio.gather(*map(_scrape, self._pool.processes.values()))
        return merge([generate_latest(self._registry).decode(), *pages])


async def _scrape(process: ModelProcess) -> str:
    try:
        reply = await process.client.get("/metrics", timeout=SCRAPE_S)
    except httpx2.TransportError:
        return ""
    return reply.text if reply.status_code == 200 else ""


def merge(pages: Iterable[str]) -> bytes:
    """One page of metrics from several, with each family once. Figures of a model's copies are added up."""
    families: dict[str, Metric] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            families.setdefault(family.name, _empty(family)).samples += family.samples
    for family in families.values():
        family.samples = _added(family.samples)
    registry = CollectorRegistry()
    registry.register(_Gathered(families.values()))
    return generate_latest(registry)


def _added(samples: Iterable[Sample]) -> list[Sample]:
    totals: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        key = (sample.name, *sorted(sample.labels.items()))
        both = (sample.value, totals[key].value) if key in totals else (sample.value,)
        totals[key] = sample._replace(value=max(both) if sample.name.endswith("_created") else sum(both))
    return [*totals.values()]


def _empty(family: Metric) -> Metric:
    return Metric(family.name, family.documentation, family.type, family.unit)
