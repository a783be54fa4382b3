"""Runs a gateway behind the same door as a server."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import httpx2

from surefoot.fleet.gateway import Beside, Gateway
from surefoot.fleet.members import CONNECT_S, Members
from surefoot.fleet.replica_transport import ReplicaTransport
from surefoot.fleet.server_list import follow_servers
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import RequestIds, RequestLogs
from surefoot.server.door import Door, guarded
from surefoot.server.settings import ServerSettings

STALL_GRACE_S = 60.0  # after the deadline, by which the replicas themselves end a request


def serve_gateway(
    settings: ServerSettings,
    keys: KeyStore | None,
    fleet_key: str,
    urls: Sequence[str],
    servers: Path | None,
    tell: Callable[[str], None],
) -> None:
    """Run until the gateway is told to end and has drained. servers: a file with the addresses, which may change."""
    door = Door.open(settings, keys)
    timeout = httpx2.Timeout(None, connect=CONNECT_S)
    client = httpx2.AsyncClient(transport=ReplicaTransport(), timeout=timeout, trust_env=False)
    members, logs = Members(urls, fleet_key, client), RequestLogs.open(settings)
    beside: list[Beside] = [] if servers is None else [partial(follow_servers, servers, members)]
    beside += [] if keys is None else [keys.watch]
    stall_s = settings.deadline_s + STALL_GRACE_S
    gateway = Gateway(members, has_keys=keys is not None, stall_s=stall_s, beside=beside)
    app = guarded(gateway, door.settings, keys, logs.audit, lambda: gateway.is_draining, gateway.count_refusal)
    door.serve(RequestIds(app, logs.access.write), GatewayServer(gateway, keys, logs, tell))


class GatewayServer:
    """What a gateway does at its start, on signals and at its end."""

    def __init__(self, gateway: Gateway, keys: KeyStore | None, logs: RequestLogs, tell: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._keys = keys
        self._logs = logs
        self._tell = tell

    @property
    def num_requests(self) -> int:
        return self._gateway.num_requests

    async def started(self, address: str) -> None:
        self._tell(f"ready    {address}")

    def read_again(self) -> None:
        """Read the keys again and reopen the logs."""
        if self._keys is not None:
            self._keys.reload()
        self._logs.reopen()

    def drain(self) -> None:
        self._gateway.is_draining = True

    def abort_all(self) -> None:
        self._gateway.abort_all()
