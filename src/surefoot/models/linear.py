"""Weight matrices as a model uses them: packed or in float32, fused if they share an input and a format."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from surefoot.formats import W4, round_to
from surefoot.models.workspace import Features, Matrix
from surefoot.ops import Activations, Backend, PackedWeights, embed, float_linear, linear, linear_experts, pack
from surefoot.ops.arrays import F32, I64, empty


def num_outputs(matrix: Matrix) -> int:
    return matrix.n if isinstance(matrix, PackedWeights) else len(matrix)


def _num_inputs(matrix: Matrix) -> int:
    return matrix.k if isinstance(matrix, PackedWeights) else matrix.shape[1]


@dataclass(frozen=True)
class LinearPart:
    """One matrix of a `Linear`, with its bias."""

    matrix: Matrix  # packed, or in float32
    bias: F32 | None = None  # one per output
    remainder: PackedWeights | None = None  # what rounding left of the matrix, multiplied and added too

    def bias_or_zeros(self) -> F32:
        return np.zeros(num_outputs(self.matrix), np.float32) if self.bias is None else self.bias

    def project(self, backend: Backend, x: Features, out: F32) -> None:
        if isinstance(self.matrix, PackedWeights):
            assert x.quantised is not None
            self.project_quantised(backend, x.quantised, self.matrix, None, out)
        else:
            assert x.floats is not None
            float_linear(backend, x.floats, self.matrix, self.bias, out=out)

    def project_quantised(
        self, backend: Backend, x: Activations, matrix: PackedWeights, residual: F32 | None, out: F32
    ) -> None:
        linear(backend, x, matrix, self.bias, residual, out)
        if self.remainder is not None:
            linear(backend, x, self.remainder, residual=out, out=out)


@dataclass(frozen=True)
class Linear:
    """Matrices that share an input, their outputs side by side; those of one format are one matrix."""

    parts: tuple[LinearPart, ...]  # whose outputs stand side by side

    @property
    def num_outputs(self) -> int:
        return sum(num_outputs(part.matrix) for part in self.parts)

    @property
    def num_inputs(self) -> int:
        return _num_inputs(self.parts[0].matrix)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(part.matrix for part in self.parts)

    def project(self, backend: Backend, x: Features, out: F32) -> None:
        for part, columns in _columns(self.matrices):
            self.parts[part].project(backend, x, out[:, columns])

    def rows(self, backend: Backend, outputs: I64) -> F32:
        """The weights of the given outputs, in float32."""
        weights = empty((len(outputs), self.num_inputs), np.float32)
        for part, columns in _columns(self.matrices):
            own = (outputs >= columns.start) & (outputs < columns.stop)
            weights[own] = embed(backend, outputs[own] - columns.start, self.matrices[part])
        return weights

    def only(self, backend: Backend, outputs: I64) -> "Linear":
        """A `Linear` of the given outputs only, with 4-bit weights."""
        biases = [part.bias_or_zeros() for part in self.parts]
        has_bias = any(part.bias is not None for part in self.parts)
        packed = pack(backend, round_to(W4, self.rows(backend, outputs)))
        return Linear((LinearPart(packed, np.concatenate(biases)[outputs] if has_bias else None),))

    def project_onto(self, backend: Backend, x: Features, h: F32) -> bool:
        """Does h += project(x) in one pass, if the weights' form allows it. Returns whether it did."""
        part = self.parts[0]
        if len(self.parts) > 1 or not isinstance(part.matrix, PackedWeights) or x.quantised is None:
            return False
        part.project_quantised(backend, x.quantised, part.matrix, h, h)
        return True


@dataclass(frozen=True)
class EmbeddingTable:
    """A matrix of which a token reads one row."""

    matrix: Matrix  # [vocabulary, lanes]


@dataclass(frozen=True)
class ExpertPart:
    """One matrix of each expert, all in one format."""

    experts: tuple[Matrix, ...]  # one matrix each
    biases: tuple[F32, ...] | None = None  # one array per expert

    def project(self, backend: Backend, x: Features, starts: I64, out: F32) -> None:
        packed = [expert for expert in self.experts if isinstance(expert, PackedWeights)]
        if len(packed) == len(self.experts):
            assert x.quantised is not None
            linear_experts(backend, x.quantised, packed, starts, self.biases, out=out)
        else:
            self._project_floats(backend, x, starts, out)

    def _project_floats(self, backend: Backend, x: Features, starts: I64, out: F32) -> None:
        if backend.recording:
            raise RuntimeError("float experts cannot be recorded: where their rows start is not known beforehand")
        assert x.floats is not None
        for e, expert in enumerate(self.experts):
            rows = slice(starts[e], starts[e + 1])
            if starts[e] < starts[e + 1] and not isinstance(expert, PackedWeights):
                bias = None if self.biases is None else self.biases[e]
                float_linear(backend, x.floats[rows], expert, bias, out=out[rows])


@dataclass(frozen=True)
class ExpertLinear:
    """Same as `Linear`, with matrices per expert: rows starts[e] to starts[e + 1] go through those of expert e."""

    parts: tuple[ExpertPart, ...]  # whose outputs stand side by side

    @property
    def num_outputs(self) -> int:
        return sum(num_outputs(part.experts[0]) for part in self.parts)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(part.experts[0] for part in self.parts)

    def project(self, backend: Backend, x: Features, starts: I64, out: F32) -> None:
        for part, columns in _columns([part.experts[0] for part in self.parts]):
            self.parts[part].project(backend, x, starts, out[:, columns])


def _columns(matrices: Sequence[Matrix]) -> Iterator[tuple[int, slice]]:
    """The number of each matrix, and the columns of its outputs."""
    start = 0
    for number, matrix in enumerate(matrices):
        yield number, slice(start, start + num_outputs(matrix))
        start += num_outputs(matrix)
