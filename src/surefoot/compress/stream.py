"""Walks a model layer by layer over calibration text: one layer in memory, the text's states kept in between."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from surefoot.compress.assign import Carry
from surefoot.compress.forward import MATRICES, Forward, as_tensor, check_family, layer_weights
from surefoot.compress.grids import Format
from surefoot.compress.later import Tensor, torch
from surefoot.compress.layer import Made, Method, floats_of, quantise, quantise_layer
from surefoot.compress.moments import Collector, Moments
from surefoot.compress.progress import Advance
from surefoot.ops.arrays import F32
from surefoot.weights import Checkpoint

ROWS = 2048  # tokens that go through a layer at once
Windows = Sequence[Sequence[int]]


def in_batches(windows: Windows) -> list[Tensor]:
    """Tokens [windows, tokens], some windows at a time, all of one length."""
    count = max(1, ROWS // len(windows[0]))
    return [torch.tensor(windows[start : start + count]) for start in range(0, len(windows), count)]


def states_of(checkpoint: Checkpoint, forward: Forward, windows: Windows) -> list[Tensor]:
    embeddings = as_tensor(checkpoint, "token_embd.weight")
    return [forward.embed(embeddings, batch) for batch in in_batches(windows)]


def quantised_tensors(
    checkpoint: Checkpoint,
    windows: Windows | None,
    formats: Mapping[str, Format],
    method: Method,
    advance: Advance = lambda: None,
    threads: int = 1,
) -> Iterator[tuple[str, Made]]:
    """Every tensor of the checkpoint by its GGUF name, matrices as `formats` (by full name) says.

    Each layer meets the inputs that the layers before it, already replaced, give. Without windows (which only methods
    that need no calibration do without) the text is not run at all.

    No tensor here asks for gradients. torch.no_grad() must not stand around a yield: whoever leaves the walk half way
    would leave his thread without them."""
    config = check_family(checkpoint)
    forward = Forward(config)
    states = states_of(checkpoint, forward, windows) if windows else []
    for number in range(len(config.layers)):
        weights = layer_weights(checkpoint, number)
        moments = layer_moments(forward, number, weights, states)
        arrays = {name: one.numpy() for name, one in weights.items()}
        made = quantise_layer(config, arrays, moments, in_layer(formats, number), method, threads)
        replaced = {name: torch.from_numpy(floats_of(one)) for name, one in made.items()}
        for at, h in enumerate(states):
            states[at] = forward.layer(number, replaced, h)
        yield from ((f"blk.{number}.{name}", one) for name, one in made.items())
        advance()
    norm = as_tensor(checkpoint, "output_norm.weight")
    yield from _outer(checkpoint, formats, method, _final_moments(forward, states, norm))
    advance()


def layer_moments(
    forward: Forward, number: int, weights: Mapping[str, Tensor], states: Sequence[Tensor]
) -> dict[str, Moments]:
    if not states:
        return {}
    collector = Collector()
    for h in states:
        forward.layer(number, weights, h, collector)
    return collector.moments()


def in_layer(formats: Mapping[str, Format], number: int) -> dict[str, Format]:
    names = {name: f"blk.{number}.{name}.weight" for name in MATRICES}
    return {name: formats[full] for name, full in names.items() if full in formats}


def _final_moments(forward: Forward, states: Sequence[Tensor], norm: Tensor) -> Moments | None:
    if not states:
        return None
    rows = torch.cat([forward.norm(h, norm).reshape(-1, h.shape[-1]) for h in states])
    return Moments((rows.T @ rows / len(rows)).numpy(), rows.abs().amax(dim=0).numpy(), len(rows))


def _outer(
    checkpoint: Checkpoint, formats: Mapping[str, Format], method: Method, final: Moments | None
) -> Iterator[tuple[str, Made]]:
    """Embeddings and head. Embeddings are read as they are, so their rows are rounded to nearest; where they are the
    head too, their levels are weighed by what the head meets."""
    tied = "output.weight" not in checkpoint.tensors
    for name in checkpoint.tensors:
        if name.startswith("blk."):
            continue
        values: F32 = np.ascontiguousarray(checkpoint.floats(name))
        if name not in formats:
            yield name, values
        elif name == "token_embd.weight":
            plain = Method("", method.searched and tied, False, None, "")
            yield name, quantise(values, final if tied else None, formats[name], plain)
        else:
            carry = Carry.of(final.second, final.num_rows) if method.carried and final is not None else None
            yield name, quantise(values, final, formats[name], method, carry)
