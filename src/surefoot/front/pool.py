"""The models' processes: started and ended as the policy decides, lent to requests, with cores by their requests."""

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from surefoot.front.config import ModelEntry
from surefoot.front.model_process import ModelProcess
from surefoot.front.residency import LoadModel, Residency, UnloadModel
from surefoot.front.resident import ModelState
from surefoot.server.errors import ApiError

TICK_S, IDLE_TICK_S = 0.1, 1.0  # between two decisions while requests wait, and while none does
SHORT_PAUSE_S = 2.0  # a request waits this long for a model whose process ended by itself, and no longer
MIB = 1 << 20
STAY = 2  # of two copies of a model, a conversation's own is asked, unless it has this many requests more
LOG = logging.getLogger(__name__)


class Launcher(Protocol):
    async def start(self, entry: ModelEntry, number: int) -> ModelProcess: ...


@dataclass
class ModelCounters:
    num_loads: int = 0
    num_crashes: int = 0
    last_load_s: float = 0.0
    longest_wait_s: float = 0.0  # of a request, for its load


@dataclass(frozen=True)
class WaitingRequest:
    arrival: float
    user: str
    loaded: "asyncio.Future[None]"


@dataclass
class ModelPool:
    """Lives on the event loop."""

    models: Mapping[str, ModelEntry]
    policy: Residency
    launcher: Launcher
    num_cores: int
    tell: Callable[[str], None]  # prints a line about a load or its end
    processes: dict[str, ModelProcess] = field(default_factory=dict)  # loaded, by the model's name
    counters: defaultdict[str, ModelCounters] = field(default_factory=lambda: defaultdict(ModelCounters))
    is_draining: bool = False  # new requests are refused
    _waiting: defaultdict[str, list[WaitingRequest]] = field(default_factory=lambda: defaultdict(list))
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _is_stopping: bool = False

    @property
    def num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def start(self) -> None:
        self._spawn(self._tick())
        self._decide()

    async def stop(self) -> None:
        """End all processes."""
        self._is_stopping = True
        self.refuse_waiting("the server is shutting down: try another")
        await asyncio.gather(*(process.end() for process in self.processes.values()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse_waiting(self, reason: str) -> None:
        for name in list(self._waiting):
            self._fail_waiting(name, ApiError(503, reason, headers={"Retry-After": "10"}))

    # ---- requests ----

    @asynccontextmanager
    async def using(self, name: str, user: str, beginning: int = 0) -> AsyncIterator[ModelProcess]:
        """The model's process, once it is loaded. It is not unloaded before the block ends. beginning: a number of the
        conversation, whose copy of the model has its prompts cached."""
        name = self.choose_copy(name, beginning)
        self._check_pause(name)
        arrival = time.monotonic()
        if not self.policy.ask(name, arrival, user):
            await self._wait(name, arrival, user)
            counters = self.counters[name]
            counters.longest_wait_s = max(counters.longest_wait_s, time.monotonic() - arrival)
        try:
            self._share_cores()
            process = self.processes.get(name)
            if process is None:  # it ended at the same moment
                raise lost(name, "has ended", self.policy.pause_s(name, time.monotonic()))
            yield process
        finally:
            self.policy.done(name, time.monotonic(), user)
            self._share_cores()
            self._decide()

    def choose_copy(self, name: str, beginning: int) -> str:
        copies = [key for key, entry in self.models.items() if entry.name == name] or [name]
        own = copies[beginning % len(copies)]

        def rank(key: str) -> tuple[bool, int, bool]:
            return key not in self.processes, self.policy.residents[key].num_busy - STAY * (key == own), key != own

        return min(copies, key=rank)

    async def _wait(self, name: str, arrival: float, user: str) -> None:
        """Wait for the model. The policy counts the request as being answered from then on."""
        request = WaitingRequest(arrival, user, asyncio.get_running_loop().create_future())
        self._waiting[name].append(request)
        self._decide()
        try:
            await asyncio.shield(request.loaded)
        except asyncio.CancelledError:
            if request in self._waiting[name]:
                self._waiting[name].remove(request)
                self.policy.leave(name, arrival, user)
            elif request.loaded.exception() is None:  # loaded at the same moment
                self.policy.done(name, time.monotonic(), user)
            self._decide()
            raise

    def _check_pause(self, name: str) -> None:
        pause_s = self.policy.pause_s(name, time.monotonic())
        if pause_s > SHORT_PAUSE_S:
            raise lost(name, f"could not be started {self.policy.residents[name].num_crashes} times", pause_s)

    def _admit_waiting(self, name: str) -> None:
        for request in self._waiting.pop(name, []):
            request.loaded.set_result(None)

    def _fail_waiting(self, name: str, error: ApiError) -> None:
        for request in self._waiting.pop(name, []):
            self.policy.leave(name, request.arrival, request.user)
            request.loaded.set_exception(error)

    # ---- processes ----

    async def _tick(self) -> None:
        """Some decisions depend on time alone."""
        while True:
            await asyncio.sleep(TICK_S if self.num_waiting else IDLE_TICK_S)
            self._decide()

    def _decide(self) -> None:
        if self._is_stopping:
            return
        for action in self.policy.decide(time.monotonic()):
            if isinstance(action, LoadModel):
                self._spawn(self._load(action.name))
            elif isinstance(action, UnloadModel):
                self._end(action)
            else:
                self._admit_waiting(action.name)

    def _end(self, action: UnloadModel) -> None:
        self._spawn(self._unload(self.processes.pop(action.name)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, name: str) -> None:
        began = time.monotonic()
        try:
            process = await self.launcher.start(self.models[name], next(self._numbers))
        except OSError as error:
            self._on_failed_load(name, str(error))
            return
        try:
            processor_s = await process.ready()
        except ChildProcessError as error:
            await process.wait()
            self._on_failed_load(name, str(error))
            return
        except asyncio.CancelledError:
            await process.end()
            await process.wait()
            raise
        self._on_loaded(name, process, time.monotonic() - began, processor_s)
        await self._watch(name, process)

    def _on_loaded(self, name: str, process: ModelProcess, seconds: float, processor_s: float) -> None:
        self.processes[name] = process
        counters = self.counters[name]
        counters.num_loads, counters.last_load_s = counters.num_loads + 1, seconds
        now, swap_began = time.monotonic(), self.policy.residents[name].swap_began
        swap = f", swap {now - swap_began:.2f} s" if swap_began is not None else ""
        self.tell(
            f"loaded   {name} in {seconds:.2f} s ({processor_s:.2f} s of processor time){swap}: "
            f"{self.policy.held_bytes / MIB:.0f} of {self.policy.limit_bytes / MIB:.0f} MiB planned for"
        )
        self.policy.loaded(name, now)
        self._admit_waiting(name)
        self._share_cores()
        self._decide()

    def _on_failed_load(self, name: str, reason: str) -> None:
        self.counters[name].num_crashes += 1
        LOG.error("%s could not be loaded: %s", name, reason)
        self.policy.ended(name, time.monotonic())
        self._fail_waiting(name, lost(name, "could not be loaded", self.policy.pause_s(name, time.monotonic())))
        self._decide()

    async def _watch(self, name: str, process: ModelProcess) -> None:
        """Until the process ends, by itself or because it was told to."""
        await process.wait()
        now = time.monotonic()
        if self.policy.states[name] is not ModelState.UNLOADING and not self._is_stopping:
            self.processes.pop(name, None)
            self.counters[name].num_crashes += 1
            LOG.error("the process of %s ended (%s): it is started again", name, await process.why_ended())
        self.policy.ended(name, now)
        self._decide()

    async def _unload(self, process: ModelProcess) -> None:
        began = time.monotonic()
        await process.end()
        self.tell(f"unloaded {process.entry.name} in {time.monotonic() - began:.2f} s")

    def unload(self, name: str) -> None:
        """Unload a model that nobody uses, as an operator wishes. Raises ApiError if it has to stay."""
        try:
            action = self.policy.unload(name, time.monotonic())
        except ValueError as error:
            raise ApiError(409, str(error), code="model_in_use") from None
        if action is not None:
            self._end(action)

    def _share_cores(self) -> None:
        shared = (name for name in self.processes if self.models[name].node is None)
        busy = {name: self.policy.residents[name].num_busy for name in shared}
        for name, num_threads in share_cores(self.num_cores, busy).items():
            self.processes[name].use_threads(num_threads)


def lost(name: str, what: str, pause_s: float) -> ApiError:
    """The error for a request whose model is not there: the same request will do later."""
    seconds = max(1, round(pause_s + 0.5))
    return ApiError(
        503, f"the model {name!r} {what}: send the request again in {seconds} s", code="model_unavailable",
        headers={"Retry-After": str(seconds)},
    )  # fmt: skip


def share_cores(num_cores: int, num_busy: Mapping[str, int]) -> dict[str, int]:
    """Threads for each model, by its number of requests. A model without requests keeps one, which it does not use.

    Cores are handed out one by one, each to the model with the most requests for each thread that it has: the largest
    remainders win, and no busy model goes without. With more busy models than cores, each has one and they take turns.
    """
    threads = dict.fromkeys(num_busy, 1)
    busy = [name for name in num_busy if num_busy[name] > 0]
    if not busy:
        return dict.fromkeys(num_busy, num_cores)
    for _ in range(num_cores - len(busy)):
        neediest = max(busy, key=lambda name: num_busy[name] / threads[name])
        threads[neediest] += 1
    return threads
