"""What each matrix loses in each format, in nats of KL at the model's output, from one backward pass.

To second order the divergence that a matrix's error dW makes is half of E[f^2], f being how much dW changes the
log-probability of a token drawn from the model's own prediction: the sum of g' dW x over the places of its window, g
the gradients of the matrix's outputs. That needs neither places nor inputs and gradients to be independent, which they
are not: the largest inputs meet the smallest gradients, and an error of values is the same at every place.

Where the method folds factors in, they are chosen first, for each matrix's middle candidate, and what is measured
are the scaled matrices: their inputs are divided, and the gradients of makers' outputs multiplied, by the same factors.

The pass is streamed as calibration is: forward with the states kept, then back, one layer in memory at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from surefoot.compress.allocate import Option
from surefoot.compress.assign import Carry, nearest
from surefoot.compress.forward import GROUPS, MATRICES, Forward, as_tensor, check_family, head_name, layer_weights
from surefoot.compress.grids import Format
from surefoot.compress.later import Tensor, torch
from surefoot.compress.layer import Method, each_matrix, quantise
from surefoot.compress.losses import Keep, Table, keep_nothing
from surefoot.compress.moments import Moments
from surefoot.compress.progress import Advance
from surefoot.compress.scaling import Choose, scale
from surefoot.compress.stream import Windows, in_batches, layer_moments
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32
from surefoot.weights import Checkpoint

DRAWS = 4  # of a token at each place: each window gives so many squares
HEAD_ROWS = 512  # positions on which the head's formats are compared
HEAD_TOKENS = 16384  # of the vocabulary, those that these positions find likeliest: nearly all there is to lose
Candidates = Callable[[str, int, int], Sequence[Format]]  # of a tensor's name, rows and columns


@dataclass
class Tap:
    """Keeps each matrix's inputs and outputs."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, x: Tensor, y: Tensor) -> None:
        self.inputs[name], self.outputs[name] = x.detach(), y


@dataclass(frozen=True)
class Sensitivity:
    """Of a matrix. Codes are chosen by the moments of one half of the text and judged by the other, since GPTQ's errors
    are two or three times as large on text that it has not seen."""

    moments: Moments
    inputs: F32  # [windows, tokens, k]
    gradients: F32  # [draws, windows, tokens, n] of the outputs

    def scaled(self, columns: F32 | None, rows: F32 | None) -> "Sensitivity":
        """Of the matrix with its columns multiplied, so its inputs divided, and its rows (and outputs) divided."""
        gradients = self.gradients if rows is None else self.gradients * rows
        if columns is None:
            return Sensitivity(self.moments, self.inputs, gradients)
        return Sensitivity(self.moments.scaled(columns), self.inputs / columns, gradients)

    def felt(self, delta: F32) -> F32:
        """What an error of the weights changes log-probabilities by through each place, [draws, windows, tokens]."""
        return _dot(self.gradients, self.inputs @ delta.T)


def _dot(gradients: F32, moved: F32) -> F32:
    found: F32 = np.einsum("dwtn,wtn->dwt", gradients, moved)
    return found


def losses(felt: Sequence[F32]) -> list[float]:
    """Of one matrix's formats, in nats per token.

    What counts are squares of windows' sums, but those are few. So formats are compared by their places' squares, which
    are many, and by how much windows' are more is one ratio for all of them."""
    by_place = [float(np.square(one, dtype=np.float64).mean()) for one in felt]
    by_window = [float(np.square(one.sum(axis=-1, dtype=np.float64)).mean()) / one.shape[-1] for one in felt]
    ratios = [window / place for window, place in zip(by_window, by_place, strict=True) if place > 0]
    together = sum(ratios) / max(1, len(ratios))
    return [0.5 * together * place for place in by_place]


def measure(
    checkpoint: Checkpoint,
    windows: Windows,
    candidates: Candidates,
    method: Method,
    advance: Advance = lambda: None,
    threads: int = 1,
    keep: Keep = keep_nothing,
    seed: int = 0,
) -> Table:
    """Bytes and loss of every matrix in each of its candidates. Of layers that are kept the gradients alone are made
    again, which is a fraction of the work."""
    config = check_family(checkpoint)
    forward = Forward(config)
    torch.manual_seed(seed)
    states = _forward(checkpoint, forward, windows)
    head = _Head(checkpoint, forward)
    table = keep("head", partial(head.options, states[-1], candidates))
    gradients = [head.gradients(h) for h in _halves(states[-1])[1]]
    for number in reversed(range(len(config.layers))):
        weights = layer_weights(checkpoint, number)
        found, gradients = backward(forward, number, weights, states[number], gradients)
        options = partial(_layer_options, config, number, weights, found, candidates, method, threads)
        table |= keep(f"layer {number}", options)
        advance()
    if "output.weight" in checkpoint.tensors:
        table["token_embd.weight"] = []
    _add_embeddings(checkpoint, _halves(in_batches(windows))[1], gradients, candidates, table, config.embedding_scale)
    return table


def _halves(batches: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The text that codes are chosen by, and that they are judged by; the same if there is no more than one batch."""
    return batches[0::2], batches[1::2] or batches


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
) -> tuple[dict[str, Sensitivity], list[Tensor]]:
    """The layer's matrices, and the gradients of the stream before it; gradients are [draws, windows, tokens, n]."""
    seen, unseen = _halves(states)
    with torch.no_grad():
        moments = layer_moments(forward, number, weights, seen)
    taps, found = [], []
    for h, gradient in zip(unseen, gradients, strict=True):
        taps.append(Tap())
        start = h.detach().requires_grad_()
        after = forward.layer(number, weights, start, taps[-1])
        wanted = [start, *(taps[-1].outputs[name] for name in MATRICES)]
        draws = [torch.autograd.grad(after, wanted, one, retain_graph=True) for one in gradient]
        found.append([torch.stack(one) for one in zip(*draws, strict=True)])
        taps[-1].outputs.clear()
    inputs = {group: torch.cat([one.inputs[group[0]] for one in taps]).numpy() for group in GROUPS}
    shared = {name: inputs[group] for group in GROUPS for name in group}
    before, *outputs = zip(*found, strict=True)
    slopes = (torch.cat(one, dim=1).numpy() for one in outputs)
    return {
        name: Sensitivity(moments[name], shared[name], slope) for name, slope in zip(MATRICES, slopes, strict=True)
    }, list(before)


def _layer_options(
    config: ModelConfig,
    number: int,
    weights: Mapping[str, Tensor],
    found: Mapping[str, Sensitivity],
    candidates: Candidates,
    method: Method,
    threads: int,
) -> Table:
    arrays = {name: one.numpy() for name, one in weights.items()}
    formats = {name: candidates(f"blk.{number}.{name}.weight", *arrays[f"{name}.weight"].shape) for name in found}
    if method.factors is not None:
        arrays, found = _scaled(config, arrays, found, formats, method.factors, threads)

    def options(name: str, carry: Carry | None) -> list[Option]:
        return _options(arrays[f"{name}.weight"], found[name], formats[name], method, carry)

    made = each_matrix(options, found, {name: one.moments for name, one in found.items()}, method, threads)
    return {f"blk.{number}.{name}.weight": some for name, some in made.items()}


def _scaled(
    config: ModelConfig,
    weights: Mapping[str, F32],
    found: Mapping[str, Sensitivity],
    formats: Mapping[str, Sequence[Format]],
    factors: Choose,
    threads: int,
) -> tuple[dict[str, F32], dict[str, Sensitivity]]:
    """With the channels' factors for the middle one of each matrix's formats."""
    middle = {name: _middle(some, weights[f"{name}.weight"]) for name, some in formats.items() if some}
    made = scale(config, weights, {name: one.moments for name, one in found.items()}, middle, factors, threads)
    return made.weights, {name: one.scaled(made.columns.get(name), made.rows.get(name)) for name, one in found.items()}


def _middle(formats: Sequence[Format], weights: F32) -> Format:
    return sorted(formats, key=lambda fmt: fmt.nbytes(*weights.shape))[(len(formats) - 1) // 2]


def _options(
    weights: F32, found: Sensitivity, formats: Sequence[Format], method: Method, carry: Carry | None
) -> list[Option]:
    made = [quantise(weights, found.moments, fmt, method, carry) for fmt in formats]
    lost = losses([found.felt(one.floats() - weights) for one in made])
    return [Option(one.format.name, one.nbytes, loss) for one, loss in zip(made, lost, strict=True)]


@dataclass(frozen=True)
class _Head:
    """The last norm and the head, whose formats are compared by the divergence itself."""

    checkpoint: Checkpoint
    forward: Forward

    @property
    def name(self) -> str:
        return head_name(self.checkpoint)

    def gradients(self, h: Tensor) -> Tensor:
        """Of the log-probability of tokens drawn from the prediction, by the stream; a window at a time."""
        norm, head = as_tensor(self.checkpoint, "output_norm.weight"), as_tensor(self.checkpoint, self.name)
        windows = []
        for window in h.detach().split(1):
            start = window.requires_grad_()
            logprobs = torch.log_softmax(self.forward.logits(start, norm, head), dim=-1).flatten(0, 1)
            drawn = [logprobs.gather(1, _draw(logprobs.detach())).sum() for _ in range(DRAWS)]
            windows.append(torch.stack([torch.autograd.grad(one, start, retain_graph=True)[0] for one in drawn]))
        return torch.cat(windows, dim=1)

    def options(self, states: Sequence[Tensor], candidates: Candidates) -> Table:
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
        return {self.name: found}


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
    table: Table,
    scale: float,
) -> None:
    """What an error of the embeddings does to the stream that they begin; with the head's loss where it is tied."""
    name = "token_embd.weight"
    weights = np.ascontiguousarray(checkpoint.floats(name))
    tokens, slopes = torch.cat(list(batches)).numpy(), torch.cat(list(gradients), dim=1).numpy()
    used = np.unique(tokens)
    place = np.searchsorted(used, tokens)
    known = {option.format: option.loss for option in table[name]}
    formats = candidates(name, *weights.shape)
    felt = []
    for fmt in formats:
        grid = fmt.fit(weights[used], None)
        delta = grid.floats(nearest(grid, weights[used])) - weights[used]
        felt.append(_dot(slopes, delta[place] * np.float32(scale)))
    table[name] = [
        Option(fmt.name, fmt.nbytes(*weights.shape), loss + known.get(fmt.name, 0.0))
        for fmt, loss in zip(formats, losses(felt), strict=True)
    ]


def predicted(table: Mapping[str, Sequence[Option]], formats: Mapping[str, str]) -> float:
    """The sum of losses of a choice of formats."""
    return sum(option.loss for name, some in table.items() for option in some if option.format == formats.get(name))
