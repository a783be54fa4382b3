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
from surefoot.engine.disk_tier import DiskTier
from surefoot.engine.engine import Engine, Event, Planner, Times, Usage
from surefoot.engine.peer_blocks import BlockQuestion, PeerBlocks, PeerBusy, PeerOffer

__all__ = [
    "BLOCK_SIZE",
    "BlockQuestion",
    "Capacity",
    "DiskTier",
    "Engine",
    "Event",
    "MemoryRequest",
    "PeerBlocks",
    "PeerBusy",
    "PeerOffer",
    "Planner",
    "Times",
    "Usage",
    "fit_context",
    "free_bytes",
    "make_engine",
    "make_runner",
    "plan_memory",
    "workspace_bytes",
]
