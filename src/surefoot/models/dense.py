"""What a pooled vector goes through before it is an embedding, or before a classifier scores it."""

from dataclasses import dataclass
from typing import Literal

from surefoot.models.step import Norm
from surefoot.ops import Backend, GluForm, float_linear, glu, norm, softcap
from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class Dense:
    """A matrix in float32, a bias, an activation, a norm: what is None is left out."""

    weight: F32  # [outputs, inputs]
    bias: F32 | None = None  # one per output
    activation: Literal["tanh", "gelu"] | None = None
    norm: Norm | None = None

    def __call__(self, backend: Backend, x: F32) -> F32:
        """Rows of outputs, from rows of inputs."""
        y = float_linear(backend, x, self.weight, self.bias)
        if self.activation == "tanh":
            softcap(backend, y, 1.0, out=y)
        elif self.activation == "gelu":
            glu(backend, GluForm("gelu"), y, y=y)
        if self.norm is not None:
            norm(backend, self.norm.form, y, self.norm.weight, self.norm.bias, y=y)
        return y
