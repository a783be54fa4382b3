"""The layer that drafts (multi-token prediction): from a token and the hidden row before it, the token after it.

Row t joins the embedding of token t with the model's normed hidden row of token t - 1 (zeros before the first token).
Its keys and values lie in slot t, so they depend on tokens up to t alone and are kept, shared and dropped with the
model's own. The row before is a state: the last input of a convolution that delays by one.

In the model's pass (`follow`) the layer writes keys and values only. A guess (`guess`) runs all of it.
"""

from dataclasses import dataclass

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.drafting import DraftOutputs
from surefoot.models.layers import PreNormLayer
from surefoot.models.linear import Linear
from surefoot.models.step import Batch, LayerMemory, Norm, Step
from surefoot.models.workspace import Matrix, Workspace
from surefoot.ops import Backend, ConvWeights, embed, norm, short_conv
from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class MtpLayer:
    """The layer that drafts."""

    row: int  # the number of the layer whose state is the row before
    embeddings: Matrix  # the model's
    model_norm: Norm  # the model's last norm
    token_norm: Norm  # of embeddings
    row_norm: Norm  # of the rows before
    join: Linear  # from normed embedding and row, side by side, to the layer's stream
    layer: PreNormLayer  # attention and feed-forward
    attention: Attention  # the layer's
    keys_values: Linear  # the outputs of the attention's matrix that are keys and values
    norm: Norm  # after the layer
    delay: ConvWeights  # gives each row the row before it
    rows: tuple[str, int] | None = None  # guesses begin from the model's last rows

    @property
    def outputs(self) -> DraftOutputs:
        return DraftOutputs(self.norm)

    def follow(self, step: Step) -> None:
        """Writes the keys and values of the step's rows. The step's stream stays as it is."""
        side = step.beside("mtp")
        hidden, before = (side.floats(name, *step.h.shape) for name in ("hidden", "before"))
        norm(step.backend, self.model_norm.form, step.settle(), self.model_norm.weight, y=hidden)
        short_conv(step.backend, hidden, self.delay, step.states[self.row][0], step.batch.states, y=before)
        self._join(side, before)
        heads = side.project(self.keys_values, side.norm(self.layer.mixer_norm, self.keys_values), "keys values")
        self.attention.keep(side, heads.reshape(side.rows, -1, self.attention.head_dim))

    def guess(self, backend: Backend, batch: Batch, before: F32, memory: LayerMemory, workspace: Workspace) -> F32:
        """The layer's stream for the batch's tokens, each after the normed hidden row `before`; in the workspace."""
        step = Step(backend, batch, memory, workspace, before.shape[1])
        self._join(step, before)
        self.layer(step)
        return step.settle()

    def first(self, backend: Backend, rows: F32) -> F32:
        return _normed(backend, self.model_norm, rows)

    def further(self, backend: Backend, stream: F32) -> F32:
        return _normed(backend, self.norm, stream)

    def _join(self, step: Step, before: F32) -> None:
        width = step.h.shape[1]
        embedded, both = step.floats("embedded", step.rows, width), step.floats("both", step.rows, 2 * width)
        embed(step.backend, step.batch.tokens, self.embeddings, out=embedded)
        norm(step.backend, self.token_norm.form, embedded, self.token_norm.weight, y=both[:, :width])
        norm(step.backend, self.row_norm.form, before, self.row_norm.weight, y=both[:, width:])
        self.join.project(step.backend, step.features("both", both, self.join), step.h)


def _normed(backend: Backend, by: Norm, stream: F32) -> F32:
    normed = np.empty_like(stream)
    norm(backend, by.form, stream, by.weight, y=normed)
    return normed
