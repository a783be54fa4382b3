"""Runs a model for a handful of requests: owns the KV bytes, turns chunks of tokens into flat arrays, samples."""

from surefoot.runner.kv_store import KvStore
from surefoot.runner.runner import Request, Runner, Work

__all__ = ["KvStore", "Request", "Runner", "Work"]
