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
    """formats: by matrix. predicted_kl: of the budget's optimiser, None where there was none."""

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
    with _threads(order.threads):
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
        write_compressed_tensors(checkpoint, source, tensors, out)
    elif isinstance(checkpoint, GgufFile):
        write_gguf(checkpoint, tensors, out, {"surefoot.compress.method": order.method})
    else:
        raise CompressError(
            "GGUF is written from GGUF files only, whose tokenizer it copies: choose --output compressed-tensors"
        )


def choose(
    checkpoint: Checkpoint, order: Order, windows: Windows | None, advance: Callable[[str], None]
) -> tuple[dict[str, Format], Mapping[str, Sequence[Option]]]:
    """A format for each matrix, and the table of losses that it was chosen from, if it was."""
    shapes = matrices(checkpoint)
    if order.bits_per_weight is None and order.fits_bytes is None:
        if order.format is None:
            raise CompressError("say --format, or a --budget (or --fits) to choose formats by")
        given = names.parse_format(order.format)
        formats = {name: names.suited(given, k) for name, (_, k) in shapes.items() if name.startswith("blk.")}
        return {**formats, **_outer_formats(shapes, order)}, {}
    if windows is None:
        raise CompressError("a budget needs --calibration to measure what matrices lose")
    offered = order.offered or names.OFFERED[order.output]
    fixed = _outer_formats(shapes, order) if order.embeddings or order.output != "gguf" else {}
    some = windows[:: max(1, len(windows) * order.context // order.sensitivity_tokens)]

    def candidates(name: str, _: int, k: int) -> Sequence[Format]:
        return [fixed[name]] if name in fixed else names.offered(offered, k)

    table = sensitivity.measure(checkpoint, some, candidates, METHODS[order.method], advance)
    table = {name: table[name] for name in shapes if name in table}
    budget = budget_bytes(checkpoint, order, shapes)
    chosen = allocate(table, budget)
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


def _outer_formats(shapes: Mapping[str, tuple[int, int]], order: Order) -> dict[str, Format]:
    """Embeddings and head: eight bits unless told; compressed-tensors leaves them in half precision."""
    if order.output != "gguf":
        return {}
    given = names.parse_format(order.embeddings or "Q8_0")
    return {name: names.suited(given, k) for name, (_, k) in shapes.items() if not name.startswith("blk.")}


def budget_bytes(checkpoint: Checkpoint, order: Order, shapes: Mapping[str, tuple[int, int]]) -> int:
    if order.bits_per_weight is not None:
        return int(order.bits_per_weight * sum(n * k for n, k in shapes.values()) / 8)
    assert order.fits_bytes is not None
    beside = overhead_bytes(checkpoint) if isinstance(checkpoint, GgufFile) else 1 << 20
    return order.fits_bytes - beside


def _windows(order: Order, cut: Callable[[str], Windows]) -> Windows | None:
    """Windows spread evenly over the calibration text."""
    method = METHODS[order.method]
    if order.calibration is None:
        if method.searched or method.carried or method.scaled:
            raise CompressError(f"{method.name} needs --calibration: a text like what the model will meet")
        return None
    windows = cut(order.calibration.read_text(encoding="utf-8"))
    count = max(1, order.calibration_tokens // order.context)
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
    """Counts weights and bytes of matrices as they pass."""

    num_weights: int = 0
    nbytes: int = 0

    def counted(self, tensors: Iterator[tuple[str, Made]]) -> Iterator[tuple[str, Made]]:
        for name, made in tensors:
            if isinstance(made, Quantised):
                self.num_weights += made.codes.size
                self.nbytes += made.nbytes
            elif made.ndim == 2:
                self.num_weights += made.size
                self.nbytes += 2 * made.size
            yield name, made


@contextmanager
def _threads(threads: int) -> Iterator[None]:
    """torch on so many threads; numpy's products on one, since matrices are shared out over threads already."""
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError:
        raise CompressError("threadpoolctl is not installed: pip install 'surefoot[compress]'") from None
    torch.set_num_threads(threads)
    with limits(1, user_api="blas"):
        yield
