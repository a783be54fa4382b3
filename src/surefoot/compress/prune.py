"""Which layers and feed-forward units a model can best do without, by what they do to calibration text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surefoot.compress.forward import Forward, layer_weights
from surefoot.compress.later import CompressError, Tensor, torch
from surefoot.compress.moments import Collector
from surefoot.compress.stream import Windows, states_of
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32, I64
from surefoot.weights import Checkpoint

MULTIPLE = 32  # feed-forward widths stay whole blocks of every format


@dataclass(frozen=True)
class Importance:
    """layer: 1 - cosine between the stream before and after. units: each feed-forward unit's part in the output."""

    layer: float
    units: F32


def importances(checkpoint: Checkpoint, config: ModelConfig, windows: Windows) -> list[Importance]:
    forward, found = Forward(config), []
    with torch.no_grad():
        states = states_of(checkpoint, forward, windows)
        for number in range(len(config.layers)):
            weights, collector = layer_weights(checkpoint, number), Collector()
            after = [forward.layer(number, weights, h, collector) for h in states]
            cosine = torch.nn.functional.cosine_similarity
            near = np.mean([float(cosine(a, b, dim=-1).mean()) for a, b in zip(states, after, strict=True)])
            down = weights["ffn_down.weight"].numpy()
            units = collector.moments()["ffn_down"].importance * (down**2).sum(axis=0)
            found.append(Importance(1 - float(near), units))
            states = after
    return found


@dataclass(frozen=True)
class Cut:
    """Layers that stay, in order, and the feed-forward units that stay in each."""

    layers: tuple[int, ...]
    units: Mapping[int, I64]

    @property
    def ffn(self) -> int:
        return len(next(iter(self.units.values())))


def choose_cut(importance: Sequence[Importance], num_layers: int, ffn: int) -> Cut:
    """The first and last layers always stay: what reads tokens and what writes them has no neighbour like it."""
    total, width = len(importance), len(importance[0].units)
    if not 2 <= num_layers <= total or not 0 < ffn <= width or ffn % MULTIPLE:
        raise CompressError(f"keep 2 to {total} layers, and up to {width} feed-forward units, a multiple of {MULTIPLE}")
    inner = sorted(range(1, total - 1), key=lambda number: -importance[number].layer)[: num_layers - 2]
    layers = tuple(sorted({0, total - 1, *inner}))
    return Cut(layers, {number: np.sort(np.argsort(-importance[number].units)[:ffn]) for number in layers})


def cut_config(config: ModelConfig, cut: Cut) -> ModelConfig:
    return replace(config, layers=tuple(config.layers[number] for number in cut.layers), ffn=cut.ffn)


def cut_weights(checkpoint: Checkpoint, cut: Cut) -> list[dict[str, Tensor]]:
    """The layers that stay, each with the units that stay."""
    made = []
    for number in cut.layers:
        weights, units = layer_weights(checkpoint, number), torch.from_numpy(cut.units[number])
        for name in ("ffn_gate", "ffn_up"):
            weights[f"{name}.weight"] = weights[f"{name}.weight"][units].contiguous()
        weights["ffn_down.weight"] = weights["ffn_down.weight"][:, units].contiguous()
        made.append(weights)
    return made
