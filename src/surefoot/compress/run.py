"""From a checkpoint to a smaller one: what was asked for, what was chosen, what it weighs."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot import __version__
from surefoot.compress.choose import choose
from surefoot.compress.forward import check_family
from surefoot.compress.later import CompressError, torch
from surefoot.compress.layer import METHODS, Made, Quantised
from surefoot.compress.losses import Kept
from surefoot.compress.order import Order
from surefoot.compress.outputs import check_output, write
from surefoot.compress.progress import Say, counted
from surefoot.compress.sensitivity import predicted
from surefoot.compress.stream import Windows, quantised_tensors
from surefoot.evaluate import cut_windows
from surefoot.evaluate.opening import open_model
from surefoot.weights import fingerprint


@dataclass(frozen=True)
class Summary:
    """Of the matrices in codes. predicted_kl: by the budget's optimiser, None where there was none."""

    formats: dict[str, str]
    num_weights: int
    nbytes: int
    predicted_kl: float | None

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.num_weights


def run(source: Path, out: Path, order: Order, say: Say = lambda what, done, total: None) -> Summary:
    checkpoint, tokenizer = open_model(source)
    config = check_family(checkpoint)
    check_output(checkpoint, source, out, order)
    windows = _windows(order, lambda text: cut_windows(tokenizer, text, order.context))
    with with_threads(order.threads):
        keep = Kept(out.with_name(f"{source.name}.losses.json"), _measured_by(source, order, windows))
        formats, table = choose(checkpoint, order, windows, say, keep)
        advance = counted(say, "quantising", len(config.layers) + 1)
        tensors = quantised_tensors(checkpoint, windows, formats, METHODS[order.method], advance, order.threads)
        tally = _Tally()
        write(checkpoint, source, out, tally.counted(tensors), order)
    chosen = {name: fmt.name for name, fmt in formats.items()}
    return Summary(chosen, tally.num_weights, tally.nbytes, predicted(table, chosen) if table else None)


def _measured_by(source: Path, order: Order, windows: Windows | None) -> str:
    """All that losses depend on."""
    how = order.method, order.output, order.offered, order.embeddings, order.context, order.sensitivity_tokens
    return fingerprint(source, __version__, how, windows)


def _windows(order: Order, cut: Callable[[str], Windows]) -> Windows | None:
    """Of the calibration text."""
    method = METHODS[order.method]
    if order.calibration is None:
        if method.searched or method.carried or method.factors:
            raise CompressError(f"{method.name} needs --calibration: a text like what the model will meet")
        return None
    windows = cut(order.calibration.read_text(encoding="utf-8"))
    return spread(windows, max(1, order.calibration_tokens // order.context))


def spread(windows: Windows, count: int) -> Windows:
    """So many (or all that there are), evenly over the text."""
    return windows[:: max(1, len(windows) // count)][:count]


@dataclass
class _Tally:
    """Counts weights and bytes of matrices in codes as they pass."""

    num_weights: int = 0
    nbytes: int = 0

    def counted(self, tensors: Iterator[tuple[str, Made]]) -> Iterator[tuple[str, Made]]:
        for name, made in tensors:
            if isinstance(made, Quantised):
                self.num_weights += made.codes.size
                self.nbytes += made.nbytes
            yield name, made


@contextmanager
def with_threads(threads: int) -> Iterator[None]:
    """torch on so many threads; numpy's products on one, since matrices are shared out over threads already."""
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError:
        raise CompressError("threadpoolctl is not installed: pip install 'surefoot[compress]'") from None
    torch.set_num_threads(threads)
    with limits(1, user_api="blas"):
        yield
