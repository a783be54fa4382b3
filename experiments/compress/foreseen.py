"""What a budget foresees of a format, and what it loses: for each kind of matrix, and for all of them.

    python -m experiments.compress.foreseen MODEL.gguf TEXT [FORMAT]

Mean KL in nats on the same 4,096 tokens (of which the second half is what losses are foreseen by), rounded to nearest.
"""

import sys
from pathlib import Path

from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot_compress.choose_formats import matrix_shapes
from surefoot_compress.format_names import parse_format
from surefoot_compress.forward import MATRICES
from surefoot_compress.layer import floats_of
from surefoot_compress.methods import METHODS
from surefoot_compress.run import evenly_spaced, with_threads
from surefoot_compress.sensitivity import measure_losses, predicted_loss
from surefoot_compress.stream import quantised_tensors
from tests.compress.replaced import divergence

CONTEXT, TOKENS, MEASURED = 512, 4096, 2048


def main(model: str, text: str, name: str = "int4-g32") -> None:
    checkpoint, tokenizer = open_model(Path(model))
    windows = evenly_spaced(cut_windows(tokenizer, Path(text).read_text(encoding="utf-8"), CONTEXT), TOKENS // CONTEXT)
    fmt, method = parse_format(name), METHODS["rtn"]
    formats = {one: fmt for one in matrix_shapes(checkpoint) if one.startswith("blk.")}
    with with_threads(1):
        table = measure_losses(checkpoint, windows, lambda one, *_: [fmt] if one in formats else [], method)
        made = {one: floats_of(tensor) for one, tensor in quantised_tensors(checkpoint, None, formats, method)}
        for kind in (*MATRICES, "blk"):
            chosen = [one for one in formats if kind in one.split(".")]
            foreseen = predicted_loss(table, dict.fromkeys(chosen, fmt.name))
            lost = divergence(checkpoint, {one: made[one] for one in chosen}, windows[-MEASURED // CONTEXT :])
            print(f"{'all' if kind == 'blk' else kind:12} foreseen {foreseen:.4f}, lost {lost:.4f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
