"""One forward pass: its rows, its KV caches, and the residual stream that layers add to."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from surefoot.models.linear import ExpertLinear, Linear
from surefoot.models.workspace import Features, Workspace
from surefoot.ops import (
    Backend,
    Chunks,
    KvCache,
    NormForm,
    RopeForm,
    RopeTable,
    StateRows,
    add,
    attention_factor,
    embed,
    inverse_frequencies,
    norm,
    rope_table,
)
from surefoot.ops.arrays import F32, I64


@dataclass(frozen=True)
class KvRows:
    """Where layers with the same window write and read keys and values."""

    slots: I64  # of the KV cache, one per row: where its key and value are written
    chunks: Chunks  # of requests, with the block tables that attention reads


@dataclass(frozen=True)
class Batch:
    """The input of a pass, in arrays with fixed addresses: to replay a recorded pass, they are filled again."""

    tokens: I64  # one per row
    positions: I64  # one per row
    wanted: I64  # the rows whose logits are wanted
    kv: Mapping[int, KvRows]  # by window
    states: StateRows  # slots that layers with states read and write


@dataclass(frozen=True)
class Norm:
    """A norm with its weight."""

    form: NormForm  # its kind and epsilon
    weight: F32  # one per lane
    bias: F32 | None = None  # likewise; None: nothing is added


@dataclass(frozen=True, eq=False)
class Rope:
    """RoPE with its frequencies computed; compared by identity."""

    form: RopeForm  # its dimensions, base and scaling
    inv_freq: F32  # one per pair of lanes
    scale: float  # of cos and sin
    growth: F32 | None = None  # [positions, 1]: what multiplies cos and sin too; None: nothing

    @classmethod
    def of(cls, form: RopeForm, growth: F32 | None = None) -> "Rope":
        return cls(form, inverse_frequencies(form), attention_factor(form), growth)


@dataclass(frozen=True)
class LayerMemory:
    """What layers keep of requests, by the layer's number."""

    caches: Mapping[int, KvCache]  # keys and values
    states: Mapping[int, tuple[F32, ...]]  # arrays [slots, ...]


class Step:
    """The state of one forward pass, which the parts of a model share. Every call is an operation of `ops` over fixed
    arrays, so that a pass can be recorded.

    The residual stream is `h`, plus an addend if there is one: the next norm adds it in the same operation.
    """

    def __init__(self, backend: Backend, batch: Batch, memory: LayerMemory, workspace: Workspace, width: int) -> None:
        self.backend = backend
        self.batch = batch
        self.memory = memory
        self.caches, self.states = memory.caches, memory.states
        self.workspace = workspace
        self.rows = len(batch.tokens)
        self.h = workspace.floats("h", self.rows, width)
        self._addend: F32 | None = None
        self._tables: dict[Rope, RopeTable] = {}

    def floats(self, name: str, *shape: int) -> F32:
        return self.workspace.floats(name, *shape)

    def beside(self, name: str) -> "Step":
        """A step over the same rows with a stream of its own."""
        return Step(self.backend, self.batch, self.memory, self.workspace.part(name), self.h.shape[1])

    # ---- the residual stream ----

    def norm(self, normed: Norm, *readers: Linear | ExpertLinear) -> Features:
        """The normed stream, in the forms that its readers take."""
        matrices = [matrix for reader in readers for matrix in reader.matrices]
        x = self.workspace.features("normed", self.h.shape, matrices)
        residual, self._addend = self._addend, None
        norm(
            self.backend, normed.form, self.h, normed.weight, normed.bias, residual=residual,
            h=None if residual is None else self.h, y=x.floats, quantised=x.quantised,
        )  # fmt: skip
        return x

    def renorm(self, normed: Norm, reader: Linear | None = None) -> Features:
        """Norms the stream itself. Returns it in the forms that its reader takes."""
        x = self.workspace.features("normed", self.h.shape, () if reader is None else reader.matrices)
        residual, self._addend = self._addend, None
        norm(
            self.backend, normed.form, self.h, normed.weight, normed.bias, residual=residual, y=self.h,
            quantised=x.quantised,
        )  # fmt: skip
        return Features(self.h if x.floats is not None else None, x.quantised)

    def stream(self, reader: Linear | ExpertLinear) -> Features:
        """The stream itself, in the forms that its reader takes."""
        return self.features("stream", self.settle(), reader)

    def add(self, x: F32) -> None:
        """Adds x to the stream at the next norm. x must not change until then."""
        self.settle()
        self._addend = x

    def add_projected(self, matrix: Linear, x: Features) -> None:
        """Adds a projection of x to the stream."""
        self.settle()
        if not matrix.project_onto(self.backend, x, self.h):
            self.add(self.project(matrix, x, "delta"))

    def settle(self) -> F32:
        """The stream, with a pending addend added."""
        if self._addend is not None:
            add(self.backend, self.h, self._addend, out=self.h)
            self._addend = None
        return self.h

    def scale(self, factor: float) -> None:
        """Multiplies the stream, with a pending addend added."""
        add(self.backend, self.h, self._addend, factor, out=self.h)
        self._addend = None

    # ---- rows through matrices ----

    def project(self, matrix: Linear, x: Features, name: str) -> F32:
        rows = x.quantised.rows if x.quantised is not None else len(x.floats) if x.floats is not None else 0
        out = self.floats(name, rows, matrix.num_outputs)
        matrix.project(self.backend, x, out)
        return out

    def features(self, name: str, x: F32, reader: Linear | ExpertLinear) -> Features:
        """x in the forms that its reader takes."""
        return self.workspace.filled(self.backend, name, x, reader.matrices)

    # ---- positions ----

    def table(self, rope: Rope) -> RopeTable:
        """cos and sin of the rows' positions, computed on first use."""
        if rope not in self._tables:
            name, shape = f"rope {len(self._tables)}", (self.rows, len(rope.inv_freq))
            table = RopeTable(self.floats(f"{name} cos", *shape), self.floats(f"{name} sin", *shape))
            grown = None if rope.growth is None else self._growth(name, rope.growth)
            rope_table(self.backend, self.batch.positions, rope.inv_freq, rope.scale, grown, table)
            self._tables[rope] = table
        return self._tables[rope]

    def _growth(self, name: str, growth: F32) -> F32:
        out = self.floats(f"{name} growth", self.rows, 1)
        return embed(self.backend, self.batch.positions, growth, out=out).reshape(self.rows)


def empty_batch(rows: int, num_chunks: int, num_wanted: int, table_widths: Mapping[int, int]) -> Batch:
    """A batch of zeros; the block tables are `table_widths` blocks wide, by window."""
    starts, lengths = np.zeros(num_chunks + 1, np.int64), np.zeros(num_chunks, np.int64)
    kv = {
        window: KvRows(np.zeros(rows, np.int64), Chunks(starts, lengths, np.zeros((num_chunks, blocks), np.int64)))
        for window, blocks in table_widths.items()
    }
    states = StateRows(starts, np.full(num_chunks, -1, np.int64), np.full(rows, -1, np.int64))
    return Batch(np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(num_wanted, np.int64), kv, states)
