"""Prunes a model: finds the layers and feed-forward units that change calibration text least, and removes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from surefoot.evaluate.windows import Windows
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32, I64
from surefoot.weights import Checkpoint
from surefoot_compress.errors import CompressError
from surefoot_compress.forward import TorchForward, layer_weights
from surefoot_compress.lazy_torch import Tensor, torch
from surefoot_compress.moments import MomentsCollector
from surefoot_compress.stream import initial_states

MULTIPLE = 32  # of feed-forward widths: whole blocks of every format


@dataclass(frozen=True)
class Importance:
    """How much a layer and its feed-forward units change the residual stream."""

    layer: float  # 1 - cosine similarity of the stream before and after the layer
    units: F32  # [ffn], each unit's mean square contribution to the feed-forward output


def importances(checkpoint: Checkpoint, config: ModelConfig, windows: Windows) -> list[Importance]:
    """The importance of each layer, in order, measured on the windows."""
    forward, layers = TorchForward(config), []
    with torch.no_grad():
        states = initial_states(checkpoint, forward, windows)
        for number in range(len(config.layers)):
            weights, collector = layer_weights(checkpoint, number), MomentsCollector()
            after = [forward.layer(number, weights, h, collector) for h in states]
            cosine = torch.nn.functional.cosine_similarity
            similarity = np.mean([float(cosine(a, b, dim=-1).mean()) for a, b in zip(states, after, strict=True)])
            down = weights["ffn_down.weight"].numpy()
            units = collector.moments()["ffn_down"].importance * (down**2).sum(axis=0)
            layers.append(Importance(1 - float(similarity), units))
            states = after
    return layers


@dataclass(frozen=True)
class Pruning:
    """What a pruned model keeps."""

    layers: tuple[int, ...]  # in order
    units: Mapping[int, I64]  # feed-forward units, ascending, by layer

    @property
    def ffn(self) -> int:
        return len(next(iter(self.units.values())))


def choose_pruning(importance: Sequence[Importance], num_layers: int, ffn: int) -> Pruning:
    """Keeps the most important layers and units. The first and last layers always stay: no other does their work."""
    total, width = len(importance), len(importance[0].units)
    if not 2 <= num_layers <= total or not 0 < ffn <= width or ffn % MULTIPLE:
        raise CompressError(f"keep 2 to {total} layers, and up to {width} feed-forward units, a multiple of {MULTIPLE}")
    inner = sorted(range(1, total - 1), key=lambda number: -importance[number].layer)[: num_layers - 2]
    layers = tuple(sorted({0, total - 1, *inner}))
    return Pruning(layers, {number: np.sort(np.argsort(-importance[number].units)[:ffn]) for number in layers})


def pruned_config(config: ModelConfig, pruning: Pruning) -> ModelConfig:
    return replace(config, layers=tuple(config.layers[number] for number in pruning.layers), ffn=pruning.ffn)


def pruned_weights(checkpoint: Checkpoint, pruning: Pruning) -> list[dict[str, Tensor]]:
    """The tensors of each layer that stays, with the feed-forward units that stay."""
    layers = []
    for number in pruning.layers:
        weights, units = layer_weights(checkpoint, number), torch.from_numpy(pruning.units[number])
        for name in ("ffn_gate", "ffn_up"):
            weights[f"{name}.weight"] = weights[f"{name}.weight"][units].contiguous()
        weights["ffn_down.weight"] = weights["ffn_down.weight"][:, units].contiguous()
        layers.append(weights)
    return layers
