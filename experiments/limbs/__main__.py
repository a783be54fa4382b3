"""How many tile products a weight needs before text shows the difference.

    python -m experiments.limbs MODEL.gguf TEXT CALIBRATION [TOKENS [NTH [WAY...]]]

For the matrices of a GGUF file's layers (the head stays): the share of panels whose noise, in one limb, is within some
percent of the file's own, by format; then products a weight and mean KL from the file in float32, by way (ways.py).
Only every NTH layer is changed: a sample, where time is short.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from experiments.limbs import ways
from experiments.limbs.ways import Limbs, Matrix, Way
from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot.formats import ggml
from surefoot.weights.gguf import GgufFile
from surefoot_compress.assign import HessianFactor
from surefoot_compress.forward import GROUPS, TorchForward, as_tensor, check_family, head_name, layer_weights
from surefoot_compress.run import with_threads
from surefoot_compress.stream import initial_states

CHARACTERS = 50_000  # of each text that are read
EVERY = 2  # of these positions, one is compared
GPTQ = "one limb, GPTQ"
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2)  # of the file's own noise
WAYS: dict[str, Way] = {
    "the file's own noise again": ways.with_noise,
    "one limb": ways.plain,
    "one limb, clipped": ways.clipped,
    "one limb, rows x column groups": ways.column_groups,
    "one limb, blocks of 1024": ways.blocks_of(1024),
    "one limb, blocks of 256": ways.blocks_of(256),
    GPTQ: ways.compensated,
    "one limb, linear in the code": ways.on_codes_grid,
    "high limbs within 5 %": ways.high_limbs_within(0.05),
    "panels within 5 %": ways.panels_within(0.05),
    "panels within 20 %": ways.panels_within(0.2),
    "tiles within 5 %": ways.matrices_within(0.05, weighted=False),
    "tiles within 2 %, inputs count": ways.matrices_within(0.02, weighted=True),
    "tiles within 5 %, inputs count": ways.matrices_within(0.05, weighted=True),
    "tiles within 10 %, inputs count": ways.matrices_within(0.10, weighted=True),
    "three products": ways.three_products,
    "three products, linear": ways.three_linear,
    "three linear, one for 8-bit codes": ways.three_linear_or_one,
}


@dataclass
class Tally:
    """Counts over layers, and the residual stream of one way."""

    states: list[torch.Tensor]
    products: float = 0.0  # tile products of all weights
    weights: int = 0

    def rows(self) -> torch.Tensor:
        return torch.cat(self.states).flatten(0, 1)


@dataclass
class NoiseTally:
    """Panels of one format."""

    weights: list[int] = field(default_factory=list)  # of each panel
    noise: list[float] = field(default_factory=list)  # of one limb over the file's own

    def add(self, matrix: Matrix) -> None:
        noise = ways.panel_noise_by_scales(matrix.groups)
        self.noise.extend(noise.tolist())
        self.weights.extend([matrix.weights.size // len(noise)] * len(noise))

    def line(self) -> str:
        noise, weights = np.array(self.noise), np.array(self.weights)
        shares = [f"{100 * weights[noise <= share].sum() / weights.sum():5.1f}" for share in SHARES]
        return f"{weights.sum() / 1e6:8.1f} M  median {100 * np.median(noise):6.2f} %   within: {' '.join(shares)}"


def read_matrices(
    file: GgufFile,
    number: int,
    weights: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    with_gptq: bool,
) -> Iterator[tuple[str, Matrix]]:
    """The matrices of a layer by name. inputs: of each matrix, on calibration text."""
    for group in GROUPS:
        x = inputs[group[0]].flatten(0, -2)
        hessian = HessianFactor.of((x.T @ x).numpy(), len(x)) if with_gptq else None
        importance = (x**2).mean(dim=0).numpy()
        for name in group:
            info = file.tensors[f"blk.{number}.{name}.weight"]
            raw = np.memmap(file.path, np.uint8, "r", info.offset, (info.shape[0], info.row_bytes))
            groups = ggml.decode(info.type, np.array(raw))
            yield name, Matrix(info.type.name, groups, weights[f"{name}.weight"].numpy(), importance, hessian)


def leave_out_low(x: torch.Tensor, y: torch.Tensor, low: np.ndarray) -> None:
    """Takes low limbs of inputs times low limbs of weights out of y. Inputs have 15 bits and one scale a row."""
    scale = x.abs().amax(dim=-1, keepdim=True) / 16256
    whole = torch.round(x / scale)
    y -= ((whole - 128 * torch.round(whole / 128)) @ torch.from_numpy(low).T) * scale


def run_layer(
    forward: TorchForward, number: int, weights: dict[str, torch.Tensor], limbs: dict[str, Limbs], tally: Tally
) -> None:
    replaced = weights | {f"{name}.weight": torch.from_numpy(one.weights) for name, one in limbs.items()}

    def hook(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
        if name in limbs and (low := limbs[name].low) is not None:
            leave_out_low(x, y, low)

    tally.states = [forward.layer(number, replaced, h, hook) for h in tally.states]
    tally.products += sum(one.products * one.weights.size for one in limbs.values())
    tally.weights += sum(one.weights.size for one in limbs.values())


def divergences(
    file: GgufFile, forward: TorchForward, reference: Tally, tallies: Mapping[str, Tally]
) -> dict[str, torch.Tensor]:
    """KL at the compared positions, in nats, by way."""
    norm, head = as_tensor(file, "output_norm.weight"), as_tensor(file, head_name(file))
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in tallies}
    for rows in torch.arange(0, len(reference.rows()), EVERY).split(32):
        p = torch.log_softmax(forward.logits(reference.rows()[rows], norm, head).double(), -1)
        for name, tally in tallies.items():
            q = torch.log_softmax(forward.logits(tally.rows()[rows], norm, head).double(), -1)
            parts[name].append((p.exp() * (p - q)).sum(-1))
    return {name: torch.cat(part) for name, part in parts.items()}


def read(path: str) -> str:
    with Path(path).open(encoding="utf-8") as file:
        return file.read(CHARACTERS)


@torch.no_grad()
def main(model: str, text: str, calibration: str, tokens: str = "2048", nth: str = "1", *chosen: str) -> None:
    file, tokenizer = open_model(Path(model))
    assert isinstance(file, GgufFile)
    config = check_family(file)
    forward = TorchForward(config)
    start, states = (
        initial_states(file, forward, cut_windows(tokenizer, read(path), min(int(tokens), 512), int(tokens)))
        for path in (text, calibration)
    )
    picked = {name: way for name, way in WAYS.items() if not chosen or name in chosen}
    reference, tallies = Tally(list(start)), {name: Tally(list(start)) for name in picked}
    noise: defaultdict[str, NoiseTally] = defaultdict(NoiseTally)
    for number in range(len(config.layers)):
        weights = layer_weights(file, number)
        inputs: dict[str, torch.Tensor] = {}
        states = [
            forward.layer(number, weights, h, lambda name, x, _, seen=inputs: seen.update({name: x})) for h in states
        ]
        changed = number % int(nth) == 0
        matrices = dict(read_matrices(file, number, weights, inputs, GPTQ in picked)) if changed else {}
        for matrix in matrices.values():
            noise[matrix.kind].add(matrix)
        for name, way in picked.items():
            run_layer(forward, number, weights, {part: way(one) for part, one in matrices.items()}, tallies[name])
        reference.states = [forward.layer(number, weights, h) for h in reference.states]
        print(f"layer {number + 1} of {len(config.layers)}", file=sys.stderr, flush=True)
    print("panels by the noise of their high limb over the file's own; percent within 1, 2, 5, 10, 20 %")
    for kind, panels in noise.items():
        print(f"{kind:8} {panels.line()}")
    for name, kl in divergences(file, forward, reference, tallies).items():
        products, error = tallies[name].products / tallies[name].weights, float(kl.std()) / len(kl) ** 0.5
        print(f"{name:36} {products:5.2f} products   {float(kl.mean()):.5f} +- {error:.5f}")


if __name__ == "__main__":
    with with_threads(1):
        main(*sys.argv[1:])
