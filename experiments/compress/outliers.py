"""What int8 activations (one scale a row) cost a model's most outlier-heavy inputs, plain, smoothed and rotated.

python -m experiments.compress.outliers MODEL.gguf TEXT.txt
"""

import sys
from pathlib import Path

import torch

from experiments.compress.rotation import int8_error, rotate
from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot_compress.forward import GROUPS, TorchForward, check_family, layer_weights
from surefoot_compress.grids import IntFormat
from surefoot_compress.moments import Moments
from surefoot_compress.scaling import smoothquant
from surefoot_compress.stream import initial_states

NUM_TOKENS, CONTEXT = 512, 256


@torch.no_grad()
def main(model: Path, text: Path) -> None:
    torch.set_num_threads(1)
    checkpoint, tokenizer = open_model(model)
    config = check_family(checkpoint)
    forward = TorchForward(config)
    states = initial_states(checkpoint, forward, cut_windows(tokenizer, text.read_text(), CONTEXT, NUM_TOKENS))
    found = []
    for number in range(len(config.layers)):
        weights, inputs = layer_weights(checkpoint, number), {}
        states = [forward.layer(number, weights, h, lambda name, x, _, i=inputs: i.setdefault(name, x)) for h in states]
        for group in GROUPS:
            x = inputs[group[0]].flatten(0, 1).numpy()
            peak = float((abs(x).max(axis=1) / ((x**2).mean(axis=1) ** 0.5 + 1e-9)).mean())
            found.append((peak, number, group, x, [weights[f"{name}.weight"].numpy() for name in group]))
    for peak, number, group, x, matrices in sorted(found, key=lambda one: -one[0])[:4]:
        moments = Moments(x.T @ x / len(x), abs(x).max(axis=0), len(x))
        factors = smoothquant(config, group[0], [(one, IntFormat(8, 0)) for one in matrices], moments)
        w = matrices[0]
        print(
            f"layer {number} {group[0]}: largest / rms {peak:.1f}; error of int8: plain {int8_error(x, w):.4f}, "
            f"smoothed {int8_error(x / factors, w * factors):.4f}, rotated {int8_error(rotate(x), rotate(w)):.4f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
