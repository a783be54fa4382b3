"""Runs the front process: plans memory, listens, and starts a process for each model that is asked for."""

import hashlib
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from surefoot import machine
from surefoot.api.footprint import Footprint, plan_footprint
from surefoot.api.opening import open_model
from surefoot.front.app import FrontParts, make_front_app
from surefoot.front.catalog import Catalog
from surefoot.front.config import FrontConfig, FrontConfigError, ModelEntry, check_names
from surefoot.front.metrics import FrontMetrics
from surefoot.front.model_process import END_S, ProcessLauncher
from surefoot.front.patterns import PrivatePatterns
from surefoot.front.pool import MIB, ModelPool
from surefoot.front.private_marks import NAME, PrivateMarks
from surefoot.front.requests import Outward
from surefoot.front.residency import Residency
from surefoot.front.resident import ModelTraits
from surefoot.front.routes import PooledModels
from surefoot.front.routing import Route
from surefoot.front.spending import NAME as SPENDING
from surefoot.front.spending import UpstreamSpending
from surefoot.models import read_config
from surefoot.server.access.keys import KeyStore
from surefoot.server.access.line_log import RequestLogs
from surefoot.server.access.shares import Admission
from surefoot.server.batch.state import StateFolder
from surefoot.server.door import Door
from surefoot.server.schemas.ollama import ShownModel
from surefoot.server.settings import ServerSettings
from surefoot.weights import bytes_on_disk

MEMORY_FRACTION = 0.9  # of the machine's or the cgroup's limit: the system and page cache need the rest
FRONT_BYTES = 160 << 20  # of the front process itself
START_S, LOAD_RATE = 2.0, 1e9  # predicted time of a first load: to start, and bytes per second
MAX_WAIT_S = 30.0


@dataclass(frozen=True)
class PlannedModel:
    """A model whose header has been read. The entry's options say how much memory its keys and values may take."""

    entry: ModelEntry
    footprint: Footprint
    family: str
    file_bytes: int

    @property
    def traits(self) -> ModelTraits:
        need = self.footprint.total
        load_s = START_S + self.footprint.weights / LOAD_RATE
        entry, kv_bytes = self.entry, self.footprint.kv
        return ModelTraits(entry.key, need, load_s, entry.is_pinned, entry.keep_alive_s, kv_bytes)

    def shown(self) -> ShownModel:
        entry, plan = self.entry, self.footprint
        digest = hashlib.sha256(f"{entry.name} {entry.file}".encode()).hexdigest()
        created = int(time.time())
        return ShownModel(entry.names, self.family, self.file_bytes, plan.weights, plan.max_context, digest, created)


def plan_model(entry: ModelEntry, variant: str | None) -> PlannedModel:
    """Read the header of a model's file. Raises the errors of a file that cannot be served."""
    opened = open_model(entry.file, chat_template=entry.options.chat_template)
    footprint = plan_footprint(opened, entry.options, variant)
    planned = replace(entry, options=replace(entry.options, kv_bytes=footprint.kv))
    return PlannedModel(planned, footprint, read_config(opened.checkpoint).family, bytes_on_disk(opened.path))


def memory_limit(asked_bytes: int | None) -> int:
    """Memory for all models together, without the front process."""
    most = machine.memory().limit_bytes
    if asked_bytes is not None and asked_bytes > most:
        raise MemoryError(f"memory is {asked_bytes >> 20} MiB, but the machine or cgroup has {most >> 20}: lower it")
    return max(0, (int(most * MEMORY_FRACTION) if asked_bytes is None else asked_bytes) - FRONT_BYTES)


def serve_many(
    config: FrontConfig,
    settings: ServerSettings,
    keys: KeyStore | None,
    open_state: Callable[[], StateFolder | None],
    sockets: list[socket.socket],
    words: Sequence[str],
    variant: str | None,
    num_cores: int,
    tell: Callable[[str], None],
) -> None:
    """Run until the server is told to end and has drained. words: options of `surefoot serve` for every model's
    process. open_state: called once all models have been found. num_cores: that they share. tell: prints a line of the
    banner, and one for each load and unload."""
    check_names(config)
    if keys is None and any(entry.users for entry in config.models):
        raise ValueError("`users` of a model needs API keys: give --keys, or remove `users`")
    upstream_keys = check_upstreams(config, settings, keys)
    plans = [plan_model(entry, variant) for entry in config.models]
    max_wait_s = config.max_wait_s if config.max_wait_s is not None else MAX_WAIT_S
    policy = Residency([plan.traits for plan in plans], memory_limit(config.memory_bytes), max_wait_s)
    for line in describe_plans(plans, policy, settings.deadline_s):
        tell(line)
    with sockets_folder() as folder:
        launcher = ProcessLauncher(folder, tuple(words), _charger(keys))
        pool = ModelPool(_with_routes(plans, config.routes), policy, launcher, num_cores, tell)
        door = Door.open(settings, keys)
        state = open_state()
        parts = _parts(plans, config.routes, door.settings, pool)
        if config.upstreams:
            parts = replace(parts, outward=_outward(config, upstream_keys, state, parts, tell))
        door.serve(make_front_app(parts, keys, state), FrontServer(parts, keys, tell), sockets)


def check_upstreams(config: FrontConfig, settings: ServerSettings, keys: KeyStore | None) -> dict[str, str]:
    """The upstreams' keys, by name. Raises FrontConfigError if nobody could use them, or nobody would know."""
    for missing, needed in ((keys is None, "--keys"), (settings.audit_log is None, "--audit-log")):
        if config.upstreams and missing:
            raise FrontConfigError(f"an upstream needs {needed}: give it, or remove the upstream")
    found = {upstream.name: (upstream.key_env, os.environ.get(upstream.key_env or "")) for upstream in config.upstreams}
    for name, (variable, key) in found.items():
        if variable is not None and not key:
            raise FrontConfigError(f"the upstream {name!r}: the environment has no {variable}")
    return {name: key for name, (_, key) in found.items() if key}


def _outward(
    config: FrontConfig, keys: Mapping[str, str], state: StateFolder | None, parts: FrontParts,
    tell: Callable[[str], None],
) -> Outward:  # fmt: skip
    marks: PrivateMarks | None = None
    try:
        marks = PrivateMarks(state.path / NAME) if state is not None else None
    except (OSError, ValueError) as error:
        tell(f"upstream nothing leaves: {error}")
    for upstream in config.upstreams if marks is not None else ():
        tell(f"upstream {upstream.name}: {upstream.url}, most private: {upstream.allows.name.lower()}")
    outward: Outward = import_module("surefoot.front.upstreams").Upstreams(
        config.upstreams, keys, PrivatePatterns(config.private_patterns), marks, _spending(state, tell),
        parts.logs.audit, parts.settings.deadline_s, parts.metrics.count_upstream,
    )  # fmt: skip
    return outward


def _spending(state: StateFolder | None, tell: Callable[[str], None]) -> UpstreamSpending | None:
    try:
        return UpstreamSpending(state.path / SPENDING) if state is not None else None
    except (OSError, ValueError) as error:
        tell(f"upstream nothing with a price leaves: {error}")
        return None


def _with_routes(plans: Sequence[PlannedModel], routes: Sequence[Route]) -> dict[str, ModelEntry]:
    """The models, which know the names of routes that lead to them: requests name those."""

    def known(entry: ModelEntry) -> ModelEntry:
        names = (route.name for route in routes if entry.name in route.targets)
        return replace(entry, aliases=(*entry.aliases, *names))

    return {plan.entry.key: known(plan.entry) for plan in plans}


def _parts(
    plans: Sequence[PlannedModel], routes: Sequence[Route], settings: ServerSettings, pool: ModelPool
) -> FrontParts:
    catalog = Catalog([plan.entry for plan in plans if not plan.entry.copy], settings.any_model_name, routes)
    logs = RequestLogs.open(settings)
    lists = PooledModels(catalog, pool, {plan.entry.key: plan.shown() for plan in plans})
    return FrontParts(settings, catalog, pool, Admission(settings.max_queue), FrontMetrics(pool), lists, logs)


def _charger(keys: KeyStore | None) -> Callable[[str, float], None]:
    """Charges tokens to the rate of a key, by the key's name."""

    def charge(key: str, num_tokens: float) -> None:
        caller = keys.find_name(key) if keys is not None else None
        if caller is not None and caller.tokens is not None:
            caller.tokens.take(num_tokens)

    return charge


def describe_plans(plans: Sequence[PlannedModel], policy: Residency, longest_answer_s: float) -> Iterator[str]:
    for plan in plans:
        size, names, node = plan.footprint, ", ".join(plan.entry.names), plan.entry.node
        names += f" on node {node.node}, {node.threads} threads" if node is not None else ""
        yield (
            f"model    {names}: {size.weights / MIB:.0f} MiB weights, {size.kv / MIB:.0f} MiB for keys and values, "
            f"{size.total / MIB:.0f} MiB in all{', pinned' if plan.entry.is_pinned else ''}"
        )
    together = sum(plan.footprint.total for plan in plans)
    all_fit = together <= policy.limit_bytes
    fit = "all fit" if all_fit else "not all at once"
    yield f"memory   {together / MIB:.0f} MiB for all models, of {policy.limit_bytes / MIB:.0f} MiB: {fit}"
    if not all_fit:
        yield (
            f"waiting  a request's model is loaded next after {policy.max_wait_s:g} s; its answer begins within "
            f"{policy.longest_wait_s(longest_answer_s, END_S):.0f} s, if answers take {longest_answer_s:g} s at most"
        )


@contextmanager
def sockets_folder() -> Iterator[Path]:
    """A folder that no other user may enter: who can open a socket in it is trusted by the models' processes."""
    folder = Path(tempfile.mkdtemp(prefix="surefoot-front-"))  # made with mode 0700
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class FrontServer:
    """What the front does at its start, on signals and at its end."""

    parts: FrontParts
    keys: KeyStore | None
    tell: Callable[[str], None]

    @property
    def num_requests(self) -> int:
        return self.parts.admission.num_requests

    async def started(self, address: str) -> None:
        self.tell(f"ready    {address}")

    def read_again(self) -> None:
        """Read the keys again and reopen the logs, here and in the models' processes."""
        if self.keys is not None:
            self.keys.reload()
        self.parts.logs.reopen()
        self._signal_models(signal.SIGHUP)

    def drain(self) -> None:
        self.parts.pool.is_draining = True

    def abort_all(self) -> None:
        self.parts.pool.refuse_waiting("the server is shutting down: try another")
        self._signal_models(signal.SIGTERM)

    def _signal_models(self, number: signal.Signals) -> None:
        for process in self.parts.pool.processes.values():
            process.signal(number)
