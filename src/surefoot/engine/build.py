"""Builds an engine from its parts: the only place that knows both scheduler and runner."""

from surefoot.cache.disk_tier import DiskTier
from surefoot.engine.capacity import Capacity
from surefoot.engine.engine import Engine
from surefoot.kv import KvManager
from surefoot.models import Model
from surefoot.ops import Backend, KvForm, PackedWeights
from surefoot.runner import Executor, Runner
from surefoot.sampling import Grammars
from surefoot.scheduler import Scheduler
from surefoot.speculate import Speculator

COSTED_ROWS = 64  # rows of the step whose time tells what a token costs


def make_runner(backend: Backend, model: Model, capacity: Capacity, kv_form: KvForm, max_drafts: int = 0) -> Runner:
    layout, scheduling = capacity.layout, capacity.scheduling
    runner = Runner(
        backend, model, scheduling.max_context, {group.window: group.num_blocks for group in layout.groups},
        scheduling.max_chunk, kv_form, record=not _has_float_experts(model), block_size=layout.block_size,
        num_slots=0 if layout.states is None else layout.states.num_slots,
        num_draft_blocks=0 if model.drafting is None else _num_draft_blocks(
            scheduling.max_running, max_drafts, layout.block_size
        ),
    )  # fmt: skip
    runner.prepare(scheduling.max_step_tokens, scheduling.max_running, scheduling.max_running + max_drafts)
    return runner


def _num_draft_blocks(max_running: int, max_drafts: int, block_size: int) -> int:
    """Blocks for the drafts of a step: each sample's last block is copied, and its drafts may end in the next one."""
    return 2 * max_running + max_drafts // block_size


def make_engine(
    capacity: Capacity,
    runner: Runner,
    grammars: Grammars | None = None,
    caching: bool = True,
    speculator: Speculator | None = None,
    tier: DiskTier | None = None,
) -> Engine:
    executor = Executor(runner, grammars, speculator)
    if tier is None:
        return Engine(lambda: Scheduler(capacity.scheduling, KvManager(capacity.layout, caching)), executor)
    return Engine(lambda: _tiered_scheduler(capacity, tier), executor, tier=tier)


def _tiered_scheduler(capacity: Capacity, tier: DiskTier) -> Scheduler:
    kv = KvManager(capacity.layout, on_shared=tier.on_shared, on_snapshot=tier.on_snapshot)
    scheduler = Scheduler(capacity.scheduling, kv, tier)
    tier.bind(kv)
    tier.token_us = lambda: 1000 * (scheduler.cost.predict_ms(COSTED_ROWS) or 0.0) / COSTED_ROWS
    return scheduler


def _has_float_experts(model: Model) -> bool:
    """Whether expert weights are floats: these are selected by value, which a recorded pass cannot do."""
    return model.config.moe is not None and not isinstance(model.embeddings, PackedWeights)
