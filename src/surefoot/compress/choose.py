"""A format for each matrix: the same for all, or those that lose least under a budget."""

from collections.abc import Mapping, Sequence

from surefoot.compress import names
from surefoot.compress.allocate import Option, allocate
from surefoot.compress.forward import MATRICES, check_family
from surefoot.compress.grids import Format
from surefoot.compress.later import CompressError
from surefoot.compress.layer import METHODS
from surefoot.compress.losses import Keep, Table
from surefoot.compress.order import Order
from surefoot.compress.progress import Say, counted
from surefoot.compress.sensitivity import Candidates, measure
from surefoot.compress.stream import Windows
from surefoot.compress.write_gguf import overhead_bytes
from surefoot.weights import Checkpoint, GgufFile


def choose(
    checkpoint: Checkpoint, order: Order, windows: Windows | None, say: Say, keep: Keep
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
        formats, table = _within_budget(checkpoint, shapes, order, windows, say, keep)
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
    say: Say,
    keep: Keep,
) -> tuple[dict[str, Format], Mapping[str, Sequence[Option]]]:
    offered = order.offered or names.OFFERED[order.output]
    outer = (order.embeddings,) if order.embeddings else offered
    some = windows[:: max(1, len(windows) * order.context // order.sensitivity_tokens)]
    budget = budget_bytes(checkpoint, order, shapes)

    def candidates(name: str, _: int, k: int) -> Sequence[Format]:
        return names.offered(offered if name.startswith("blk.") else outer, k) if name in shapes else []

    def measured() -> Table:
        advance = counted(say, "measuring", len(check_family(checkpoint).layers))
        return measure(checkpoint, some, candidates, METHODS[order.method], advance, order.threads, keep)

    def least_loss(losses: Table) -> tuple[dict[str, str], Table]:
        """Matrices without options stay in half precision, at the budget's cost."""
        table = {name: losses[name] for name in shapes if losses.get(name)}
        left_out = sum(2 * n * k for name, (n, k) in shapes.items() if name not in table)
        return allocate(table, budget - left_out).formats, table

    least_loss(_sizes(shapes, candidates))  # a budget that is too small is refused before anything is measured
    chosen, table = least_loss(keep("all", measured))
    return {name: names.parse_format(fmt) for name, fmt in chosen.items()}, table


def _sizes(shapes: Mapping[str, tuple[int, int]], candidates: Candidates) -> Table:
    """As if nothing were lost."""
    return {
        name: [Option(fmt.name, fmt.nbytes(n, k), 0.0) for fmt in candidates(name, n, k)]
        for name, (n, k) in shapes.items()
    }


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
