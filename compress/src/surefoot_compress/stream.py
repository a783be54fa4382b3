"""Quantises a model layer by layer over calibration text. One layer is in memory at a time; the text's residual stream
is kept between layers."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from surefoot.evaluate.windows import Windows
from surefoot.ops.arrays import F32
from surefoot.weights import Checkpoint
from surefoot_compress.assign import HessianFactor
from surefoot_compress.forward import MATRICES, TorchForward, as_tensor, check_family, layer_weights
from surefoot_compress.grids import Format
from surefoot_compress.layer import CompressedTensor, floats_of, quantise, quantise_layer
from surefoot_compress.lazy_torch import Tensor, torch
from surefoot_compress.methods import Method
from surefoot_compress.moments import Moments, MomentsCollector
from surefoot_compress.progress import Advance

ROWS = 2048  # tokens that go through a layer at once


def in_batches(windows: Windows) -> list[Tensor]:
    """Batches of windows, [windows, tokens] each. All windows have the same length."""
    count = max(1, ROWS // len(windows[0]))
    return [torch.tensor(windows[start : start + count]) for start in range(0, len(windows), count)]


def initial_states(checkpoint: Checkpoint, forward: TorchForward, windows: Windows) -> list[Tensor]:
    """The residual stream before the first layer, by batch."""
    embeddings = as_tensor(checkpoint, "token_embd.weight")
    return [forward.embed(embeddings, batch) for batch in in_batches(windows)]


def quantised_tensors(
    checkpoint: Checkpoint,
    windows: Windows | None,
    formats: Mapping[str, Format],
    method: Method,
    advance: Advance = lambda: None,
    threads: int = 1,
) -> Iterator[tuple[str, CompressedTensor]]:
    """Every tensor of the checkpoint by its GGUF name; matrices that `formats` names (in full) are quantised.

    Each layer is calibrated on the outputs of the layers before it, already quantised. `windows` may be None for
    methods that need no calibration: then no text is run.

    No tensor here requires gradients, so torch.no_grad() is not needed. It must not stand around a yield: a caller that
    drops the generator half way would be left with gradients switched off in its thread."""
    config = check_family(checkpoint)
    forward = TorchForward(config)
    states = initial_states(checkpoint, forward, windows) if windows else []
    for number in range(len(config.layers)):
        weights = layer_weights(checkpoint, number)
        moments = layer_moments(forward, number, weights, states)
        arrays = {name: tensor.numpy() for name, tensor in weights.items()}
        tensors = quantise_layer(config, arrays, moments, in_layer(formats, number), method, threads)
        replaced = {name: torch.from_numpy(floats_of(tensor)) for name, tensor in tensors.items()}
        for i, h in enumerate(states):
            states[i] = forward.layer(number, replaced, h)
        yield from ((f"blk.{number}.{name}", tensor) for name, tensor in tensors.items())
        advance()
    norm = as_tensor(checkpoint, "output_norm.weight")
    yield from _outer(checkpoint, formats, method, _final_moments(forward, states, norm))
    advance()


def layer_moments(
    forward: TorchForward, number: int, weights: Mapping[str, Tensor], states: Sequence[Tensor]
) -> dict[str, Moments]:
    """Moments of the layer's inputs by matrix; empty without states."""
    if not states:
        return {}
    collector = MomentsCollector()
    for h in states:
        forward.layer(number, weights, h, collector)
    return collector.moments()


def in_layer(formats: Mapping[str, Format], number: int) -> dict[str, Format]:
    """The formats of one layer's matrices, by name within the layer."""
    names = {name: f"blk.{number}.{name}.weight" for name in MATRICES}
    return {name: formats[full] for name, full in names.items() if full in formats}


def _final_moments(forward: TorchForward, states: Sequence[Tensor], norm: Tensor) -> Moments | None:
    if not states:
        return None
    rows = torch.cat([forward.norm(h, norm).reshape(-1, h.shape[-1]) for h in states])
    return Moments((rows.T @ rows / len(rows)).numpy(), rows.abs().amax(dim=0).numpy(), len(rows))


def _outer(
    checkpoint: Checkpoint, formats: Mapping[str, Format], method: Method, final: Moments | None
) -> Iterator[tuple[str, CompressedTensor]]:
    """The tensors outside layers: norms stay in float, embeddings and head are quantised.

    Embeddings are read row by row, not multiplied, so they are rounded to nearest. If they are tied to the head, their
    scales are searched with the head's inputs as weights."""
    tied = "output.weight" not in checkpoint.tensors
    for name in checkpoint.tensors:
        if name.startswith("blk."):
            continue
        values: F32 = np.ascontiguousarray(checkpoint.floats(name))
        if name not in formats:
            yield name, values
        elif name == "token_embd.weight":
            rounding = Method("", method.search_scales and tied, False, None, "")
            yield name, quantise(values, final if tied else None, formats[name], rounding)
        else:
            hessian = HessianFactor.of(final.second, final.num_rows) if method.gptq and final is not None else None
            yield name, quantise(values, final, formats[name], method, hessian)
