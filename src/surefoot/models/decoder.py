"""A whole model: from tokens to logits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.models.config import ModelConfig
from surefoot.models.linear import Linear
from surefoot.models.step import Batch, Norm, Step
from surefoot.models.workspace import Matrix, Workspace
from surefoot.ops import Backend, KvCache, embed, norm, softcap
from surefoot.ops.arrays import F32

Layer = Callable[[Step], None]

WANTED = "wanted"  # in the workspace: the rows whose logits are wanted, behind the last layer


@dataclass(frozen=True)
class Model:
    config: ModelConfig
    embeddings: Matrix
    layers: tuple[Layer, ...]
    norm: Norm
    head: Linear

    def forward(self, backend: Backend, batch: Batch, caches: Sequence[KvCache], workspace: Workspace) -> F32:
        """Logits of the wanted rows; the rows' keys and values are in the caches afterwards, and their hidden states
        where `normed` finds them.

        The logits lie in the workspace. Inside `backend.record()` nothing is computed but everything laid out."""
        step = Step(backend, batch, caches, workspace, self.config.width)
        embed(backend, batch.tokens, self.embeddings, self.config.embedding_scale, out=step.h)
        for layer in self.layers:
            layer(step)
        return self._logits(step)

    def _logits(self, step: Step) -> F32:
        backend, workspace, wanted = step.backend, step.workspace, step.batch.wanted
        stream = step.settle()
        if not wanted.size:
            return workspace.floats("logits", 0, self.config.vocab_size)
        h = workspace.floats(WANTED, len(wanted), self.config.width)
        embed(backend, wanted, stream, out=h)
        return self.logits(backend, h, workspace)

    def logits(self, backend: Backend, h: F32, workspace: Workspace) -> F32:
        """Of rows of the stream behind the last layer."""
        x = workspace.features("head", h.shape, self.head.matrices)
        norm(backend, self.norm.form, h, self.norm.weight, y=x.floats, quantised=x.quantised)
        logits = workspace.floats("logits", len(h), self.head.num_outputs)
        self.head.project(backend, x, logits)
        if self.config.logit_softcap:
            softcap(backend, logits, self.config.logit_softcap, out=logits)
        return logits

    def logits_of(self, backend: Backend, workspace: Workspace, first: int, count: int, scratch: Workspace) -> F32:
        """Of rows of the pass that ran last in this workspace. They lie in scratch, which is another."""
        return self.logits(backend, workspace.floats("h", first + count, self.config.width)[first:], scratch)

    def normed(self, backend: Backend, workspace: Workspace, first: int, count: int) -> F32:
        """Rows of the pass that ran last in this workspace, after the last norm."""
        stream = workspace.floats("h", first + count, self.config.width)[first:]
        normed = np.empty_like(stream)
        norm(backend, self.norm.form, stream, self.norm.weight, y=normed)
        return normed
