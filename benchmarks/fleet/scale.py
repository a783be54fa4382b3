"""What a gateway has to do as a fleet grows: the router in simulated time with 10, 100, 1,000 machines, then cells."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx2
import uvloop

from benchmarks.fleet.compare_routers import NAME_BYTES, PredictedRun
from benchmarks.fleet.simulation.policies import CellPolicy, PredictedPolicy
from benchmarks.fleet.simulation.routing import FleetShape, Policy, ReportReader, SimulatedFigures, Simulation
from surefoot.bench.harness.figures import percentile
from surefoot.fleet.frames import ReplicaState
from surefoot.fleet.members import CONNECT_S, Members
from surefoot.fleet.prefix_index import PrefixIndex
from surefoot.fleet.replica_transport import ReplicaTransport
from surefoot.fleet.router import ReplicaReport, ReplicaRouter

NUM_POLLS = 500
CELL_SIZE = 100


@dataclass(frozen=True)
class ScaleRow:
    """One size of fleet. Processor times are of one gateway that knows all machines of its router."""

    num_replicas: int
    num_routers: int  # more than one: cells
    num_requests: int
    hit_rate: float
    first_token_s_p50: float
    first_token_s_p99: float
    decision_us_p50: float
    decision_us_p99: float
    report_us: float  # to take in one report, on average
    name_bytes_per_s: float  # of blocks' names in all reports
    num_blocks: int  # names in all routers at the end
    forget_ms: float  # to forget what a replica held that was started anew; no request is answered meanwhile
    router_share: float  # of a core that decisions and reports take, for each router
    poll_share: float  # of a core that asking every replica once a second takes, for each router


class TimedReader:
    """Times how long reports take to be taken in."""

    def __init__(self, reader: ReportReader) -> None:
        self._reader = reader
        self.num_reports = 0
        self.seconds = 0.0

    def begin_report(self, replica: int) -> None:
        self._reader.begin_report(replica)

    def report(self, replica: int, report: ReplicaReport) -> None:
        began = time.thread_time()
        self._reader.report(replica, report)
        self.seconds += time.thread_time() - began
        self.num_reports += 1


def measure_scale(shape: FleetShape, say: Callable[[str], None]) -> tuple[list[ScaleRow], PredictedRun]:
    """The given shape, a tenth and a hundredth of its machines and users, and the same machines in cells. Then the run
    of the given shape itself."""
    poll_s = measure_poll_s()
    rows: list[ScaleRow] = []
    for part in (100, 10, 1):
        num_replicas = max(1, shape.num_replicas // part)
        smaller = replace(shape, num_replicas=num_replicas, num_users=max(1, shape.num_users // part))
        say(f"simulating {smaller.num_replicas} replicas, {smaller.num_users} users")
        policy = PredictedPolicy(smaller, time.thread_time)
        row, figures = _run(smaller, policy, policy.router, [policy.router], policy.decision_s, poll_s)
        rows.append(row)
    whole = PredictedRun(figures, policy.decision_s)
    say(f"simulating {shape.num_replicas} replicas in cells of {CELL_SIZE}")
    cells = CellPolicy(shape, CELL_SIZE, time.thread_time)
    row, _ = _run(shape, cells, cells, cells.routers, cells.decision_s, poll_s)
    return [*rows, row], whole


def _run(
    shape: FleetShape,
    policy: Policy,
    reader: ReportReader,
    routers: list[ReplicaRouter],
    decision_s: list[float],
    poll_s: float,
) -> tuple[ScaleRow, SimulatedFigures]:
    timed = TimedReader(reader)
    figures = Simulation(shape, policy, PrefixIndex(), timed).run()
    num_blocks = sum(len(router.index) for router in routers)
    began = time.thread_time()
    routers[0].forget(0)
    forget_ms = 1000 * (time.thread_time() - began)
    row = ScaleRow(
        num_replicas=shape.num_replicas,
        num_routers=len(routers),
        num_requests=figures.num_requests,
        hit_rate=figures.hit_rate,
        first_token_s_p50=percentile(figures.first_token_s, 0.5) or 0.0,
        first_token_s_p99=percentile(figures.first_token_s, 0.99) or 0.0,
        decision_us_p50=1e6 * (percentile(decision_s, 0.5) or 0.0),
        decision_us_p99=1e6 * (percentile(decision_s, 0.99) or 0.0),
        report_us=1e6 * timed.seconds / max(1, timed.num_reports),
        name_bytes_per_s=figures.num_names * NAME_BYTES / shape.duration_s,
        num_blocks=num_blocks,
        forget_ms=forget_ms,
        router_share=(sum(decision_s) + timed.seconds) / shape.duration_s / len(routers),
        poll_share=poll_s * shape.num_replicas / shape.report_s / len(routers),
    )
    return row, figures


# ---- what it costs to ask a replica ----


def measure_poll_s() -> float:
    """Processor time of a gateway to ask one replica for its state, over loopback."""
    with _stub_replica() as url:
        return uvloop.run(_poll(url))


async def _poll(url: str) -> float:
    timeout = httpx2.Timeout(None, connect=CONNECT_S)
    async with httpx2.AsyncClient(transport=ReplicaTransport(), timeout=timeout, trust_env=False) as client:
        members = Members([url], "key", client)
        await members.meet()  # connects
        began = time.thread_time()
        for _ in range(NUM_POLLS):
            if not members.num_ready:
                raise RuntimeError("the replica that stands in for others did not answer")
            await members.meet()
        return (time.thread_time() - began) / NUM_POLLS


@contextmanager
def _stub_replica() -> Iterator[str]:
    """A server on a thread of its own that tells a replica's state, whatever it is asked."""
    state = ReplicaState(
        boot="0", identity="0", is_draining=False, patience_s=2.0, backlog_tokens=0, token_ms=5.0
    ).model_dump_json()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(state)}\r\n\r\n"
    reply, ports, loop = (head + state).encode(), list[int](), asyncio.new_event_loop()
    has_begun = threading.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await reader.readline()).strip():
            while (await reader.readline()).strip():
                pass
            writer.write(reply)
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        has_begun.set()

    def run() -> None:
        loop.create_task(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, name="stub replica", daemon=True)
    thread.start()
    has_begun.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
