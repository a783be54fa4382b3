"""Operations over states, as native/kernels/short_conv.cpp, delta_*.cpp and ssd_*.cpp."""

import numpy as np

from surefoot.ops.states import ConvWeights, DeltaGates, DeltaRows, ScanGates, ScanRows, StateRows
from tests.oracle.arithmetic import F32, fma
from tests.oracle.elementary import exp, log

f32 = np.float32


def _begin(state: F32, slot: int) -> F32:
    return np.zeros_like(state[0]) if slot < 0 else state[slot].copy()


@np.errstate(over="ignore", under="ignore")
def short_conv(
    x: F32, weights: ConvWeights, state: F32, rows: StateRows, gate_in: F32 | None = None, gate_out: F32 | None = None
) -> tuple[F32, F32]:
    """y, and the slots afterwards."""
    after, y = state.copy(), np.zeros_like(x)
    for chunk, load in enumerate(rows.loads):
        held = _begin(state, load)
        for row in range(rows.starts[chunk], rows.starts[chunk + 1]):
            inputs = np.concatenate([held, x[row : row + 1] * (f32(1) if gate_in is None else gate_in[row])])
            total = inputs[0] * weights.taps[0]
            for column, tap in zip(inputs[1:], weights.taps[1:], strict=True):
                total = fma(column, tap, total)
            if weights.bias is not None:
                total = total + weights.bias
            if weights.silu:
                total = total / (f32(1) + exp(-total))
            y[row] = total if gate_out is None else total * gate_out[row]
            held = inputs[1:]
            if rows.saves[row] >= 0:
                after[rows.saves[row]] = held
    return y, after


@np.errstate(over="ignore", under="ignore")
def delta_gates(a: F32, b: F32, rate: F32, bias: F32) -> DeltaGates:
    return DeltaGates(exp(rate * _softplus(a + bias)), f32(1) / (f32(1) + exp(-b)))


def _softplus(x: F32) -> F32:
    e = exp(-np.abs(x))
    u = f32(1) + e
    y: F32 = np.maximum(f32(0), x) + (log(u) + (e - (u - f32(1))) / u)
    return y


def _sum(vector: F32, matrix: F32) -> F32:
    """vector @ matrix: fma in ascending order of lanes."""
    total = np.zeros(matrix.shape[1], np.float32)
    for lane, line in zip(vector, matrix, strict=True):
        total = fma(lane, line, total)
    return total


@np.errstate(over="ignore", under="ignore")
def delta_rule(x: DeltaRows, gates: DeltaGates, state: F32, rows: StateRows, tiled: bool) -> tuple[F32, F32]:
    """y, and the slots afterwards."""
    after, y = state.copy(), np.zeros_like(x.v)
    heads, key_heads = x.v.shape[1], x.q.shape[1]
    by_lane = gates.decay.shape != gates.beta.shape
    for chunk, load in enumerate(rows.loads):
        matrices = _begin(state, load)
        for row in range(rows.starts[chunk], rows.starts[chunk + 1]):
            for head in range(heads):
                own = head % key_heads if tiled else head // (heads // key_heads)
                key, matrix = x.k[row, own], matrices[head]
                if by_lane:
                    matrix = gates.decay[row].reshape(heads, -1)[head][:, None] * matrix
                    change = gates.beta[row, head] * (x.v[row, head] - _sum(key, matrix))
                else:
                    decay = gates.decay[row, head]
                    change = gates.beta[row, head] * (x.v[row, head] - decay * _sum(key, matrix))
                    matrix = decay * matrix
                matrices[head] = fma(key[:, None], change, matrix)
                y[row, head] = _sum(x.q[row, own], matrices[head])
            if rows.saves[row] >= 0:
                after[rows.saves[row]] = matrices
    return y, after


@np.errstate(over="ignore", under="ignore")
def ssd_gates(x: F32, rate: F32, bias: F32) -> ScanGates:
    dt = _softplus(x + bias)
    return ScanGates(exp(rate * dt), dt)


@np.errstate(over="ignore", under="ignore")
def ssd_scan(x: ScanRows, gates: ScanGates, skip: F32, state: F32, rows: StateRows) -> tuple[F32, F32]:
    """y, and the slots afterwards."""
    after, y = state.copy(), np.zeros_like(x.x)
    heads, groups = x.x.shape[1], x.b.shape[1]
    for chunk, load in enumerate(rows.loads):
        matrices = _begin(state, load)
        for row in range(rows.starts[chunk], rows.starts[chunk + 1]):
            for head in range(heads):
                group, own = head // (heads // groups), x.x[row, head]
                taken = gates.dt[row, head] * own
                matrices[head] = fma(x.b[row, group][:, None], taken, gates.decay[row, head] * matrices[head])
                y[row, head] = fma(skip[head], own, _sum(x.c[row, group], matrices[head]))
            if rows.saves[row] >= 0:
                after[rows.saves[row]] = matrices
    return y, after
