"""Builds an engine from its parts: the only place that knows both scheduler and runner."""

from surefoot.engine.capacity import Capacity
from surefoot.engine.engine import Engine
from surefoot.kv import KvManager
from surefoot.models import Model
from surefoot.ops import Backend, KvForm, PackedWeights
from surefoot.runner import Executor, Runner
from surefoot.sampling import Grammars
from surefoot.scheduler import Scheduler
from surefoot.speculate import Speculator


def make_runner(backend: Backend, model: Model, capacity: Capacity, kv_form: KvForm, max_drafts: int = 0) -> Runner:
    layout, scheduling = capacity.layout, capacity.scheduling
    runner = Runner(
        backend, model, scheduling.max_context, {group.window: group.num_blocks for group in layout.groups},
        scheduling.max_chunk, kv_form, record=not _has_float_experts(model), block_size=layout.block_size,
        num_slots=0 if layout.states is None else layout.states.num_slots,
    )  # fmt: skip
    runner.prepare(scheduling.max_step_tokens, scheduling.max_running, scheduling.max_running + max_drafts)
    return runner


def make_engine(
    capacity: Capacity,
    runner: Runner,
    grammars: Grammars | None = None,
    caching: bool = True,
    speculator: Speculator | None = None,
) -> Engine:
    executor = Executor(runner, grammars, speculator)
    return Engine(lambda: Scheduler(capacity.scheduling, KvManager(capacity.layout, caching)), executor)


def _has_float_experts(model: Model) -> bool:
    """Whether expert weights are floats: these are selected by value, which a recorded pass cannot do."""
    return model.config.moe is not None and not isinstance(model.embeddings, PackedWeights)
