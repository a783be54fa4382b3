"""A fleet on a Ray cluster. Ray places the servers, and starts them anew elsewhere when a machine dies.

Ray is for control alone: each server and the gateway is a process of its own under an actor that keeps it running, and
requests go from the gateway to the servers over HTTP. Actors are detached: the fleet outlives the command.
"""

import http.client
import json
import logging
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.fleet.fleet_file import FleetFile
from surefoot.fleet.process_keeper import ProcessKeeper, ProcessState
from surefoot.fleet.server_list import write_servers

LOG = logging.getLogger(__name__)
SUREFOOT = (sys.executable, "-m", "surefoot")
FOLLOW_S = 1.0  # between two looks at where the servers are
PART_S = 60.0  # within which a server that is ready must take part again
CALL_S = 10.0  # within which an actor must answer
POLL_S = 0.2
NUM_THREADS = 4  # of an actor: it answers while its server drains
TOKEN_SHARE = 0.001  # of a resource that says where an actor belongs
OK = 200
GATEWAY = "gateway"


def import_ray() -> Any:
    """Raises ValueError if it is not installed."""
    try:
        import ray  # noqa: PLC0415
    except ImportError:
        raise ValueError("Ray is not installed: pip install 'surefoot[fleet]'") from None
    return ray


@dataclass(frozen=True)
class MemberStatus:
    """One process of the fleet, as its actor tells. state: None if the actor does not answer."""

    name: str
    url: str
    is_ready: bool
    state: ProcessState | None


@dataclass(frozen=True)
class RatesStatus:
    """Who keeps the clients' rates, as the gateway knows. since: Unix time. None: the gateway does not know it."""

    keeper: str | None
    since: float | None
    users: int | None  # of whose rates gateways hold a part
    gateways: int | None


@dataclass(frozen=True)
class FleetStatus:
    """rates: None if the gateway does not answer."""

    members: tuple[MemberStatus, ...]
    rates: RatesStatus | None

    @property
    def is_ready(self) -> bool:
        return bool(self.members) and all(member.is_ready for member in self.members)


# ---- actors ----


class ReplicaActor:
    """Keeps a server running on the machine where Ray placed it. The port stays, so that its address does."""

    def __init__(self, file: FleetFile) -> None:
        self._host = _own_address(import_ray())
        self._port = _free_port(self._host)
        self._keeper = ProcessKeeper(serve_command(file, self._host, self._port))

    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    def status(self) -> tuple[str, bool, ProcessState]:
        return self.url(), is_ready(self._host, self._port), self._keeper.state()

    def upgrade(self, file: FleetFile) -> None:
        """Drain the server, then start it as the file says now. Its answers go on elsewhere."""
        self._keeper.replace(serve_command(file, self._host, self._port))

    def stop(self) -> None:
        self._keeper.stop()


class GatewayActor:
    """Keeps the gateway running, and tells it where the servers are."""

    def __init__(self, file: FleetFile) -> None:
        self._file = file
        self._servers = Path(tempfile.mkdtemp(prefix="surefoot-fleet-")) / "servers"
        write_servers(self._servers, [])
        self._keeper = ProcessKeeper(gateway_command(file, self._servers))
        self._ended = threading.Event()
        threading.Thread(target=self._follow, name="servers", daemon=True).start()

    def status(self) -> tuple[str, bool, ProcessState]:
        url = f"http://{self._file.host}:{self._file.port}"
        return url, is_ready(self._file.host, self._file.port), self._keeper.state()

    def stop(self) -> None:
        self._ended.set()
        self._keeper.stop()

    def num_taking_part(self) -> int:
        """Servers that the gateway sends requests to."""
        status, body = answer_at("/ready", self._file.host, self._file.port)
        return int(json.loads(body)["ready"]) if status == OK else 0

    def rates(self) -> RatesStatus | None:
        """None: the gateway does not answer, or tells only clients on its own machine."""
        status, body = answer_at("/health", self._file.host, self._file.port)
        told = json.loads(body).get("rates") if status == OK else None
        return rates_status(told, time.time()) if told is not None else None

    def _follow(self) -> None:
        """A server whose actor does not answer stays where it was: the gateway notices by itself if it is gone."""
        ray, urls = import_ray(), dict[str, str]()
        while not self._ended.wait(FOLLOW_S):
            try:
                replies = [(name, _ask(ray, handle.url)) for name, handle in replica_handles(ray, self._file)]
            except ray.exceptions.RayError as error:  # there is no head right now
                LOG.warning("Ray does not say where servers are: %s", error)
                continue
            moved = {**urls, **{name: url for name, url in replies if url is not None}}
            if moved != urls:
                write_servers(self._servers, list(moved.values()))
                urls = moved


def serve_command(file: FleetFile, host: str, port: int) -> tuple[str, ...]:
    place = ("--host", host, "--port", str(port), "--fleet-key", file.key, *_keys(file))
    return (*SUREFOOT, "serve", file.model, *place, *file.options)


def gateway_command(file: FleetFile, servers: Path) -> tuple[str, ...]:
    place = ("--fleet-key", file.key, "--host", file.host, "--port", str(file.port), *_keys(file))
    return (*SUREFOOT, "fleet", "gateway", "--servers", str(servers), *place, *file.gateway_options)


def _keys(file: FleetFile) -> tuple[str, ...]:
    return ("--keys", file.keys) if file.keys else ()


def is_ready(host: str, port: int) -> bool:
    return answer_at("/ready", host, port)[0] == OK


def rates_status(told: Mapping[str, Any], now: float) -> RatesStatus:
    """told: of `/health` of a gateway. now: Unix time."""
    since = None if told["kept_s"] is None else now - told["kept_s"]
    return RatesStatus(told["keeper"], since, told["users"], told["gateways"])


def answer_at(path: str, host: str, port: int) -> tuple[int, bytes]:
    """Status and body; status 0 if nobody answers."""
    connection = http.client.HTTPConnection(host, port, timeout=CALL_S / 2)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


def _own_address(ray: Any) -> str:
    """This machine's address, as the cluster knows it."""
    own = ray.get_runtime_context().get_node_id()
    return str(next(node["NodeManagerAddress"] for node in ray.nodes() if node["NodeID"] == own))


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


# ---- the commands ----


def connect(file: FleetFile) -> Any:
    """Ray, connected to the fleet's cluster. Raises ValueError if there is none."""
    ray = import_ray()
    try:
        ray.init(
            address=file.ray_address, namespace=_namespace(file), log_to_driver=False, logging_level=logging.ERROR,
            configure_logging=False,
        )  # fmt: skip
    except ConnectionError as error:
        raise ValueError(f"there is no Ray cluster at {file.ray_address!r}: start one with ray start --head") from error
    return ray


def start_fleet(ray: Any, file: FleetFile) -> None:
    """Start what is not there yet. Replicas are spread over machines."""
    reserved = {"num_cpus": file.cpus} | ({"memory": int(file.memory_gb * 2**30)} if file.memory_gb else {})
    keeping = {"lifetime": "detached", "max_restarts": -1, "get_if_exists": True, "max_concurrency": NUM_THREADS}
    for name in replica_names(file):
        kind = ray.remote(ReplicaActor).options(name=name, scheduling_strategy="SPREAD", **reserved, **keeping)
        kind.remote(file)
    place = {"resources": {file.gateway_resource: TOKEN_SHARE}} if file.gateway_resource else {}
    ray.remote(GatewayActor).options(name=GATEWAY, num_cpus=0, **place, **keeping).remote(file)


def fleet_status(ray: Any, file: FleetFile) -> FleetStatus:
    gateways = [*_handles(ray, file, [GATEWAY])]
    replies = [(name, _ask(ray, handle.status)) for name, handle in [*replica_handles(ray, file), *gateways]]
    members = (
        MemberStatus(name, "", False, None) if reply is None else MemberStatus(name, *reply) for name, reply in replies
    )
    return FleetStatus(tuple(members), _ask(ray, gateways[0][1].rates) if gateways else None)


def upgrade_fleet(ray: Any, file: FleetFile, say: Callable[[str], None]) -> None:
    """One replica after the other: drain, start as the file says now, wait until it is ready. Raises RuntimeError if
    one does not get ready; the others are then left as they are."""
    for name, handle in replica_handles(ray, file):
        say(f"{name}: drains")
        ray.get(handle.upgrade.remote(file))
        await_ready(ray, name, handle, file.ready_s)
        _await_all_taking_part(ray, file, name)
        say(f"{name}: ready")


def await_ready(ray: Any, name: str, handle: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (reply := _ask(ray, handle.status)) is None or not reply[1]:
        if time.monotonic() > end:
            raise RuntimeError(f"{name} was not ready within {seconds:.0f} s: see Ray's logs of its actor")
        time.sleep(POLL_S)


def _await_all_taking_part(ray: Any, file: FleetFile, last: str) -> None:
    end = time.monotonic() + PART_S
    for _, gateway in _handles(ray, file, [GATEWAY]):
        while (_ask(ray, gateway.num_taking_part) or 0) < file.replicas:
            if time.monotonic() > end:
                raise RuntimeError(f"the gateway sends {last} no requests: its log says why")
            time.sleep(POLL_S)


def await_fleet(ray: Any, file: FleetFile) -> None:
    for name, handle in [*replica_handles(ray, file), *_handles(ray, file, [GATEWAY])]:
        await_ready(ray, name, handle, file.ready_s)
    _await_all_taking_part(ray, file, "every server")


def stop_fleet(ray: Any, file: FleetFile) -> int:
    """Stop all processes gently, the gateway first. Returns how many there were."""
    handles = [*_handles(ray, file, [GATEWAY]), *replica_handles(ray, file)]
    for _, handle in handles:
        ray.get(handle.stop.remote())
        ray.kill(handle)
    return len(handles)


def replica_names(file: FleetFile) -> list[str]:
    return [f"replica-{number}" for number in range(file.replicas)]


def replica_handles(ray: Any, file: FleetFile) -> list[tuple[str, Any]]:
    return list(_handles(ray, file, replica_names(file)))


def _handles(ray: Any, file: FleetFile, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Of the actors that exist."""
    for name in names:
        try:
            yield name, ray.get_actor(name, namespace=_namespace(file))
        except ValueError:
            continue


def _ask(ray: Any, method: Any) -> Any:
    """What an actor answers; None if it does not, or not in time."""
    try:
        return ray.get(method.remote(), timeout=CALL_S)
    except ray.exceptions.RayError:
        return None


def _namespace(file: FleetFile) -> str:
    return f"surefoot-{file.name}"
