"""Plain data that all layers share, and the cost model of a step. Standard library only."""

from surefoot.core.request import FinishReason, Request, SampleKey, ServiceClass
from surefoot.core.sampling import SamplingParams, sample_seed
from surefoot.core.step import (
    BAND_ROWS,
    NO_BLOCK,
    NO_STATES,
    BlockCopy,
    BlockTable,
    Chunk,
    ChunkStates,
    Delta,
    Load,
    Output,
    RowStart,
    StepPlan,
    StepResult,
)
from surefoot.core.step_cost import BandMedians, RangeMeans, StepCost

__all__ = [
    "BAND_ROWS",
    "NO_BLOCK",
    "NO_STATES",
    "BandMedians",
    "BlockCopy",
    "BlockTable",
    "Chunk",
    "ChunkStates",
    "Delta",
    "FinishReason",
    "Load",
    "Output",
    "RangeMeans",
    "Request",
    "RowStart",
    "SampleKey",
    "SamplingParams",
    "ServiceClass",
    "StepCost",
    "StepPlan",
    "StepResult",
    "sample_seed",
]
