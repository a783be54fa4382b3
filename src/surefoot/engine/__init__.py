"""The engine, which joins scheduler and runner: schedule, execute, commit."""

from surefoot.engine.build import make_engine, make_runner
from surefoot.engine.capacity import (
    BLOCK_SIZE,
    Capacity,
    MemoryRequest,
    fit_context,
    free_bytes,
    plan_memory,
    workspace_bytes,
)
from surefoot.engine.engine import Engine, Event, Times, Usage

__all__ = [
    "BLOCK_SIZE",
    "Capacity",
    "Engine",
    "Event",
    "MemoryRequest",
    "Times",
    "Usage",
    "fit_context",
    "free_bytes",
    "make_engine",
    "make_runner",
    "plan_memory",
    "workspace_bytes",
]
