"""Plain data that all layers share, and the cost model of a step. Standard library only."""

from surefoot.core.request import MEMORY_ONLY, FinishReason, Pooling, Request, SampleKey, ServiceClass
from surefoot.core.sampling import SamplingParams, sample_seed
from surefoot.core.step import (
    BAND_ROWS,
    NO_BLOCK,
    NO_STATES,
    Backlog,
    BlockCopy,
    BlockTable,
    Chunk,
    ChunkStates,
    Delta,
    Load,
    Output,
    Phase,
    RowStart,
    SampleStatus,
    StepPlan,
    StepResult,
)
from surefoot.core.step_cost import BandMedians, RangeMeans, StepCost, TimedStep

__all__ = [
    "BAND_ROWS",
    "MEMORY_ONLY",
    "NO_BLOCK",
    "NO_STATES",
    "Backlog",
    "BandMedians",
    "BlockCopy",
    "BlockTable",
    "Chunk",
    "ChunkStates",
    "Delta",
    "FinishReason",
    "Load",
    "Output",
    "Phase",
    "Pooling",
    "RangeMeans",
    "Request",
    "RowStart",
    "SampleKey",
    "SampleStatus",
    "SamplingParams",
    "ServiceClass",
    "StepCost",
    "StepPlan",
    "StepResult",
    "TimedStep",
    "sample_seed",
]
