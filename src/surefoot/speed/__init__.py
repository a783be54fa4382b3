"""How fast a machine is at a model's steps: what a step computes and reads, what the machine's kernels reach, and the
times that follow. What the scheduler learns from its own steps is `core/step_cost.py`."""

from surefoot.speed.traffic import decode_bytes, linear_products, model_work, weight_bytes

__all__ = ["decode_bytes", "linear_products", "model_work", "weight_bytes"]
