"""The feed-forward half of a layer: gated, or a mixture of gated experts."""

from dataclasses import dataclass

from surefoot.models.linear import Linear
from surefoot.models.step import Step
from surefoot.models.workspace import Features, Matrix
from surefoot.ops import GluForm, glu
from surefoot.ops.arrays import F32


@dataclass(frozen=True)
class FeedForward:
    """`gate_up` gives the gates, then what they gate."""

    glu: GluForm
    gate_up: Linear
    down: Linear

    def __call__(self, step: Step, x: Features) -> Features:
        """The gated features, ready for `down`."""
        return gated(step, self.glu, step.project(self.gate_up, x, "gate_up"), self.down.matrices)


def gated(step: Step, form: GluForm, gate_up: F32, readers: tuple[Matrix, ...]) -> Features:
    rows, cols = gate_up.shape
    x = step.workspace.features("gated", (rows, cols // 2), readers)
    glu(step.backend, form, gate_up[:, : cols // 2], gate_up[:, cols // 2 :], y=x.floats, quantised=x.quantised)
    return x
