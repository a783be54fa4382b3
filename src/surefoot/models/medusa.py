"""Medusa heads: each guesses one token from the target's last hidden state, published apart from it.

    x = norm(hidden);  x = x + silu(block · x + bias), for each block;  logits = output · x

The target's own head makes the next token of a hidden state; Medusa head 0 the one after it, and so on. So head k needs
no token that another head guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from surefoot.formats import ModelFormat
from surefoot.models.decoder import Model
from surefoot.models.linear import Linear
from surefoot.models.load import Loader
from surefoot.models.step import Norm
from surefoot.models.workspace import Workspace
from surefoot.ops import TWO_LIMBS, Backend, GluForm, add, glu, norm
from surefoot.ops.arrays import F32
from surefoot.weights.medusa import MedusaFile
from surefoot.weights.metadata import MetadataError

SILU = GluForm("silu", gates=False)


@dataclass(frozen=True)
class MedusaHead:
    blocks: tuple[Linear, ...]  # in order
    output: Linear  # to logits

    def logits(self, backend: Backend, rows: F32, workspace: Workspace) -> F32:
        """Of normed hidden states; in the workspace."""
        for block in self.blocks:
            inside = np.empty_like(rows)
            block.project(backend, workspace.filled(backend, "medusa", rows, block.matrices), inside)
            glu(backend, SILU, inside, y=inside)
            rows = add(backend, rows, inside)
        logits = workspace.floats("medusa logits", len(rows), self.output.num_outputs)
        self.output.project(backend, workspace.filled(backend, "medusa", rows, self.output.matrices), logits)
        return logits


@dataclass(frozen=True)
class MedusaHeads:
    """Heads that were loaded for a target."""

    norm: Norm  # the target's last
    heads: tuple[MedusaHead, ...]  # by how far they guess

    def normed(self, backend: Backend, hidden: F32) -> F32:
        rows = np.empty_like(hidden)
        norm(backend, self.norm.form, hidden, self.norm.weight, self.norm.bias, y=rows)
        return rows


def load_medusa(backend: Backend, file: MedusaFile, target: Model, fmt: ModelFormat) -> MedusaHeads:
    """The heads. Raises MetadataError if they are not for this target."""
    try:
        _check(file, target)
    except MetadataError as wrong:
        raise MetadataError(f"{file.path} cannot draft for this model: {wrong}") from None
    load = Loader(backend, file.checkpoint, target.config, fmt)
    heads = (
        MedusaHead(
            tuple(load.linear(f"medusa.{head}.{block}", inputs=TWO_LIMBS) for block in range(count)),
            load.linear(f"medusa.{head}.output", inputs=TWO_LIMBS),
        )
        for head, count in enumerate(file.num_blocks)
    )
    return MedusaHeads(target.norm, tuple(heads))


def _check(file: MedusaFile, target: Model) -> None:
    if target.config.streams is not None or target.config.sees_ahead:
        raise MetadataError(f"{target.config.family} models have no single stream of tokens that see those before")
    for name, shape in _expected(file, target):
        tensor = file.checkpoint.tensors.get(name)
        if tensor is None and name.endswith(".weight"):
            raise MetadataError(f"it lacks {name}")
        if tensor is not None and tensor.shape != shape:
            raise MetadataError(f"{name} has the shape {tensor.shape}, and the model needs {shape}")


def _expected(file: MedusaFile, target: Model) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, vocab_size = target.config.width, target.config.vocab_size
    for head, count in enumerate(file.num_blocks):
        for part, rows in (*((block, width) for block in range(count)), ("output", vocab_size)):
            yield f"medusa.{head}.{part}.weight", (rows, width)
            yield f"medusa.{head}.{part}.bias", (rows,)
