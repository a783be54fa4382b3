"""A server's metrics of its fleet."""

from surefoot.cache import PeerBlocks
from surefoot.fleet.replica.block_server import SentCounters
from surefoot.fleet.replica.lease_keeper import LeaseKeeper
from surefoot.server.metrics import Metrics


def watch_fetched(metrics: Metrics, peers: PeerBlocks) -> None:
    """Blocks from other servers."""
    counters, watch = peers.counters, metrics.watch
    watch("surefoot:fleet_fetched_tokens_total", "Tokens fetched, not computed", lambda: counters.num_fetched_tokens)
    watch("surefoot:fleet_fetched_bytes_total", "Bytes of these", lambda: counters.fetched_bytes)
    watch("surefoot:fleet_fetch_failures_total", "Fetches that broke off or were late", lambda: counters.num_failures)
    watch("surefoot:fleet_fetch_checksum_failures_total", "Damaged fetches", lambda: counters.num_damaged)


def watch_sent(metrics: Metrics, counters: SentCounters) -> None:
    metrics.watch("surefoot:fleet_sent_blocks_total", "Blocks for other servers", lambda: counters.num_blocks)
    metrics.watch("surefoot:fleet_sent_bytes_total", "Bytes of these", lambda: counters.num_bytes)


def watch_leases(metrics: Metrics, keeper: LeaseKeeper) -> None:
    """Rates that this server keeps for gateways. All are 0 on the servers that do not keep them."""
    watch = metrics.watch
    watch("surefoot:fleet_lease_gateways", "Gateways whose clients' rates it keeps", lambda: keeper.num_gateways)
    watch("surefoot:fleet_leased_rates", "Rates of which gateways hold a part", lambda: keeper.num_rates)
    watch("surefoot:fleet_lease_exchanges_total", "Exchanges of leases", lambda: keeper.num_exchanges)
