"""/overview: what operators watch, as server-sent events; /overview/history: the last minutes, day and week."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from surefoot.api.async_llm import AsyncLLM
from surefoot.core import Phase, SampleStatus
from surefoot.engine import Times
from surefoot.server.access.gate import check_admin
from surefoot.server.answer.streaming import EventStream, event
from surefoot.server.metrics import PhaseTimes
from surefoot.server.overview.figures import View, look, tokens_by_user
from surefoot.server.overview.history import Reading, SpanName
from surefoot.server.overview.requests import OpenRequest, UserShares, furthest
from surefoot.server.overview.verdicts import alerts, bound_of_step, in_time, limit
from surefoot.server.service import RequestRun, Service

PERIOD_S = 1.0
NUM_SHOWN = 100  # open requests, those that run first
TYPICAL_TOKENS = 1024

Statuses = Sequence[tuple[SampleStatus, Times]]


def overview_router(service: Service, *, has_keys: bool) -> APIRouter:
    router = APIRouter()

    @router.get("/overview", include_in_schema=False)
    async def overview(http: HttpRequest) -> EventStream:
        """An event a second until the client leaves or the server drains. With keys, only admin keys may read them."""
        check_admin(http, has_keys, "the overview covers all users")
        return EventStream(None, _events(service), service.settings.read_s)

    @router.get("/overview/history", include_in_schema=False)
    async def history(http: HttpRequest, span: SpanName = "minutes") -> dict[str, list[Any]]:
        """The fields of `Point`, a list each."""
        check_admin(http, has_keys, "the overview covers all users")
        return service.history.columns(span)

    return router


async def _events(service: Service) -> AsyncGenerator[bytes, None]:
    observer = Observer(service)
    while not service.is_draining:
        await asyncio.sleep(PERIOD_S)
        yield event(await observer.read())


class Observer:
    """Reads the server again and again, for one viewer: rates cover the time since the reading before."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._shares = UserShares()
        self._statuses: Statuses = ()
        self._before = self._read_metrics()

    async def read(self) -> dict[str, Any]:
        service = self._service
        with suppress(TimeoutError):  # the engine is stuck: /ready says so too; what was known last is shown
            self._statuses = await asyncio.wait_for(service.llm.statuses(), service.settings.patience_s)
        before, now = self._before, self._read_metrics()
        self._before = now
        requests = open_requests(service.runs, self._statuses, now.time)
        tokens = Counter(tokens_by_user(now.samples))
        for run in service.runs:
            tokens[run.caller.user] += run.num_prompt + run.num_generated
        weights = {run.caller.user: run.caller.weight for run in service.runs}
        view = look(before.samples, now.samples, now.time - before.time)
        return {
            **asdict(view),
            **self._verdicts(view),
            "limit_per_second": decode_limit(service.llm, service.bandwidth, self._statuses),
            "requests": [asdict(request) for request in requests[:NUM_SHOWN]],
            "users": [asdict(share) for share in self._shares.read(now.time, tokens, requests, weights)],
            "slowest": [asdict(request) for request in service.recent.slowest()],
        }

    def _verdicts(self, view: View) -> dict[str, Any]:
        service, points = self._service, self._service.history.points("minutes")
        capacity, samples = service.llm.capacity, [status for status, _ in self._statuses]
        bound = bound_of_step(capacity.times, samples, capacity.scheduling.max_chunk)
        served, is_alive = in_time(points), service.llm.is_alive(service.settings.patience_s)
        lines_lost = service.audit.num_lost + service.access.num_lost
        found = alerts(view, served, points, is_alive=is_alive, lines_lost=lines_lost)
        return {
            "is_alive": is_alive,
            "in_time": asdict(served),
            "limit": limit(view, points[-1] if points else None, bound, service.llm.max_running),
            "alerts": [asdict(alert) for alert in found],
        }

    def _read_metrics(self) -> Reading:
        return Reading.of(self._service.samples())


def open_requests(runs: Collection[RequestRun], statuses: Statuses, now: float) -> list[OpenRequest]:
    """Requests in the engine: those that run first, of these the oldest first."""
    by_request: dict[str, list[tuple[SampleStatus, Times]]] = {}
    for status, times in statuses:
        by_request.setdefault(status.key.request, []).append((status, times))
    rows = [
        _row(run, samples, now)
        for run in runs
        if (samples := [sample for request in run.request_ids for sample in by_request.get(request, ())])
    ]
    return sorted(rows, key=lambda row: (row.phase == Phase.QUEUE.value, -row.seconds))


def _row(run: RequestRun, samples: Statuses, now: float) -> OpenRequest:
    statuses = [status for status, _ in samples]
    first = min((times for _, times in samples), key=lambda times: times.arrived)
    return OpenRequest(
        id=run.position.request,
        user=run.caller.user,
        route=run.context.route,
        phase=furthest(statuses).value,
        prompt_tokens=run.num_prompt,
        cached_tokens=sum(status.num_cached for status in statuses),
        computed_tokens=sum(status.num_computed for status in statuses),
        generated_tokens=run.num_generated,
        seconds=now - run.context.arrived,
        times=PhaseTimes.so_far(first, now),
    )


def decode_limit(llm: AsyncLLM, bandwidth: float | None, statuses: Statuses) -> float | None:
    """Tokens a second that memory bandwidth allows the decoding requests together, without drafts: a step reads the
    weights once, and each request's keys and values. While none decodes: one request with a typical context."""
    if bandwidth is None:
        return None
    lengths = [status.num_computed for status, _ in statuses if status.phase is Phase.DECODE] or [TYPICAL_TOKENS]
    weights = llm.read_bytes(0)
    return len(lengths) * bandwidth / (weights + sum(llm.read_bytes(length) - weights for length in lengths))
