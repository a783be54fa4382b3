"""The feed-forward half of a layer: gated, or a mixture of experts."""

from dataclasses import dataclass
from typing import Protocol

from surefoot.models.linear import ExpertLinear, Linear
from surefoot.models.step import Norm, Step
from surefoot.models.workspace import Features, Matrix
from surefoot.ops import ExpertRows, GluForm, Router, Routes, Scoring, combine, embed, glu, group_by_expert, route
from surefoot.ops.arrays import F32, I64


class Feed(Protocol):
    """What reads the normed stream in the second half of a layer, and adds to the stream."""

    @property
    def reads(self) -> tuple[Linear, ...]:
        """The matrices that read the normed stream."""

    def add_to_stream(self, step: Step, x: Features) -> None:
        """Adds what is made of the normed stream `x`."""


def feed_forward(step: Step, normed: Norm, *feeds: Feed) -> None:
    """Adds what each of the feeds makes of the normed stream."""
    x = step.norm(normed, *(reader for feed in feeds for reader in feed.reads))
    for feed in feeds:
        feed.add_to_stream(step, x)


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward layer."""

    glu: GluForm  # the activation
    gate_up: (
        Linear  # outputs: the gates, then the values that they gate; values alone where the activation has no gates
    )
    down: Linear  # back to the stream
    values_first: bool = False  # the gates come behind the values

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.gate_up,)

    def add_to_stream(self, step: Step, x: Features) -> None:
        step.add_projected(self.down, self(step, x))

    def __call__(self, step: Step, x: Features) -> Features:
        """The gated values, in the form that `down` takes."""
        gate_up = step.project(self.gate_up, x, "gate_up")
        return gated(step, self.glu, gate_up, self.down.matrices, self.values_first)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: each row goes through the experts that the router chooses, and their outputs are summed
    with the router's weights."""

    glu: GluForm  # the activation
    router: Router  # how a row's experts are chosen
    gate: Linear  # the router's matrix, in float32
    gate_up: ExpertLinear  # outputs: as of `FeedForward`
    down: ExpertLinear  # back to the stream
    scales: F32 | None = None  # one per expert, that its weight is multiplied by; None: 1
    choice_bias: F32 | None = None  # one per expert, added to its score for the choice alone; None: 0

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.gate,)

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
        rows = group(step, routes.ids, self.num_experts)
        outputs = self.outputs(step, x.floats, rows)
        combine(step.backend, outputs, rows.places, routes.weights, residual=residual, out=out)

    def outputs(self, step: Step, x: F32, rows: ExpertRows) -> F32:
        """The experts' outputs for rows of x, sorted by expert."""
        gathered = step.floats("gathered", len(rows.rows), x.shape[1])
        embed(step.backend, rows.rows, x, out=gathered)
        gate_up = step.floats("expert gate_up", len(rows.rows), self.gate_up.num_outputs)
        self.gate_up.project(step.backend, step.features("gathered", gathered, self.gate_up), rows.starts, gate_up)
        outputs = step.floats("expert down", len(rows.rows), self.down.num_outputs)
        hidden = gated(step, self.glu, gate_up, self.down.matrices)
        self.down.project(step.backend, hidden, rows.starts, outputs)
        return outputs

    def route(self, step: Step, x: Features) -> Routes:
        shape = (step.rows, self.router.top_k)
        out = Routes(step.workspace.integers("chosen", *shape), step.floats("chosen weights", *shape))
        logits = step.project(self.gate, x, "router")
        return route(step.backend, logits, self.router, self.choice_bias, self.scales, out)


@dataclass(frozen=True)
class GatedExpert:
    """An expert that every row goes through, its output multiplied by the sigmoid of a gate."""

    ffn: FeedForward  # the expert
    gate: Linear  # one output, in float32

    @property
    def reads(self) -> tuple[Linear, ...]:
        return (self.ffn.gate_up, self.gate)

    def add_to_stream(self, step: Step, x: Features) -> None:
        """As a mixture of one expert: its router's weight is the sigmoid, and its rows are in their order."""
        outputs = step.project(self.ffn.down, self.ffn(step, x), "expert down")
        out = Routes(step.workspace.integers("chosen", step.rows, 1), step.floats("chosen weights", step.rows, 1))
        routes = route(step.backend, step.project(self.gate, x, "router"), Router(1, Scoring.SIGMOID), out=out)
        h = step.settle()
        combine(step.backend, outputs, group(step, routes.ids, 1).places, routes.weights, residual=h, out=h)


def group(step: Step, ids: I64, num_experts: int) -> ExpertRows:
    """The rows sorted by the experts that they have chosen."""
    integers, (rows, k) = step.workspace.integers, ids.shape
    out = ExpertRows(
        integers("expert rows", rows * k),
        integers("expert starts", num_experts + 1),
        integers("expert places", rows, k),
    )
    return group_by_expert(step.backend, ids, num_experts, out)


def gated(step: Step, form: GluForm, gate_up: F32, readers: tuple[Matrix, ...], values_first: bool = False) -> Features:
    rows, cols = gate_up.shape
    units = cols // 2 if form.gates else cols
    x = step.workspace.features("gated", (rows, units), readers)
    gate, up = gate_up[:, :units], gate_up[:, units:] if form.gates else None
    if values_first and up is not None:
        gate, up = up, gate
    glu(step.backend, form, gate, up, y=x.floats, quantised=x.quantised)
    return x
