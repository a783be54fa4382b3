"""Elementary functions over an array. Kernels use them internally; this operation exists for their tests."""

from typing import Literal, get_args

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, check, empty, pointer
from surefoot.ops.backend import Backend

Function = Literal["exp", "log", "tanh", "erf", "sin", "cos", "rsqrt"]
FUNCTIONS: tuple[Function, ...] = get_args(Function)


def elementary(backend: Backend, function: Function, x: F32) -> F32:
    """function(x) for a one-dimensional x."""
    check("x", x, np.float32, None)
    y = empty(x.shape, np.float32)
    backend.run("elementary", abi.ElementaryArgs(pointer(x), pointer(y), x.size, FUNCTIONS.index(function)), x, y)
    return y
