"""From a checkpoint to a smaller one: what was asked for, what was chosen, what it weighs."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot.compress import names, sensitivity
from surefoot.compress.allocate import Option, allocate
from surefoot.compress.forward import MATRICES, check_family
from surefoot.compress.grids import Format
from surefoot.compress.later import CompressError, torch
from surefoot.compress.layer import METHODS, Made, Quantised
from surefoot.compress.stream import Windows, quantised_tensors
from surefoot.compress.write_compressed_tensors import write_compressed_tensors
from surefoot.compress.write_gguf import overhead_bytes, write_gguf
from surefoot.evaluate import cut_windows
from surefoot.evaluate.opening import open_model
from surefoot.weights import Checkpoint, GgufFile

Say = Callable[[str, int, int], None]  # what is being done, steps done, steps in all


@dataclass(frozen=True)
class Order:
    """What a user asks for. Either one format for all matrices, or a budget in bytes for all of them together."""

    method: str
    output: str  # gguf or compressed-tensors
    format: str | None = None
    embeddings: str | None = None
    bits_per_weight: float | None = None
    fits_bytes: int | None = None
    offered: tuple[str, ...] = ()
    calibration: Path | None = None
    calibration_tokens: int = 16384
    sensitivity_tokens: int = 4096
    context: int = 512
    threads: int = 1


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
    windows = _windows(order, lambda text: cut_windows(tokenizer, text, order.context))
    total = len(config.layers) + 1
    with with_threads(order.threads):
        formats, table = choose(checkpoint, order, windows, _counted(say, "measuring", total - 1))
        tensors = quantised_tensors(
            checkpoint, windows, formats, METHODS[order.method], _counted(say, "quantising", total), order.threads
        )
        tally = _Tally()
        write(checkpoint, source, out, tally.counted(tensors), order)
    chosen = {name: fmt.name for name, fmt in formats.items()}
    predicted = sensitivity.predicted(table, chosen) if table else None
    return Summary(chosen, tally.num_weights, tally.nbytes, predicted)


def write(checkpoint: Checkpoint, source: Path, out: Path, tensors: Iterator[tuple[str, Made]], order: Order) -> None:
    if order.output == "compressed-tensors":
        write_compressed_tensors(checkpoint, source, tensors, out, METHODS[order.method].activations_int8)
    elif isinstance(checkpoint, GgufFile):
        write_gguf(checkpoint, tensors, out, {"surefoot.compress.method": order.method})
    else:
        raise CompressError(
            "GGUF is written from GGUF files only, whose tokenizer it copies: choose --output compressed-tensors"
        )


def choose(
    checkpoint: Checkpoint, order: Order, windows: Windows | None, advance: Callable[[str], None]
) -> tuple[dict[str, Format], Mapping[str, Sequence[Option]]]:
    """A format for each matrix, and the table of losses that it was chosen from, if it was.

    Matrices whose rows no format divides are not named: they stay in half precision."""
    shapes = matrices(checkpoint)
    if order.output != "gguf":  # compressed-tensors leaves embeddings and head in half precision
        shapes = {name: shape for name, shape in shapes.items() if name.startswith("blk.")}
    if order.bits_per_weight is None and order.fits_bytes is None:
        formats: dict[str, Format] = _one_format(shapes, order)
        table: Mapping[str, Sequence[Option]] = {}
    elif windows is None:
        raise CompressError("a budget needs --calibration to measure what matrices lose")
    else:
        formats, table = _within_budget(checkpoint, shapes, order, windows, advance)
    if not formats:
        raise CompressError("no format divides the rows of any matrix: choose another, or another group")
    return formats, table


def _one_format(shapes: Mapping[str, tuple[int, int]], order: Order) -> dict[str, Format]:
    if order.format is None:
        raise CompressError("say --format, or a --budget (or --fits) to choose formats by")
    inner, outer = names.parse_format(order.format), names.parse_format(order.embeddings or "Q8_0")
    found = {name: names.suited(inner if name.startswith("blk.") else outer, k) for name, (_, k) in shapes.items()}
    return {name: fmt for name, fmt in found.items() if fmt is not None}


def _within_budget(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, int]],
    order: Order,
    windows: Windows,
    advance: Callable[[str], None],
) -> tuple[dict[str, Format], Mapping[str, Sequence[Option]]]:
    offered = order.offered or names.OFFERED[order.output]
    outer = (order.embeddings,) if order.embeddings else offered
    some = windows[:: max(1, len(windows) * order.context // order.sensitivity_tokens)]

    def candidates(name: str, _: int, k: int) -> Sequence[Format]:
        return names.offered(offered if name.startswith("blk.") else outer, k) if name in shapes else []

    measured = sensitivity.measure(checkpoint, some, candidates, METHODS[order.method], advance, order.threads)
    table = {name: measured[name] for name in shapes if measured.get(name)}
    left_out = sum(2 * n * k for name, (n, k) in shapes.items() if name not in table)
    chosen = allocate(table, budget_bytes(checkpoint, order, shapes) - left_out)
    return {name: names.parse_format(fmt) for name, fmt in chosen.formats.items()}, table


def matrices(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """Shapes of what may become codes."""
    inner = {f"{name}.weight" for name in MATRICES}
    found = {}
    for name, tensor in checkpoint.tensors.items():
        part = name.split(".", 2)[2] if name.startswith("blk.") else name
        if part in inner or name in ("token_embd.weight", "output.weight"):
            found[name] = (tensor.shape[0], tensor.shape[1])
    return found


def budget_bytes(checkpoint: Checkpoint, order: Order, shapes: Mapping[str, tuple[int, int]]) -> int:
    if order.bits_per_weight is not None:
        return int(order.bits_per_weight * sum(n * k for n, k in shapes.values()) / 8)
    assert order.fits_bytes is not None
    beside = overhead_bytes(checkpoint) if isinstance(checkpoint, GgufFile) else 1 << 20
    return order.fits_bytes - beside


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


def _counted(say: Say, what: str, total: int) -> Callable[[str], None]:
    done = 0

    def advance(_: str) -> None:
        nonlocal done
        done += 1
        say(what, done, total)

    say(what, 0, total)
    return advance


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
