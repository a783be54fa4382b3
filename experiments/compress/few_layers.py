"""What compressing a large model would take, from its first layers.

    python -m experiments.compress.few_layers MODEL.gguf TEXT NUM_LAYERS [THREADS [METHOD]]

Seconds of each layer (processor and clock), times the model's layers, and the peak of memory so far: layers are alike,
one is in memory at a time, and what comes after them (embeddings, head) is rounded row by row.
"""

import resource
import sys
import time
from pathlib import Path

from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot.models import read_config
from surefoot_compress.choose_formats import matrix_shapes
from surefoot_compress.format_names import parse_format
from surefoot_compress.methods import METHODS, Method
from surefoot_compress.run import with_threads
from surefoot_compress.stream import quantised_tensors

CONTEXT, TOKENS = 512, 16384


def main(model: str, text: str, layers: str, threads: str = "1", method: str = "gptq") -> None:
    measure(model, text, int(layers), int(threads), METHODS[method])


def measure(model: str, text: str, num_layers: int, threads: int, method: Method) -> None:
    checkpoint, tokenizer = open_model(Path(model))
    windows = cut_windows(tokenizer, Path(text).read_text(encoding="utf-8"), CONTEXT)[: TOKENS // CONTEXT]
    formats = {name: parse_format("int4-g32") for name in matrix_shapes(checkpoint) if name.startswith("blk.")}
    total = len(read_config(checkpoint).layers)
    with with_threads(threads):
        start = time.process_time(), time.perf_counter()
        for name, _ in quantised_tensors(checkpoint, windows, formats, method, threads=threads):
            if name.startswith(f"blk.{num_layers - 1}."):
                break  # its layer is done once its first tensor comes
        spent = time.process_time() - start[0], time.perf_counter() - start[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each = [one / num_layers for one in spent]
    print(f"{sum(map(len, windows))} tokens, {num_layers} of {total} layers by {method.name}, {threads} threads")
    print(f"a layer: {each[0]:.0f} s of processor, {each[1]:.0f} s of clock; peak {peak:.2f} GiB")
    print(f"all {total}: {each[0] * total / 60:.0f} min of processor, {each[1] * total / 60:.0f} min of clock")


if __name__ == "__main__":
    main(*sys.argv[1:])
