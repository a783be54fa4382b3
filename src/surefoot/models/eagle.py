"""An EAGLE-3 head: one layer that drafts, published apart from the model that it drafts for (the target).

Features are the streams before three of the target's layers, side by side; a matrix fuses them into a row. Row t of
the head joins the embedding of token t with the fused row of token t - 1:

    fused = fuse · [stream before layer a, before layer b, before layer c]
    x     = [norm(embedding of token t), norm(fused row of token t - 1)]
    row   = fused + attention(x);  row = row + feed-forward(norm(row));  logits = head · norm(row)

For tokens that are guessed, the head's own row stands for the fused one. As of `mtp`, keys and values lie in slot t and
the row before a chunk is a state. There is no row before the first token, so no guess reads slot 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from surefoot.models.attention import Attention
from surefoot.models.config import LayerConfig
from surefoot.models.decoder import Layer, Model
from surefoot.models.drafting import DraftOutputs
from surefoot.models.feed_forward import FeedForward, feed_forward
from surefoot.models.linear import Linear
from surefoot.models.step import Batch, LayerMemory, Norm, Step
from surefoot.models.workspace import Matrix, Workspace
from surefoot.ops import Backend, Chunks, ConvWeights, NormForm, attention, embed, norm, short_conv
from surefoot.ops.arrays import F32

FEATURES, FUSED = "eagle features", "eagle fused"  # names in the workspace
PLAIN = NormForm()  # of a pass that only copies
ONE_ROW = np.array([0, 1])  # where the rows of a chunk begin and end


@dataclass(frozen=True)
class FeatureTap:
    """Stands between two layers of the target and keeps the stream as a part of the features."""

    start: int  # its first column
    width: int  # of all features
    norm: Norm | None = None  # of the stream, before it is kept

    def __call__(self, step: Step) -> None:
        stream = step.settle()
        columns = step.floats(FEATURES, step.rows, self.width)[:, self.start : self.start + stream.shape[1]]
        if self.norm is None:
            norm(step.backend, PLAIN, stream, h=columns, y=step.floats("eagle unread", *stream.shape))
        else:
            norm(step.backend, self.norm.form, stream, self.norm.weight, y=columns)


@dataclass(frozen=True)
class EagleLayer:
    """Implements DraftingLayer with an EAGLE-3 head."""

    state: int  # the number of the layer whose state is the fused row before
    embeddings: Matrix  # the target's, or the head's own
    features_norm: Norm | None  # of all features together; None: they are not normed together
    fuse: Linear  # from features to a row
    token_norm: Norm  # of embeddings
    row_norm: Norm  # of rows before
    attention: Attention  # writes no keys and values by itself; its matrix makes queries
    keys_values: Linear  # keys, values
    ffn_norm: Norm  # before the feed-forward
    ffn: FeedForward
    outputs: DraftOutputs
    delay: ConvWeights  # gives each row the row before it
    adds_normed: bool  # attention is added to the normed row before, not to the row itself
    feeds_normed: bool  # the next guess reads the normed row

    @property
    def width(self) -> int:
        """Lanes of a row."""
        return len(self.row_norm.weight)

    @property
    def rows(self) -> tuple[str, int]:
        return FUSED, self.width

    def follow(self, step: Step) -> None:
        side = Step(step.backend, step.batch, step.memory, step.workspace.part("eagle"), self.width)
        fused, before = (side.floats(name, side.rows, self.width) for name in ("fused", "before"))
        self._fuse(step, side, fused)
        short_conv(step.backend, fused, self.delay, step.states[self.state][0], step.batch.states, y=before)
        self._keep(side, self._join(side, before))
        if step.batch.wanted.size:  # the last operation: a pass without logits is the beginning of one with them
            embed(step.backend, step.batch.wanted, fused, out=step.floats(FUSED, step.batch.wanted.size, self.width))

    def first(self, backend: Backend, rows: F32) -> F32:
        return rows

    def guess(self, backend: Backend, batch: Batch, before: F32, memory: LayerMemory, workspace: Workspace) -> F32:
        step = Step(backend, batch, memory, workspace, self.width)
        both = self._join(step, before)
        step.h[:] = both[:, self.width :] if self.adds_normed else before
        self._keep(step, both)
        attended = self._attend(step, both).reshape(step.rows, -1)
        step.add_projected(self.attention.out, step.features("attended", attended, self.attention.out))
        feed_forward(step, self.ffn_norm, self.ffn)
        return step.settle()

    def further(self, backend: Backend, stream: F32) -> F32:
        following, by = np.empty_like(stream), self.outputs.norm
        if self.feeds_normed:
            norm(backend, by.form, stream, by.weight, y=following)
        else:
            following[:] = stream
        return following

    def _fuse(self, step: Step, side: Step, fused: F32) -> None:
        by = self.features_norm
        features = step.floats(FEATURES, step.rows, self.fuse.num_inputs)
        if by is not None:
            norm(step.backend, by.form, features, by.weight, y=features)
        self.fuse.project(step.backend, side.features("features", features, self.fuse), fused)

    def _join(self, step: Step, before: F32) -> F32:
        """The normed embeddings and the normed rows before, side by side."""
        lanes = len(self.token_norm.weight)
        embedded, both = step.floats("embedded", step.rows, lanes), step.floats("both", step.rows, lanes + self.width)
        embed(step.backend, step.batch.tokens, self.embeddings, out=embedded)
        norm(step.backend, self.token_norm.form, embedded, self.token_norm.weight, y=both[:, :lanes])
        norm(step.backend, self.row_norm.form, before, self.row_norm.weight, y=both[:, lanes:])
        return both

    def _keep(self, step: Step, both: F32) -> None:
        heads = step.project(self.keys_values, step.features("both", both, self.keys_values), "keys values")
        self.attention.keep(step, heads.reshape(step.rows, -1, self.attention.head_dim))

    def _attend(self, step: Step, both: F32) -> F32:
        """[rows, heads, head_dim]. A window that ends after slot 0 is as long as the text, so each row has its own."""
        by, qkv = self.attention, self.attention.qkv
        queries = step.project(qkv, step.features("both", both, qkv), "queries").reshape(step.rows, by.heads, -1)
        by.prepare(step, queries)
        attended, chunks = np.empty_like(queries), step.batch.kv[by.window].chunks
        for row in range(step.rows):
            here, seen = slice(row, row + 1), max(1, int(chunks.lengths[row]) - 1)
            chunk = Chunks(ONE_ROW, chunks.lengths[here], chunks.block_table[here])
            window = min(seen, by.window or seen)
            attention(
                step.backend, queries[here], step.caches[by.layer], chunk, by.scale, window=window, out=attended[here]
            )
        return attended


@dataclass(frozen=True)
class EagleHead:
    """A head that was loaded for a target."""

    layer: EagleLayer
    taps: Mapping[int, FeatureTap]  # by the number of layers of the target before them
    kept: tuple[LayerConfig, LayerConfig]  # what the head keeps of a request: keys and values, the row before

    @property
    def name(self) -> str:
        """Tells this head from others by its norms, so that what is kept on disk for one is not read for another."""
        layer = self.layer
        vectors = (layer.token_norm.weight, layer.row_norm.weight, layer.ffn_norm.weight, layer.outputs.norm.weight)
        return blake2b(b"".join(vector.tobytes() for vector in vectors), digest_size=16).hexdigest()


def with_head(model: Model, head: EagleHead) -> Model:
    """The model with the head as its drafting layer, instead of one that it may have."""
    plain, layers = model.without_drafting(), list[Layer]()
    for number in range(len(plain.layers) + 1):
        layers += [head.taps[number]] if number in head.taps else []
        layers += plain.layers[number : number + 1]
    config = replace(plain.config, drafting_layers=head.kept)
    return replace(plain, config=config, layers=tuple(layers), drafting=head.layer)
