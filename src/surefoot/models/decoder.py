"""A whole model, from tokens to logits."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from surefoot.models.config import ModelConfig
from surefoot.models.dense import Dense
from surefoot.models.drafting import DraftingLayer
from surefoot.models.linear import Linear
from surefoot.models.step import Batch, LayerMemory, Norm, Step
from surefoot.models.workspace import Matrix, Workspace
from surefoot.ops import Backend, PackedWeights, add, embed, norm, softcap
from surefoot.ops.arrays import F32

Layer = Callable[[Step], None]

WANTED = "wanted"  # the workspace's name for the residual stream of the rows whose logits are wanted


@dataclass(frozen=True)
class Model:
    """A model's weights and its forward pass."""

    config: ModelConfig  # its sizes and forms
    embeddings: Matrix  # [vocabulary, width]
    layers: tuple[Layer, ...]  # in order
    norm: Norm  # after the last layer
    head: Linear  # to the logits
    drafting: DraftingLayer | None = None  # the layer that drafts; None: there is none, or drafts are made otherwise
    remainder: PackedWeights | None = None  # what rounding left of the embeddings, added too; None: it was dropped
    dense: tuple[Dense, ...] = ()  # what a pooled vector goes through, in order

    def forward(self, backend: Backend, batch: Batch, memory: LayerMemory, workspace: Workspace) -> F32:
        """Logits of the wanted rows. Afterwards the memory holds the rows' keys, values and states, and `normed` finds
        their hidden states.

        The logits are in the workspace. Inside `backend.record()` the arrays are laid out but nothing is computed."""
        step = Step(backend, batch, memory, workspace, self.config.width)
        embed(backend, batch.tokens, self.embeddings, self.config.embedding_scale, out=step.h)
        if self.remainder is not None:
            room = step.floats("remainder", *step.h.shape)
            step.add(embed(backend, batch.tokens, self.remainder, self.config.embedding_scale, out=room))
        for layer in self.layers:
            layer(step)
        if self.drafting is not None:
            self.drafting.follow(step)
        return self._logits(step)

    @property
    def draft_rows(self) -> tuple[str, int]:
        """The workspace's name for the rows that drafts begin from, one for each row of logits, and their lanes."""
        own = None if self.drafting is None else self.drafting.rows
        return own or (WANTED, self.config.width)

    def without_drafting(self) -> "Model":
        """The same model, which keeps nothing for the layer that drafts."""
        return replace(self, config=replace(self.config, drafting_layers=()), drafting=None)

    def _logits(self, step: Step) -> F32:
        backend, workspace, wanted = step.backend, step.workspace, step.batch.wanted
        stream = step.settle()
        if not wanted.size:
            return workspace.floats("logits", 0, self.config.vocab_size)
        h = workspace.floats(WANTED, len(wanted), self.config.width)
        embed(backend, wanted, stream, out=h)
        return self.logits(backend, h, workspace)

    def logits(self, backend: Backend, h: F32, workspace: Workspace) -> F32:
        """The logits of rows `h` of the residual stream after the last layer."""
        x = workspace.features("head", h.shape, self.head.matrices)
        norm(backend, self.norm.form, h, self.norm.weight, self.norm.bias, y=x.floats, quantised=x.quantised)
        logits = workspace.floats("logits", len(h), self.head.num_outputs)
        self.head.project(backend, x, logits)
        if self.config.logit_scale != 1.0:
            add(backend, logits, scale=self.config.logit_scale, out=logits)
        if self.config.logit_softcap:
            softcap(backend, logits, self.config.logit_softcap, out=logits)
        return logits

    def logits_of(self, backend: Backend, workspace: Workspace, first: int, count: int, scratch: Workspace) -> F32:
        """The logits of rows of the pass that ran last in this workspace, in `scratch`, which must be another one."""
        return self.logits(backend, workspace.floats("h", first + count, self.config.width)[first:], scratch)

    def normed(self, backend: Backend, workspace: Workspace, first: int, count: int) -> F32:
        """Hidden states, after the last norm, of rows of the pass that ran last in this workspace."""
        stream = workspace.floats("h", first + count, self.config.width)[first:]
        normed = np.empty_like(stream)
        norm(backend, self.norm.form, stream, self.norm.weight, self.norm.bias, y=normed)
        return normed

    def project(self, backend: Backend, vector: F32) -> F32:
        """A pooled vector after what follows the pooling."""
        for dense in self.dense:
            vector = dense(backend, vector[None]).reshape(-1)
        return vector
