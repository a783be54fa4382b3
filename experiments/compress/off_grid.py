"""A dequantised file as an original whose weights lie on no grid.

    python -m experiments.compress.off_grid MODEL.gguf OUT.gguf

Weights that were rounded once are rounded to the same grid again without loss, which flatters whoever uses it. So each
channel is multiplied by a random factor (1/2 to 2) that what comes before is divided by: the same function in float,
and no grid left. Written in half precision, which is the original from then on.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from surefoot.ops.arrays import F32
from surefoot.weights import GgufFile
from surefoot_compress.forward import GROUPS, check_family, layer_weights
from surefoot_compress.scaling import ScaledLayer, fold_factors, shared_lanes
from surefoot_compress.write_gguf import write_gguf


def tensors(checkpoint: GgufFile) -> Iterator[tuple[str, F32]]:
    config, rng = check_family(checkpoint), np.random.default_rng(0)
    for number in range(len(config.layers)):
        weights = {name: one.numpy() for name, one in layer_weights(checkpoint, number).items()}
        now = ScaledLayer(weights, {})
        for group in GROUPS:
            columns = weights[f"{group[0]}.weight"].shape[1]
            factors = np.exp2(rng.uniform(-1, 1, columns)).astype(np.float32)
            now = fold_factors(config, now, group, shared_lanes(config, group[0], factors))
        yield from ((f"blk.{number}.{name}", one) for name, one in now.weights.items())
    yield from ((name, checkpoint.floats(name)) for name in checkpoint.tensors if not name.startswith("blk."))


if __name__ == "__main__":
    source = GgufFile(sys.argv[1])
    write_gguf(source, tensors(source), Path(sys.argv[2]), {})
