"""Adapters by task that a folder has in its own matrices (jina-embeddings-v3), added as the matrices are read.

Such a matrix is stored as `NAME.parametrizations.weight.original`. Beside it are two factors, each for all tasks: of a
linear layer, lora_B [tasks, rows, rank] and lora_A [tasks, rank, columns]; of a table of embeddings, the other way
round.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from surefoot.ops.arrays import F32
from surefoot.weights.derived import Stored
from surefoot.weights.safetensors import SafetensorsError

PART = ".parametrizations.weight."
ORIGINAL, FACTORS = f"{PART}original", (f"{PART}0.lora_A", f"{PART}0.lora_B")


@dataclass(frozen=True)
class Adapted:
    """A matrix with a task's adapter. Products are added term by term, so that no BLAS decides a bit."""

    matrix: Stored  # [rows, columns]
    left: Stored  # [tasks, rows, rank]
    right: Stored  # [tasks, rank, columns]
    task: int  # its number
    scale: float  # of the product

    @property
    def shape(self) -> tuple[int, ...]:
        return self.matrix.shape

    @cached_property
    def _factors(self) -> tuple[F32, F32]:
        own = slice(self.task, self.task + 1)
        return self.left.floats(own)[0], self.right.floats(own)[0]

    def floats(self, rows: slice = slice(None)) -> F32:
        left, right = self._factors
        added: F32 = left[rows, :1] * right[0]
        for term in range(1, len(right)):
            added += left[rows, term : term + 1] * right[term]
        added *= np.float32(self.scale)
        added += self.matrix.floats(rows)
        return added


def with_adapter(config: Mapping[str, Any], stored: Mapping[str, Stored], task: str | None) -> dict[str, Stored]:
    """The folder's tensors with the adapter of this task. None: the matrices as they are. Raises ValueError if there is
    no such adapter."""
    tasks: Sequence[str] = config.get("lora_adaptations") or ()
    if task is not None and task not in tasks:
        raise ValueError(no_adapter(task, tasks))
    if task is not None and not any(name.endswith(ORIGINAL) for name in stored):
        raise SafetensorsError("config.json lists adapters, and the tensors have none: fetch the checkpoint again")
    return dict(_merged(config, stored, None if task is None else tasks.index(task), len(tasks)))


def no_adapter(task: str, tasks: Sequence[str] = ()) -> str:
    advice = f"choose one of {', '.join(tasks)}" if tasks else "this model has none; leave it out"
    return f"there is no adapter {task!r}: {advice}"


def _merged(
    config: Mapping[str, Any], stored: Mapping[str, Stored], task: int | None, num_tasks: int
) -> Iterator[tuple[str, Stored]]:
    for name, tensor in stored.items():
        if name.endswith(ORIGINAL):
            base = name.removesuffix(ORIGINAL)
            yield f"{base}.weight", tensor if task is None else _adapted(config, stored, base, task, num_tasks)
        elif not name.endswith(FACTORS):
            yield name, tensor


def _adapted(config: Mapping[str, Any], stored: Mapping[str, Stored], base: str, task: int, num_tasks: int) -> Adapted:
    matrix, *factors = (stored.get(base + part) for part in (ORIGINAL, *FACTORS))
    assert matrix is not None
    for right, left in (factors, factors[::-1]):
        if left is None or right is None or len(right.shape) != 3 or len(matrix.shape) != 2:
            break
        rank = right.shape[1]
        if left.shape == (num_tasks, matrix.shape[0], rank) and right.shape == (num_tasks, rank, matrix.shape[1]):
            return Adapted(matrix, left, right, task, (config.get("lora_alpha") or 1.0) / rank)
    raise SafetensorsError(f"{base} has no adapter for each of {num_tasks} tasks: fetch the checkpoint again")
