"""A gateway's Prometheus metrics. They name no users."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from surefoot.fleet.failover import FleetAnswer
from surefoot.fleet.lease_exchange import LeaseExchange
from surefoot.fleet.members import Member, Members

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15)
NO_STATUS = "none"  # the client left before there was one
READY, REFUSED, AWAY = "ready", "refused", "away"


class GatewayMetrics:
    """Counts requests as they end. Servers and rates are read on each scrape."""

    def __init__(self, members: Members, exchange: LeaseExchange) -> None:
        self.num_failovers = 0
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "surefoot:gateway_requests", "Requests by the status of their reply", ["status"], registry=self._registry
        )
        self._added = Histogram(
            "surefoot:gateway_added_seconds", "A request was read until a server was asked", registry=self._registry,
            buckets=SECONDS,
        )  # fmt: skip
        self._registry.register(_GatewayState(self, members, exchange))

    def count_request(self, status: int | None) -> None:
        """status: None if the client left before there was one."""
        self._requests.labels(NO_STATUS if status is None else str(status)).inc()

    def count_answer(self, answer: FleetAnswer, began: float) -> None:
        """began: when the request was read."""
        self.num_failovers += answer.num_failovers
        if answer.forwarded_at is not None:
            self._added.observe(answer.forwarded_at - began)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _GatewayState(Collector):
    """What others count."""

    def __init__(self, metrics: GatewayMetrics, members: Members, exchange: LeaseExchange) -> None:
        self._metrics, self._members, self._exchange = metrics, members, exchange

    def collect(self) -> Iterator[Metric]:
        servers = GaugeMetricFamily("surefoot:gateway_servers", "Servers that it knows, by state", labels=["state"])
        states = [state_of(member) for member in self._members.all if member.is_listed]
        for state in (READY, REFUSED, AWAY):
            servers.add_metric([state], states.count(state))
        yield servers
        yield _counter("surefoot:gateway_failovers", "Times a request went on elsewhere", self._metrics.num_failovers)
        yield _counter("surefoot:gateway_strikes", "Malformed messages of servers", self._members.num_strikes)
        exchange = self._exchange
        yield _counter("surefoot:gateway_rate_refusals", "Requests above a rate", exchange.leases.num_refused)
        yield _counter("surefoot:gateway_failed_exchanges", "Exchanges of leases that failed", exchange.num_failures)


def state_of(member: Member) -> str:
    """away: it drains, does not answer, or has not answered yet."""
    if member.refusal:
        return REFUSED
    return READY if member.is_ready else AWAY


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
