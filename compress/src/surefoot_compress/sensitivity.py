"""Measures the loss of each matrix in each format, in nats of KL at the model's output, from one backward pass.

To second order, the divergence caused by a matrix's error dW is half of E[f^2]. Here f is how much dW changes the
log-probability of a token sampled from the model's own prediction: the sum of g' dW x over the positions of its window,
g being the gradients of the matrix's outputs. This does not assume that positions, or inputs and gradients, are
independent. They are not: the largest inputs meet the smallest gradients, and an error in values is the same at every
position.

If the method scales channels, factors are chosen first, for each matrix's middle candidate, and the scaled matrices are
measured: their inputs are divided, and the gradients of their producers' outputs multiplied, by the same factors.

The pass is streamed as calibration is: forward with the states kept, then backward, one layer in memory at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from surefoot.evaluate.windows import Windows
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32
from surefoot.weights import Checkpoint
from surefoot_compress.allocate import FormatOption
from surefoot_compress.assign import HessianFactor, nearest
from surefoot_compress.forward import GROUPS, MATRICES, TorchForward, as_tensor, check_family, head_name, layer_weights
from surefoot_compress.grids import Format
from surefoot_compress.layer import map_matrices, quantise
from surefoot_compress.lazy_torch import Tensor, torch
from surefoot_compress.loss_cache import CachePart, LossTable, no_cache
from surefoot_compress.methods import Method
from surefoot_compress.moments import Moments
from surefoot_compress.progress import Advance
from surefoot_compress.scaling import ChooseFactors, scale_layer
from surefoot_compress.stream import in_batches, layer_moments

DRAWS = 4  # tokens sampled at each position
HEAD_ROWS = 512  # positions that the head's formats are compared at
HEAD_TOKENS = 16384  # the likeliest tokens at these positions, which carry nearly all of the loss
Candidates = Callable[[str, int, int], Sequence[Format]]  # candidate formats, by a tensor's name, rows and columns


@dataclass
class ActivationRecorder:
    """A hook that keeps each matrix's inputs and outputs."""

    inputs: dict[str, Tensor] = field(default_factory=dict)  # by matrix
    outputs: dict[str, Tensor] = field(default_factory=dict)  # by matrix

    def __call__(self, name: str, x: Tensor, y: Tensor) -> None:
        self.inputs[name], self.outputs[name] = x.detach(), y


@dataclass(frozen=True)
class Sensitivity:
    """What is needed to predict a matrix's loss from its error. Codes are assigned with the moments of one half of the
    text and judged on the other half, since GPTQ's errors are two or three times as large on unseen text."""

    moments: Moments  # of the inputs on the half that codes are assigned on
    inputs: F32  # [windows, tokens, k], of the half that codes are judged on
    gradients: F32  # [draws, windows, tokens, n] of the outputs

    def scaled(self, columns: F32 | None, rows: F32 | None) -> "Sensitivity":
        """The sensitivity after the matrix's columns were multiplied, so that its inputs are divided, and its rows (and
        outputs) were divided."""
        gradients = self.gradients if rows is None else self.gradients * rows
        if columns is None:
            return Sensitivity(self.moments, self.inputs, gradients)
        return Sensitivity(self.moments.scaled(columns), self.inputs / columns, gradients)

    def logprob_changes(self, delta: F32) -> F32:
        """How much the error `delta` of the weights changes log-probabilities through each position,
        [draws, windows, tokens]."""
        return _dot(self.gradients, self.inputs @ delta.T)


def _dot(gradients: F32, changes: F32) -> F32:
    products: F32 = np.einsum("dwtn,wtn->dwt", gradients, changes)
    return products


def losses(changes: Sequence[F32]) -> list[float]:
    """The loss of each of a matrix's formats in nats per token, from the log-probability changes of each.

    The loss is the square of a window's sum, but windows are few. So formats are compared by the squares at positions,
    which are many; the mean ratio of windows' squares to positions' squares then scales all formats alike."""
    by_position = [float(np.square(change, dtype=np.float64).mean()) for change in changes]
    by_window = [float(np.square(each.sum(axis=-1, dtype=np.float64)).mean()) / each.shape[-1] for each in changes]
    ratios = [window / position for window, position in zip(by_window, by_position, strict=True) if position > 0]
    ratio = sum(ratios) / max(1, len(ratios))
    return [0.5 * ratio * position for position in by_position]


def measure_losses(
    checkpoint: Checkpoint,
    windows: Windows,
    candidates: Candidates,
    method: Method,
    advance: Advance = lambda: None,
    threads: int = 1,
    cache: CachePart = no_cache,
) -> LossTable:
    """Bytes and loss of every matrix in each of its candidate formats. For layers in the cache only the gradients are
    computed again, which is a fraction of the work."""
    config = check_family(checkpoint)
    forward = TorchForward(config)
    torch.manual_seed(0)
    states = _forward(checkpoint, forward, windows)
    head = _OutputHead(checkpoint, forward)
    table = cache("head", partial(head.options, states[-1], candidates))
    gradients = [head.gradients(h) for h in _halves(states[-1])[1]]
    for number in reversed(range(len(config.layers))):
        weights = layer_weights(checkpoint, number)
        sensitivities, gradients = backward(forward, number, weights, states[number], gradients)
        options = partial(_layer_options, config, number, weights, sensitivities, candidates, method, threads)
        table |= cache(f"layer {number}", options)
        advance()
    if "output.weight" in checkpoint.tensors:
        table["token_embd.weight"] = []
    _add_embeddings(checkpoint, _halves(in_batches(windows))[1], gradients, candidates, table, config.embedding_scale)
    return table


def _halves(batches: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The half of the text that codes are assigned on, and the half that they are judged on. They are the same if there
    is only one batch."""
    return batches[0::2], batches[1::2] or batches


def _forward(checkpoint: Checkpoint, forward: TorchForward, windows: Windows) -> list[list[Tensor]]:
    """The residual streams before each layer and after the last, by batch."""
    with torch.no_grad():
        embeddings = as_tensor(checkpoint, "token_embd.weight")
        states = [[forward.embed(embeddings, batch) for batch in in_batches(windows)]]
        for number in range(len(forward.config.layers)):
            weights = layer_weights(checkpoint, number)
            states.append([forward.layer(number, weights, h) for h in states[-1]])
    return states


def backward(
    forward: TorchForward,
    number: int,
    weights: Mapping[str, Tensor],
    states: Sequence[Tensor],
    gradients: Sequence[Tensor],
) -> tuple[dict[str, Sensitivity], list[Tensor]]:
    """The sensitivities of the layer's matrices, and the gradients of the stream before it from those after it.
    Gradients are [draws, windows, tokens, n]."""
    seen, unseen = _halves(states)
    with torch.no_grad():
        moments = layer_moments(forward, number, weights, seen)
    recorders, batches = [], []
    for h, gradient in zip(unseen, gradients, strict=True):
        recorders.append(ActivationRecorder())
        start = h.detach().requires_grad_()
        after = forward.layer(number, weights, start, recorders[-1])
        sources = [start, *(recorders[-1].outputs[name] for name in MATRICES)]
        draws = [torch.autograd.grad(after, sources, draw, retain_graph=True) for draw in gradient]
        batches.append([torch.stack(source) for source in zip(*draws, strict=True)])
        recorders[-1].outputs.clear()
    inputs = {group: torch.cat([recorder.inputs[group[0]] for recorder in recorders]).numpy() for group in GROUPS}
    shared = {name: inputs[group] for group in GROUPS for name in group}
    before, *outputs = zip(*batches, strict=True)
    of_outputs = zip(MATRICES, (torch.cat(batch, dim=1).numpy() for batch in outputs), strict=True)
    return {name: Sensitivity(moments[name], shared[name], slope) for name, slope in of_outputs}, list(before)


def _layer_options(
    config: ModelConfig,
    number: int,
    weights: Mapping[str, Tensor],
    sensitivities: Mapping[str, Sensitivity],
    candidates: Candidates,
    method: Method,
    threads: int,
) -> LossTable:
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    names = {name: f"blk.{number}.{name}.weight" for name in sensitivities}
    formats = {name: candidates(full, *arrays[f"{name}.weight"].shape) for name, full in names.items()}
    if method.factors is not None:
        arrays, sensitivities = _scaled(config, arrays, sensitivities, formats, method.factors, threads)

    def options(name: str, hessian: HessianFactor | None) -> list[FormatOption]:
        return _options(arrays[f"{name}.weight"], sensitivities[name], formats[name], method, hessian)

    table = map_matrices(options, sensitivities, _moments(sensitivities), method, threads)
    return {names[name]: matrix_options for name, matrix_options in table.items()}


def _moments(sensitivities: Mapping[str, Sensitivity]) -> dict[str, Moments]:
    return {name: sensitivity.moments for name, sensitivity in sensitivities.items()}


def _scaled(
    config: ModelConfig,
    weights: Mapping[str, F32],
    sensitivities: Mapping[str, Sensitivity],
    formats: Mapping[str, Sequence[Format]],
    factors: ChooseFactors,
    threads: int,
) -> tuple[dict[str, F32], dict[str, Sensitivity]]:
    """Weights and sensitivities with channels scaled for the middle one of each matrix's formats."""
    middle = {name: _middle(choice, weights[f"{name}.weight"]) for name, choice in formats.items() if choice}
    layer = scale_layer(config, weights, _moments(sensitivities), middle, factors, threads)
    return layer.weights, {
        name: sensitivity.scaled(layer.columns.get(name), layer.rows.get(name))
        for name, sensitivity in sensitivities.items()
    }


def _middle(formats: Sequence[Format], weights: F32) -> Format:
    """The format of median size."""
    return sorted(formats, key=lambda fmt: fmt.nbytes(*weights.shape))[(len(formats) - 1) // 2]


def _options(
    weights: F32, sensitivity: Sensitivity, formats: Sequence[Format], method: Method, hessian: HessianFactor | None
) -> list[FormatOption]:
    matrices = [quantise(weights, sensitivity.moments, fmt, method, hessian) for fmt in formats]
    lost = losses([sensitivity.logprob_changes(matrix.floats() - weights) for matrix in matrices])
    return [FormatOption(matrix.format.name, matrix.nbytes, loss) for matrix, loss in zip(matrices, lost, strict=True)]


@dataclass(frozen=True)
class _OutputHead:
    """The last norm and the output head. The head's formats are compared by the divergence itself."""

    checkpoint: Checkpoint  # that holds them
    forward: TorchForward  # the model's arithmetic

    @property
    def name(self) -> str:
        return head_name(self.checkpoint)

    def gradients(self, h: Tensor) -> Tensor:
        """Gradients of the log-probabilities of sampled tokens by the stream, one window at a time."""
        norm, head = as_tensor(self.checkpoint, "output_norm.weight"), as_tensor(self.checkpoint, self.name)
        windows = []
        for window in h.detach().split(1):
            start = window.requires_grad_()
            logprobs = torch.log_softmax(self.forward.logits(start, norm, head), dim=-1).flatten(0, 1)
            sampled = [logprobs.gather(1, _sample(logprobs.detach())).sum() for _ in range(DRAWS)]
            windows.append(torch.stack([torch.autograd.grad(total, start, retain_graph=True)[0] for total in sampled]))
        return torch.cat(windows, dim=1)

    def options(self, states: Sequence[Tensor], candidates: Candidates) -> LossTable:
        norm, head = as_tensor(self.checkpoint, "output_norm.weight"), as_tensor(self.checkpoint, self.name)
        with torch.no_grad():
            h = torch.cat([batch.flatten(0, 1) for batch in states])
            x = self.forward.norm(h, norm)
            importance = (x * x).mean(dim=0).numpy() + np.float32(1e-8)
            sample = h[:: max(1, len(h) // HEAD_ROWS)][:HEAD_ROWS]
            reference = torch.log_softmax(self.forward.logits(sample, norm, head), dim=-1)
            likely = reference.exp().sum(dim=0).topk(min(HEAD_TOKENS, len(head))).indices
            rows, replaced, options = head[likely].numpy(), head.clone(), []
            for fmt in candidates(self.name, *head.shape):
                grid = fmt.fit(rows, importance)
                replaced[likely] = torch.from_numpy(grid.floats(nearest(grid, rows)))
                quantised = torch.log_softmax(self.forward.logits(sample, norm, replaced), dim=-1)
                kl = float((reference.exp() * (reference - quantised)).sum(dim=-1).mean())
                options.append(FormatOption(fmt.name, fmt.nbytes(*head.shape), max(kl, 0.0)))
        return {self.name: options}


def _sample(logprobs: Tensor) -> Tensor:
    """A token sampled from each row, [rows, 1]. Takes a fifth of torch.multinomial's time."""
    sums = logprobs.exp().cumsum(dim=-1)
    targets = torch.rand(len(sums), 1) * sums[:, -1:]
    return torch.searchsorted(sums, targets).clamp_(max=sums.shape[1] - 1)


def _add_embeddings(
    checkpoint: Checkpoint,
    batches: Sequence[Tensor],
    gradients: Sequence[Tensor],
    candidates: Candidates,
    table: LossTable,
    scale: float,
) -> None:
    """Adds to the table what errors of the embeddings cost. If they are tied to the head, the head's loss is added."""
    name = "token_embd.weight"
    weights = np.ascontiguousarray(checkpoint.floats(name))
    tokens, slopes = torch.cat(list(batches)).numpy(), torch.cat(list(gradients), dim=1).numpy()
    used = np.unique(tokens)
    rows = np.searchsorted(used, tokens)
    of_head = {option.format: option.loss for option in table[name]}
    formats = candidates(name, *weights.shape)
    changes = []
    for fmt in formats:
        grid = fmt.fit(weights[used], None)
        delta = grid.floats(nearest(grid, weights[used])) - weights[used]
        changes.append(_dot(slopes, delta[rows] * np.float32(scale)))
    table[name] = [
        FormatOption(fmt.name, fmt.nbytes(*weights.shape), loss + of_head.get(fmt.name, 0.0))
        for fmt, loss in zip(formats, losses(changes), strict=True)
    ]


def predicted_loss(table: Mapping[str, Sequence[FormatOption]], formats: Mapping[str, str]) -> float:
    """The sum of the losses of the chosen formats."""
    return sum(
        option.loss for name, options in table.items() for option in options if option.format == formats.get(name)
    )
