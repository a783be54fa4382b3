"""Plain data that every layer may know. Standard library only."""

from surefoot.core.request import FinishReason, Request, SampleKey, ServiceClass
from surefoot.core.sampling import SamplingParams, sample_seed
from surefoot.core.step import (
    BAND_ROWS,
    NO_BLOCK,
    BlockCopy,
    BlockTable,
    Chunk,
    Delta,
    Load,
    Output,
    RowStart,
    StepPlan,
    StepResult,
)

__all__ = [
    "BAND_ROWS",
    "NO_BLOCK",
    "BlockCopy",
    "BlockTable",
    "Chunk",
    "Delta",
    "FinishReason",
    "Load",
    "Output",
    "Request",
    "RowStart",
    "SampleKey",
    "SamplingParams",
    "ServiceClass",
    "StepPlan",
    "StepResult",
    "sample_seed",
]
