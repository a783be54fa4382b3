"""Grouped-query attention, as nearly every family has it, with the options in which they differ."""

from dataclasses import dataclass

from surefoot.models.linear import Linear
from surefoot.models.step import Norm, Rope, Step
from surefoot.models.workspace import Features
from surefoot.ops import NormForm, attention, kv_write, norm_heads, rope
from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class Attention:
    """The attention of one layer."""

    layer: int  # its number
    heads: int  # of queries
    kv_heads: int  # heads of keys and values
    head_dim: int  # lanes of a head
    scale: float  # of the logits
    qkv: Linear  # outputs: heads of queries, of keys, of values; queries alone if the layer writes no keys and values
    out: Linear  # projects the heads' outputs to the stream
    rope: Rope | None  # None: positions are not encoded
    query_rope: Rope | None = None  # of queries, where it is another than the keys'
    window: int = 0  # tokens that a token sees, itself included; 0: all before it
    fixed: bool = False  # windows stand side by side from position 0 on
    sees_ahead: bool = False  # a token sees as many after it
    softcap: float = 0.0  # of the logits; 0: none
    slopes: F32 | None = None  # one per head: what a logit falls by for each token between; None: logits do not fall
    query_norm: Norm | None = None  # of each head, or of all heads together, as its lanes say; None: none
    key_norm: Norm | None = None  # likewise
    value_norm: NormForm | None = None  # of each head of values, without weights; None: none
    norms_rotated: bool = False  # queries and keys are normed after they are rotated, not before
    sinks: F32 | None = None  # one logit per head
    keeps: bool = True  # writes keys and values; False: reads those of another layer

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.qkv,)

    def __call__(self, step: Step, x: Features) -> Features:
        """The heads' outputs, in the form that `out` takes."""
        return step.features("attended", self.attend(step, x).reshape(step.rows, -1), self.out)

    def attend(self, step: Step, x: Features) -> F32:
        """The heads' outputs [rows, heads, head_dim]."""
        kv_heads = self.kv_heads if self.keeps else 0
        qkv = step.project(self.qkv, x, "qkv").reshape(step.rows, self.heads + 2 * kv_heads, self.head_dim)
        rotated = self.heads + kv_heads  # keys follow queries: one call rotates both
        queries, keys, values = qkv[:, : self.heads], qkv[:, self.heads : rotated], qkv[:, rotated:]
        if not self.norms_rotated:
            self._norm(step, queries, keys)
        if self.query_rope is not None:
            _rotate(step, queries, self.query_rope)
            _rotate(step, keys, self.rope)
        else:
            _rotate(step, qkv[:, :rotated], self.rope)
        if self.norms_rotated:
            self._norm(step, queries, keys)
        if self.value_norm is not None and self.keeps:
            norm_heads(step.backend, self.value_norm, values)
        if self.keeps:
            kv_write(step.backend, step.caches[self.layer], keys, values, step.batch.kv[self.window].slots)
        attended = step.floats("attended", step.rows, self.heads, self.head_dim)
        attention(
            step.backend, queries, step.caches[self.layer], step.batch.kv[self.window].chunks, self.scale,
            window=self.window, fixed=self.fixed, sees_ahead=self.sees_ahead, sinks=self.sinks, softcap=self.softcap,
            slopes=self.slopes, out=attended,
        )  # fmt: skip
        return attended

    def keep(self, step: Step, heads: F32) -> None:
        """Writes keys and values without attending. heads: [rows, 2 kv_heads, head_dim], as the matrix gives them."""
        keys, values = heads[:, : self.kv_heads], heads[:, self.kv_heads :]
        self._norm(step, keys[:, :0], keys)
        _rotate(step, keys, self.rope)
        kv_write(step.backend, step.caches[self.layer], keys, values, step.batch.kv[self.window].slots)

    def prepare(self, step: Step, queries: F32) -> None:
        """Norms and rotates queries [rows, heads, head_dim] in place."""
        self._norm(step, queries, queries[:, :0])
        _rotate(step, queries, self.rope)

    def _norm(self, step: Step, queries: F32, keys: F32) -> None:
        for normed, heads in ((self.query_norm, queries), (self.key_norm, keys)):
            if normed is not None and heads.size:
                parts = heads.reshape(step.rows, -1, len(normed.weight))  # a view: a row's heads are contiguous
                norm_heads(step.backend, normed.form, parts, normed.weight, normed.bias)


def _rotate(step: Step, heads: F32, by: Rope | None) -> None:
    if by is not None and heads.size:
        rope(step.backend, heads, step.table(by), by.form.pairing)
