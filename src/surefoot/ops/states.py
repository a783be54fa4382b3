"""States that layers keep of a request instead of keys and values: operations that go on from one and save the next."""

from dataclasses import dataclass

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, check, head_stride, pointer, row_stride
from surefoot.ops.backend import Backend


@dataclass(frozen=True)
class StateRows:
    """Which rows belong to which chunk, the slot that a chunk goes on from, and the slots that its rows' states go to.

    Chunk c owns rows starts[c] to starts[c + 1] and begins with the state in slot loads[c] (negative: zeros). The state
    after row r is written to slot saves[r] (negative: nowhere). No slot is both read and written in a call.
    """

    starts: I64  # one more than chunks
    loads: I64  # one per chunk
    saves: I64  # one per row

    def struct(self, num_slots: int) -> abi.StateRowsStruct:
        check("loads", self.loads, np.int64, None)
        check("starts", self.starts, np.int64, len(self.loads) + 1)
        check("saves", self.saves, np.int64, None)
        return abi.StateRowsStruct(
            pointer(self.starts), pointer(self.loads), pointer(self.saves), len(self.saves), len(self.loads), num_slots
        )


@dataclass(frozen=True)
class ConvWeights:
    """A causal convolution of each column by itself."""

    taps: F32  # [taps, columns]; the last one is that of the row itself
    bias: F32 | None = None  # one per column
    silu: bool = False  # silu of the sum


def short_conv(
    backend: Backend,
    x: F32,
    weights: ConvWeights,
    state: F32,
    rows: StateRows,
    *,
    gate_in: F32 | None = None,
    gate_out: F32 | None = None,
    y: F32,
) -> None:
    """y = act(conv(x * gate_in)) * gate_out over each chunk's rows, after the inputs that its state holds.

    state: [slots, taps - 1, columns], the oldest input first. The gates lie in rows as far apart as x's."""
    num_taps, cols = weights.taps.shape
    num_rows = len(rows.saves)
    for name, array in (("x", x), ("y", y), ("gate_in", gate_in), ("gate_out", gate_out)):
        if array is not None:
            check(name, array, np.float32, num_rows, cols)
    for gate in (gate_in, gate_out):
        if gate is not None and row_stride(gate) != row_stride(x):
            raise ValueError("the gates' rows must be as far apart as those of x")
    check("taps", weights.taps, np.float32, num_taps, cols)
    check("state", state, np.float32, None, num_taps - 1, cols)
    if weights.bias is not None:
        check("bias", weights.bias, np.float32, cols)
    args = abi.ShortConvArgs(
        rows.struct(len(state)), pointer(x), pointer(gate_in), pointer(gate_out), pointer(weights.taps),
        pointer(weights.bias), pointer(state), pointer(y), cols, num_taps, row_stride(x), row_stride(y), weights.silu,
    )  # fmt: skip
    backend.run("short_conv", args, x, weights, state, rows, gate_in, gate_out, y)


@dataclass(frozen=True)
class DeltaGates:
    """How fast each head of a row forgets, or each lane of its keys, and how much the head takes in."""

    decay: F32  # [rows, heads], or [rows, heads * key lanes]
    beta: F32  # [rows, heads]


def delta_gates(backend: Backend, a: F32, b: F32, rate: F32, bias: F32, out: DeltaGates) -> None:
    """decay = exp(rate * softplus(a + bias)), beta = sigmoid(b), for a [rows, decays] and b [rows, betas]."""
    check("a", a, np.float32, None, None)
    num_rows, decays = a.shape
    check("b", b, np.float32, num_rows, None)
    betas = b.shape[1]
    check("decay", out.decay, np.float32, num_rows, decays)
    check("beta", out.beta, np.float32, num_rows, betas)
    check("rate", rate, np.float32, decays)
    check("bias", bias, np.float32, decays)
    args = abi.DeltaGatesArgs(
        pointer(a), pointer(b), pointer(rate), pointer(bias), pointer(out.decay), pointer(out.beta), num_rows, decays,
        betas, row_stride(a), row_stride(b),
    )  # fmt: skip
    backend.run("delta_gates", args, a, b, rate, bias, out)


@dataclass(frozen=True)
class DeltaRows:
    """Queries, keys and values as parts of the same rows."""

    q: F32  # [rows, key heads, key lanes]
    k: F32  # like q
    v: F32  # [rows, heads, value lanes]


def delta_rule(
    backend: Backend, x: DeltaRows, gates: DeltaGates, state: F32, rows: StateRows, tiled: bool, *, y: F32
) -> None:
    """The gated delta rule: each head's matrix fades by decay (or its rows by one each), is moved towards v at k by
    beta, and is read at q.

    state: [slots, heads, key lanes, value lanes]. tiled: head h reads key head h % key heads, else h // (heads a key
    head). y: [rows, heads, value lanes]."""
    num_rows, key_heads, key_dim = x.q.shape
    _, heads, value_dim = x.v.shape
    check("q", x.q, np.float32, num_rows, key_heads, key_dim)
    check("k", x.k, np.float32, num_rows, key_heads, key_dim)
    check("v", x.v, np.float32, num_rows, heads, value_dim)
    check("y", y, np.float32, num_rows, heads, value_dim)
    check("state", state, np.float32, None, heads, key_dim, value_dim)
    by_lane = gates.decay.shape != gates.beta.shape
    check("decay", gates.decay, np.float32, num_rows, heads * key_dim if by_lane else heads)
    check("beta", gates.beta, np.float32, num_rows, heads)
    stride = head_stride(x.v) if num_rows > 1 else max(key_heads * key_dim, heads * value_dim)
    if len(rows.saves) != num_rows or (num_rows > 1 and {head_stride(x.q), head_stride(x.k)} != {stride}):
        raise ValueError("queries, keys and values must be parts of the same rows")
    args = abi.DeltaRuleArgs(
        rows.struct(len(state)), pointer(x.q), pointer(x.k), pointer(x.v), pointer(gates.decay), pointer(gates.beta),
        pointer(state), pointer(y), key_heads, heads, key_dim, value_dim, stride, head_stride(y), tiled, by_lane,
    )  # fmt: skip
    backend.run("delta_rule", args, x, gates, state, rows, y)


@dataclass(frozen=True)
class ScanGates:
    """How fast each head of a row forgets, and how much of the row it takes in."""

    decay: F32  # [rows, heads]
    dt: F32  # [rows, heads]


def ssd_gates(backend: Backend, x: F32, rate: F32, bias: F32, out: ScanGates) -> None:
    """dt = softplus(x + bias), decay = exp(rate * dt), for x [rows, heads]."""
    check("x", x, np.float32, None, None)
    num_rows, heads = x.shape
    for name, array in (("decay", out.decay), ("dt", out.dt)):
        check(name, array, np.float32, num_rows, heads)
    check("rate", rate, np.float32, heads)
    check("bias", bias, np.float32, heads)
    args = abi.SsdGatesArgs(
        pointer(x), pointer(rate), pointer(bias), pointer(out.decay), pointer(out.dt), num_rows, heads, row_stride(x)
    )
    backend.run("ssd_gates", args, x, rate, bias, out)


@dataclass(frozen=True)
class ScanRows:
    """Inputs of Mamba-2's scan as parts of the same rows."""

    x: F32  # [rows, heads, head lanes]
    b: F32  # [rows, groups, state lanes]: what x is written with
    c: F32  # like b: what the state is read with


def ssd_scan(
    backend: Backend, x: ScanRows, gates: ScanGates, skip: F32, state: F32, rows: StateRows, *, y: F32
) -> None:
    """Mamba-2's scan: each head's matrix fades by decay, gets dt * x at b, and is read at c; skip * x is added.

    state: [slots, heads, state lanes, head lanes]. Neighbouring heads share a group. y: [rows, heads, head lanes]."""
    num_rows, heads, head_dim = x.x.shape
    _, groups, state_dim = x.b.shape
    for name, array in (("x", x.x), ("y", y)):
        check(name, array, np.float32, num_rows, heads, head_dim)
    for name, array in (("b", x.b), ("c", x.c)):
        check(name, array, np.float32, num_rows, groups, state_dim)
    for name, array in (("decay", gates.decay), ("dt", gates.dt)):
        check(name, array, np.float32, num_rows, heads)
    check("skip", skip, np.float32, heads)
    check("state", state, np.float32, None, heads, state_dim, head_dim)
    stride = head_stride(x.x) if num_rows > 1 else max(heads * head_dim, groups * state_dim)
    if len(rows.saves) != num_rows or (num_rows > 1 and {head_stride(x.b), head_stride(x.c)} != {stride}):
        raise ValueError("x, b and c must be parts of the same rows")
    args = abi.SsdScanArgs(
        rows.struct(len(state)), pointer(x.x), pointer(x.b), pointer(x.c), pointer(gates.decay), pointer(gates.dt),
        pointer(skip), pointer(state), pointer(y), groups, heads, state_dim, head_dim, stride, head_stride(y),
    )  # fmt: skip
    backend.run("ssd_scan", args, x, gates, skip, state, rows, y)
