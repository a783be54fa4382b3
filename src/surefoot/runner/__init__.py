"""Runs a model: owns the KV cache memory, batches chunks of tokens, samples and drafts."""

from surefoot.runner.draft_head import DraftHead, HeadWeights, load_head
from surefoot.runner.draft_model import DraftModel
from surefoot.runner.executor import Executed, Executor
from surefoot.runner.kv_store import KvStore, slot_bytes
from surefoot.runner.layer_drafter import LayerDrafter
from surefoot.runner.medusa_guesser import MedusaGuesser
from surefoot.runner.runner import FlatStep, Runner
from surefoot.runner.sessions import Session, SessionRunner, Work
from surefoot.runner.state_drafter import StateDrafter

__all__ = [
    "DraftHead",
    "DraftModel",
    "Executed",
    "Executor",
    "FlatStep",
    "HeadWeights",
    "KvStore",
    "LayerDrafter",
    "MedusaGuesser",
    "Runner",
    "Session",
    "SessionRunner",
    "StateDrafter",
    "Work",
    "load_head",
    "slot_bytes",
]
