"""Our quantisers with llm-compressor's choices, to tell a difference of arithmetic from one of choices.

    python -m experiments.compress.as_llm_compressor MODEL.gguf CALIBRATION.txt OUT METHOD      (rtn or gptq)

writes OUT as `surefoot compress` would, but with scales in float32 instead of half precision (a group's largest weight
lies midway between two levels, and the scale's last bit decides which one it takes), the diagonal of the moments larger
by 1 % of its mean and by nothing else. Text and windows are those of beside_llm_compressor.
"""

import sys
from pathlib import Path

import numpy as np

from surefoot_compress import assign, grids, write_compressed_tensors
from surefoot_compress.methods import CompressOptions
from surefoot_compress.run import compress_model

METHODS = {"rtn": "rtn", "gptq": "gptq-ends"}


def take_its_choices() -> None:
    packed, factor = write_compressed_tensors._packed, assign.inverse_factor
    grids.as_half = lambda scales: scales.astype(np.float32)
    write_compressed_tensors._packed = lambda made: packed(made) | {"weight_scale": made.grid.scales}
    assign.DAMPING = 0.01
    assign.inverse_factor = lambda moments, _: factor(moments, sys.maxsize)


def main(model: Path, calibration: Path, out: Path, method: str) -> None:
    take_its_choices()
    options = CompressOptions(
        METHODS[method], "compressed-tensors", "int4-g32", calibration=calibration, calibration_tokens=8192, context=256
    )
    compress_model(model, out, options)


if __name__ == "__main__":
    main(*(Path(word) for word in sys.argv[1:4]), sys.argv[4])
