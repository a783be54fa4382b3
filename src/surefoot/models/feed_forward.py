"""The feed-forward half of a layer: gated, or a mixture of gated experts."""

from dataclasses import dataclass

from surefoot.models.linear import ExpertLinear, Linear
from surefoot.models.step import Step
from surefoot.models.workspace import Features, Matrix
from surefoot.ops import ExpertRows, GluForm, Router, Routes, combine, embed, glu, group_by_expert, route
from surefoot.ops.arrays import F32, I64


@dataclass(frozen=True)
class FeedForward:
    """A gated feed-forward layer."""

    glu: GluForm  # the gated activation
    gate_up: Linear  # outputs: the gates, then the values that they gate
    down: Linear  # back to the stream

    def __call__(self, step: Step, x: Features) -> Features:
        """The gated values, in the form that `down` takes."""
        return gated(step, self.glu, step.project(self.gate_up, x, "gate_up"), self.down.matrices)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: each row goes through the experts that the router chooses, and their outputs are summed
    with the router's weights."""

    glu: GluForm  # the gated activation
    router: Router  # how a row's experts are chosen
    gate: Linear  # the router's matrix, in float32
    gate_up: ExpertLinear  # outputs: the gates, then the values that they gate
    down: ExpertLinear  # back to the stream
    scales: F32 | None = None  # one per expert, that its weight is multiplied by; None: 1

    @property
    def num_experts(self) -> int:
        return self.gate.num_outputs

    def add_to_stream(self, step: Step, x: Features) -> None:
        """Adds the experts' output for `x` to the stream. `x` must hold floats, for the router."""
        h = step.settle()
        self.apply(step, x, self.route(step, x), residual=h, out=h)

    def apply(self, step: Step, x: Features, routes: Routes, residual: F32 | None, out: F32) -> None:
        """out = the experts' output for `x`, plus the residual. `x` must hold floats, of which rows are gathered."""
        assert x.floats is not None
        rows = self._group(step, routes.ids)
        gathered = step.floats("gathered", len(rows.rows), x.floats.shape[1])
        embed(step.backend, rows.rows, x.floats, out=gathered)
        gate_up = step.floats("expert gate_up", len(rows.rows), self.gate_up.num_outputs)
        self.gate_up.project(step.backend, step.features("gathered", gathered, self.gate_up), rows.starts, gate_up)
        outputs = step.floats("expert down", len(rows.rows), self.down.num_outputs)
        hidden = gated(step, self.glu, gate_up, self.down.matrices)
        self.down.project(step.backend, hidden, rows.starts, outputs)
        combine(step.backend, outputs, rows.places, routes.weights, residual=residual, out=out)

    def route(self, step: Step, x: Features) -> Routes:
        shape = (step.rows, self.router.top_k)
        out = Routes(step.workspace.integers("chosen", *shape), step.floats("chosen weights", *shape))
        logits = step.project(self.gate, x, "router")
        return route(step.backend, logits, self.router, expert_scales=self.scales, out=out)

    def _group(self, step: Step, ids: I64) -> ExpertRows:
        integers, (rows, k) = step.workspace.integers, ids.shape
        out = ExpertRows(
            integers("expert rows", rows * k),
            integers("expert starts", self.num_experts + 1),
            integers("expert places", rows, k),
        )
        return group_by_expert(step.backend, ids, self.num_experts, out)


def gated(step: Step, form: GluForm, gate_up: F32, readers: tuple[Matrix, ...]) -> Features:
    rows, cols = gate_up.shape
    x = step.workspace.features("gated", (rows, cols // 2), readers)
    glu(step.backend, form, gate_up[:, : cols // 2], gate_up[:, cols // 2 :], y=x.floats, quantised=x.quantised)
    return x
