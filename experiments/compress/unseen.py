"""What GPTQ loses on text that it has not seen, by how much text it has.

    python -m experiments.compress.unseen MODEL.gguf TEXT LAYER

Errors of the outputs of a layer's matrices in int4-g32 over those of the nearest codes: on the calibration text, and on
4,096 other tokens.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot_compress.assign import HessianFactor, output_error
from surefoot_compress.format_names import parse_format
from surefoot_compress.forward import GROUPS, TorchForward, check_family, layer_weights
from surefoot_compress.layer import quantise
from surefoot_compress.methods import METHODS
from surefoot_compress.moments import Moments
from surefoot_compress.run import evenly_spaced, with_threads
from surefoot_compress.stream import initial_states, layer_moments

CONTEXT, UNSEEN = 512, 4096
SEEN = (4096, 16384)


def main(model: str, text: str, number: int) -> None:
    checkpoint, tokenizer = open_model(Path(model))
    forward = TorchForward(check_family(checkpoint))
    windows = cut_windows(tokenizer, Path(text).read_text(encoding="utf-8"), CONTEXT)
    count = UNSEEN // CONTEXT
    step = len(windows) // count
    others = evenly_spaced(windows, count)
    mine = [window for place, window in enumerate(windows) if place % step]

    def moments(some: Sequence[Sequence[int]]) -> dict[str, Moments]:
        states = initial_states(checkpoint, forward, some)
        for before in range(number):
            weights = layer_weights(checkpoint, before)
            states = [forward.layer(before, weights, h) for h in states]
        return layer_moments(forward, number, layer_weights(checkpoint, number), states)

    weights, fmt = layer_weights(checkpoint, number), parse_format("int4-g32")
    with torch.no_grad(), with_threads(1):
        unseen = moments(others)
        for num_tokens in SEEN:
            seen = moments(mine[: num_tokens // CONTEXT])
            for name in (group[0] for group in GROUPS):
                matrix, by = weights[f"{name}.weight"].numpy(), seen[name]
                hessian = HessianFactor.of(by.second, by.num_rows)
                plain, made = (
                    quantise(matrix, by, fmt, METHODS[method], one).floats()
                    for method, one in (("imatrix", None), ("gptq", hessian))
                )
                ratios = [
                    output_error(matrix, made, on.second) / output_error(matrix, plain, on.second)
                    for on in (by, unseen[name])
                ]
                print(f"{name} by {by.num_rows} tokens: on them {ratios[0]:.3f}, on others {ratios[1]:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
