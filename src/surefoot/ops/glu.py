"""Activations of the feed-forward layer, gated or plain."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from surefoot.ops import abi
from surefoot.ops.activations import Activations
from surefoot.ops.arrays import F32, check, pointer, row_stride
from surefoot.ops.backend import Backend

KINDS = ("silu", "gelu", "gelu_tanh", "clamped", "sigmoid", "relu2")


@dataclass(frozen=True)
class GluForm:
    """Which activation. `clamped` is gpt-oss's swiglu: gate at most limit, up within ±limit and one added. `relu2` is
    the square of relu."""

    kind: Literal["silu", "gelu", "gelu_tanh", "clamped", "sigmoid", "relu2"] = "silu"
    limit: float = 7.0
    alpha: float = 1.702
    gates: bool = True  # a feed-forward layer has gates beside the values


def glu(
    backend: Backend,
    form: GluForm,
    gate: F32,
    up: F32 | None = None,
    *,
    y: F32 | None = None,
    quantised: Activations | None = None,
) -> None:
    """y = act(gate) * up, or act(gate) without up; quantised = y in fixed point. Writes the outputs that are given.

    y may be gate or up itself.
    """
    check("gate", gate, np.float32, None, None)
    rows, cols = gate.shape
    for name, array in (("up", up), ("y", y)):
        if array is not None:
            check(name, array, np.float32, rows, cols)
    if quantised is not None:
        quantised.check(rows, cols)
    args = abi.GluArgs(
        pointer(gate), pointer(up), pointer(y), abi.ActivationsStruct() if quantised is None else quantised.struct(),
        rows, cols, row_stride(gate), 0 if up is None else row_stride(up), 0 if y is None else row_stride(y),
        KINDS.index(form.kind), form.limit, form.alpha,
    )  # fmt: skip
    backend.run("glu", args, gate, up, y, quantised)
