"""What each matrix loses in each format, in nats of KL at the model's output, from one backward pass.

To second order the divergence that a matrix's error dW makes is half of E[(g' dW x)^2], g being the gradient of the
log-probability of a token drawn from the model's own prediction. With inputs and gradients taken apart (as K-FAC does)
that is tr(G dW H dW') / 2 per token, for any dW: H the second moments of inputs, G those of gradients.

Where the method folds factors in, they are chosen first, for each matrix's middle candidate, and what is measured
are the scaled matrices: their inputs are divided, and the gradients of makers' outputs multiplied, by the same factors.

The pass is streamed as calibration is: forward with the states kept, then back, one layer in memory at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from surefoot.compress.allocate import Option
from surefoot.compress.assign import Carry, nearest
from surefoot.compress.forward import MATRICES, Forward, as_tensor, check_family, head_name, layer_weights
from surefoot.compress.grids import Format
from surefoot.compress.later import Tensor, torch
from surefoot.compress.layer import Method, carries, quantise
from surefoot.compress.moments import Collector, Moments, both
from surefoot.compress.scaling import Choose, scale
from surefoot.compress.stream import Advance, Windows, in_batches
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32
from surefoot.weights import Checkpoint

HEAD_ROWS = 512  # positions on which the head's formats are compared
HEAD_TOKENS = 16384  # of the vocabulary, those that these positions find likeliest: nearly all there is to lose
Candidates = Callable[[str, int, int], Sequence[Format]]  # of a tensor's name, rows and columns


@dataclass
class GradientTap:
    """Keeps each matrix's outputs, whose gradients are there after the backward pass."""

    outputs: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, _: Tensor, y: Tensor) -> None:
        y.retain_grad()
        self.outputs[name] = y


@dataclass(frozen=True)
class Sensitivity:
    """A matrix's G (per token), and its inputs' moments in two halves of the text: codes are chosen by one and judged
    by the other, since GPTQ's errors are two or three times as large on text that it has not seen."""

    gradients: F32
    moments: Moments
    unseen: Moments

    def scaled(self, columns: F32 | None, rows: F32 | None) -> "Sensitivity":
        """Of the matrix with its columns multiplied, so its inputs divided, and its rows (and outputs) divided."""
        gradients = self.gradients if rows is None else self.gradients * np.outer(rows, rows)
        if columns is None:
            return Sensitivity(gradients, self.moments, self.unseen)
        return Sensitivity(gradients, self.moments.scaled(columns), self.unseen.scaled(columns))

    def loss(self, delta: F32) -> float:
        """Of an error of the weights, in nats per token."""
        return 0.5 * float(np.einsum("ij,ij->", self.gradients @ delta, delta @ self.unseen.second, dtype=np.float64))


def measure(
    checkpoint: Checkpoint,
    windows: Windows,
    candidates: Candidates,
    method: Method,
    advance: Advance = lambda what: None,
    threads: int = 1,
    seed: int = 0,
) -> dict[str, list[Option]]:
    """Bytes and loss of every matrix in each of its candidates."""
    config = check_family(checkpoint)
    forward = Forward(config)
    torch.manual_seed(seed)
    states = _forward(checkpoint, forward, windows)
    head = _Head(checkpoint, forward)
    table = {head.name: head.options(states[-1], candidates)}
    gradients = [head.gradient(h) for h in states[-1]]
    num_tokens = sum(h.shape[0] * h.shape[1] for h in states[0])
    for number in reversed(range(len(config.layers))):
        weights = layer_weights(checkpoint, number)
        found, gradients = backward(forward, number, weights, states[number], gradients, num_tokens)
        table |= _layer_options(config, number, weights, found, candidates, method, threads)
        advance(f"layer {number}")
    if "output.weight" in checkpoint.tensors:
        table["token_embd.weight"] = []
    _add_embeddings(checkpoint, in_batches(windows), gradients, candidates, table, config.embedding_scale)
    return table


def _forward(checkpoint: Checkpoint, forward: Forward, windows: Windows) -> list[list[Tensor]]:
    """The streams before each layer, and after the last."""
    with torch.no_grad():
        embeddings = as_tensor(checkpoint, "token_embd.weight")
        states = [[forward.embed(embeddings, batch) for batch in in_batches(windows)]]
        for number in range(len(forward.config.layers)):
            weights = layer_weights(checkpoint, number)
            states.append([forward.layer(number, weights, h) for h in states[-1]])
    return states


def backward(
    forward: Forward,
    number: int,
    weights: Mapping[str, Tensor],
    states: Sequence[Tensor],
    gradients: Sequence[Tensor],
    num_tokens: int,
) -> tuple[dict[str, Sensitivity], list[Tensor]]:
    """The layer's matrices, and the gradients of the stream before it."""
    halves, sums, before = (Collector(), Collector()), dict[str, Tensor](), []
    for turn, (h, gradient) in enumerate(zip(states, gradients, strict=True)):
        kept = GradientTap()
        start = h.detach().requires_grad_()
        forward.layer(number, weights, start, both(halves[turn % 2], kept)).backward(gradient)
        before.append(start.grad)
        for name, y in kept.outputs.items():
            rows = y.grad.reshape(-1, y.shape[-1])
            sums[name] = sums.get(name, 0) + rows.T @ rows
    seen = halves[0].moments()
    unseen = halves[1].moments() if len(states) > 1 else seen
    found = {name: Sensitivity((sums[name] / num_tokens).numpy(), seen[name], unseen[name]) for name in MATRICES}
    return found, before


def _layer_options(
    config: ModelConfig,
    number: int,
    weights: Mapping[str, Tensor],
    found: Mapping[str, Sensitivity],
    candidates: Candidates,
    method: Method,
    threads: int,
) -> dict[str, list[Option]]:
    arrays = {name: one.numpy() for name, one in weights.items()}
    formats = {name: candidates(f"blk.{number}.{name}.weight", *arrays[f"{name}.weight"].shape) for name in found}
    if method.factors is not None:
        arrays, found = _scaled(config, arrays, found, formats, method.factors)

    def options(name: str) -> list[Option]:
        matrix, one = arrays[f"{name}.weight"], found[name]
        return [_option(matrix, one, fmt, method, carry.get(name)) for fmt in formats[name]]

    with ThreadPoolExecutor(threads) as pool:
        carry = carries({name: one.moments for name, one in found.items()}, method, pool)
        made = pool.map(options, found)
        return {f"blk.{number}.{name}.weight": some for name, some in zip(found, made, strict=True)}


def _scaled(
    config: ModelConfig,
    weights: Mapping[str, F32],
    found: Mapping[str, Sensitivity],
    formats: Mapping[str, Sequence[Format]],
    factors: Choose,
) -> tuple[dict[str, F32], dict[str, Sensitivity]]:
    """With the channels' factors for the middle one of each matrix's formats."""
    middle = {name: _middle(some, weights[f"{name}.weight"]) for name, some in formats.items() if some}
    made = scale(config, weights, {name: one.moments for name, one in found.items()}, middle, factors)
    return made.weights, {name: one.scaled(made.columns.get(name), made.rows.get(name)) for name, one in found.items()}


def _middle(formats: Sequence[Format], weights: F32) -> Format:
    return sorted(formats, key=lambda fmt: fmt.nbytes(*weights.shape))[(len(formats) - 1) // 2]


def _option(weights: F32, found: Sensitivity, fmt: Format, method: Method, carry: Carry | None) -> Option:
    made = quantise(weights, found.moments, fmt, method, carry)
    return Option(fmt.name, made.nbytes, found.loss(made.floats() - weights))


@dataclass(frozen=True)
class _Head:
    """The last norm and the head, whose formats are compared by the divergence itself."""

    checkpoint: Checkpoint
    forward: Forward

    @property
    def name(self) -> str:
        return head_name(self.checkpoint)

    def gradient(self, h: Tensor) -> Tensor:
        """Of the log-probability of tokens drawn from the prediction, by the stream; a window at a time."""
        norm, head = as_tensor(self.checkpoint, "output_norm.weight"), as_tensor(self.checkpoint, self.name)
        parts = []
        for window in h.detach().split(1):
            start = window.requires_grad_()
            logprobs = torch.log_softmax(self.forward.logits(start, norm, head), dim=-1)
            logprobs.flatten(0, 1).gather(1, _draw(logprobs.detach().flatten(0, 1))).sum().backward()
            parts.append(start.grad)
        return torch.cat(parts)

    def options(self, states: Sequence[Tensor], candidates: Candidates) -> list[Option]:
        norm, head = as_tensor(self.checkpoint, "output_norm.weight"), as_tensor(self.checkpoint, self.name)
        with torch.no_grad():
            h = torch.cat([one.flatten(0, 1) for one in states])
            x = self.forward.norm(h, norm)
            importance = (x * x).mean(dim=0).numpy() + np.float32(1e-8)
            some = h[:: max(1, len(h) // HEAD_ROWS)][:HEAD_ROWS]
            reference = torch.log_softmax(self.forward.logits(some, norm, head), dim=-1)
            likely = reference.exp().sum(dim=0).topk(min(HEAD_TOKENS, len(head))).indices
            rows, replaced, found = head[likely].numpy(), head.clone(), []
            for fmt in candidates(self.name, *head.shape):
                grid = fmt.fit(rows, importance)
                replaced[likely] = torch.from_numpy(grid.floats(nearest(grid, rows)))
                other = torch.log_softmax(self.forward.logits(some, norm, replaced), dim=-1)
                kl = float((reference.exp() * (reference - other)).sum(dim=-1).mean())
                found.append(Option(fmt.name, fmt.nbytes(*head.shape), max(kl, 0.0)))
        return found


def _draw(logprobs: Tensor) -> Tensor:
    """One token of each row, [rows, 1]. A fifth of torch.multinomial's time."""
    sums = logprobs.exp().cumsum(dim=-1)
    places = torch.rand(len(sums), 1) * sums[:, -1:]
    return torch.searchsorted(sums, places).clamp_(max=sums.shape[1] - 1)


def _add_embeddings(
    checkpoint: Checkpoint,
    batches: Sequence[Tensor],
    gradients: Sequence[Tensor],
    candidates: Candidates,
    table: dict[str, list[Option]],
    scale: float,
) -> None:
    """What an error of the embeddings does to the stream that they begin; with the head's loss where it is tied."""
    name = "token_embd.weight"
    weights = np.ascontiguousarray(checkpoint.floats(name))
    tokens, g = torch.cat([one.flatten() for one in batches]), torch.cat([one.flatten(0, 1) for one in gradients])
    used = np.unique(tokens.numpy())
    place = np.searchsorted(used, tokens.numpy())
    known = {option.format: option.loss for option in table[name]}
    found = []
    for fmt in candidates(name, *weights.shape):
        grid = fmt.fit(weights[used], None)
        delta = grid.floats(nearest(grid, weights[used])) - weights[used]
        moved = (g.numpy() * delta[place] * np.float32(scale)).sum(axis=1, dtype=np.float64)
        loss = 0.5 * float((moved**2).mean()) + known.get(fmt.name, 0.0)
        found.append(Option(fmt.name, fmt.nbytes(*weights.shape), loss))
    table[name] = found


def predicted(table: Mapping[str, Sequence[Option]], formats: Mapping[str, str]) -> float:
    """The sum of losses of a choice of formats."""
    return sum(option.loss for name, some in table.items() for option in some if option.format == formats.get(name))
