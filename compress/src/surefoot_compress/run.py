"""Runs `surefoot compress`: opens a checkpoint, chooses formats, quantises, writes, and sums up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

from surefoot import __version__
from surefoot.evaluate import cut_windows
from surefoot.evaluate.engines import open_model
from surefoot.evaluate.windows import Windows
from surefoot.weights import fingerprint
from surefoot_compress.choose_formats import choose_formats
from surefoot_compress.errors import CompressError
from surefoot_compress.forward import check_family
from surefoot_compress.layer import CompressedTensor, Quantised
from surefoot_compress.lazy_torch import torch
from surefoot_compress.loss_cache import LossCache
from surefoot_compress.methods import METHODS, CompressOptions
from surefoot_compress.outputs import check_output, write
from surefoot_compress.progress import ReportProgress, step_counter
from surefoot_compress.sensitivity import predicted_loss
from surefoot_compress.stream import quantised_tensors


@dataclass(frozen=True)
class CompressSummary:
    """What a run of `compress_model` wrote. Counts are of the quantised matrices."""

    formats: dict[str, str]  # name of the format by name of the matrix
    num_weights: int  # in all of them
    nbytes: int  # of all of them, scales included
    predicted_kl: float | None  # mean KL in nats that the budget's table predicts; None without a budget

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.num_weights


def compress_model(
    source: Path, out: Path, options: CompressOptions, report: ReportProgress = lambda task, done, total: None
) -> CompressSummary:
    """Writes a smaller checkpoint of the model to `out`."""
    checkpoint, tokenizer = open_model(source)
    config = check_family(checkpoint)
    check_output(checkpoint, source, out, options)
    windows = _windows(options, lambda text: cut_windows(tokenizer, text, options.context))
    with with_threads(options.threads):
        cache = LossCache(out.with_name(f"{source.name}.losses.json"), _measured_by(source, options, windows))
        formats, table = choose_formats(checkpoint, options, windows, report, cache)
        advance = step_counter(report, "quantising", len(config.layers) + 1)
        tensors = quantised_tensors(checkpoint, windows, formats, METHODS[options.method], advance, options.threads)
        tally = _Tally()
        write(checkpoint, source, out, tally.counted(tensors), options)
    chosen = {name: fmt.name for name, fmt in formats.items()}
    return CompressSummary(chosen, tally.num_weights, tally.nbytes, predicted_loss(table, chosen) if table else None)


def _measured_by(source: Path, options: CompressOptions, windows: Windows | None) -> str:
    """A fingerprint of all that losses depend on."""
    formats = options.method, options.output, options.candidates, options.embeddings
    return fingerprint(source, __version__, (*formats, options.context, options.sensitivity_tokens), windows)


def _windows(options: CompressOptions, cut: Callable[[str], Windows]) -> Windows | None:
    """Windows of the calibration text; None if the method needs none and none is given."""
    method = METHODS[options.method]
    if options.calibration is None:
        if method.search_scales or method.gptq or method.factors:
            raise CompressError(f"{method.name} needs --calibration: a text like those the model will be used on")
        return None
    windows = cut(options.calibration.read_text(encoding="utf-8"))
    return evenly_spaced(windows, max(1, options.calibration_tokens // options.context))


def evenly_spaced(windows: Windows, count: int) -> Windows:
    """At most `count` windows, evenly spaced over the text."""
    return windows[:: max(1, len(windows) // count)][:count]


@dataclass
class _Tally:
    """Counts the weights and bytes of quantised matrices as they pass through `counted`."""

    num_weights: int = 0  # so far
    nbytes: int = 0  # so far

    def counted(self, tensors: Iterator[tuple[str, CompressedTensor]]) -> Iterator[tuple[str, CompressedTensor]]:
        for name, tensor in tensors:
            if isinstance(tensor, Quantised):
                self.num_weights += tensor.codes.size
                self.nbytes += tensor.nbytes
            yield name, tensor


@contextmanager
def with_threads(threads: int) -> Iterator[None]:
    """Runs torch on `threads` threads and numpy's products on one each: matrices are already spread over threads."""
    torch.set_num_threads(threads)
    with threadpool_limits(1, user_api="blas"):
        yield
