"""Runs a model for a handful of requests: owns the KV bytes, turns chunks of tokens into flat arrays, samples."""

from surefoot.runner.draft_head import DraftHead, HeadWeights, load_head
from surefoot.runner.draft_model import DraftModel
from surefoot.runner.executor import Executed, Executor
from surefoot.runner.kv_store import KvStore, slot_bytes
from surefoot.runner.runner import Request, Runner, Work

__all__ = [
    "DraftHead",
    "DraftModel",
    "Executed",
    "Executor",
    "HeadWeights",
    "KvStore",
    "Request",
    "Runner",
    "Work",
    "load_head",
    "slot_bytes",
]
