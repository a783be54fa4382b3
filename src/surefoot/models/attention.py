"""Attention of grouped queries: what nearly every family has, with the options in which they differ."""

from dataclasses import dataclass

from surefoot.models.linear import Linear
from surefoot.models.step import Norm, Rope, Step
from surefoot.models.workspace import Features
from surefoot.ops import attention, kv_write, norm_heads, rope
from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class Attention:
    """`qkv` gives the queries' heads, then the keys', then the values'; without keys and values if the layer reads
    those that another layer keeps. window, softcap: 0 for none."""

    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    qkv: Linear
    out: Linear
    rope: Rope | None
    window: int = 0
    softcap: float = 0.0
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    sinks: F32 | None = None
    keeps: bool = True

    def __call__(self, step: Step, x: Features) -> Features:
        """What the heads saw, ready for `out`."""
        kv_heads = self.kv_heads if self.keeps else 0
        qkv = step.project(self.qkv, x, "qkv").reshape(step.rows, self.heads + 2 * kv_heads, self.head_dim)
        rotated = self.heads + kv_heads  # the keys lie behind the queries: one call turns both
        queries, keys, values = qkv[:, : self.heads], qkv[:, self.heads : rotated], qkv[:, rotated:]
        for normed, heads in ((self.query_norm, queries), (self.key_norm, keys)):
            if normed is not None and heads.size:
                norm_heads(step.backend, normed.form, heads, normed.weight)
        if self.rope is not None:
            rope(step.backend, qkv[:, :rotated], step.table(self.rope), self.rope.form.pairing)
        if self.keeps:
            kv_write(step.backend, step.caches[self.layer], keys, values, step.batch.kv[self.window].slots)
        return self._attend(step, queries)

    def _attend(self, step: Step, queries: F32) -> Features:
        seen = step.floats("attended", step.rows, self.heads, self.head_dim)
        attention(
            step.backend, queries, step.caches[self.layer], step.batch.kv[self.window].chunks, self.scale,
            window=self.window, sinks=self.sinks, softcap=self.softcap, out=seen,
        )  # fmt: skip
        return step.features("attended", seen.reshape(step.rows, -1), self.out)
