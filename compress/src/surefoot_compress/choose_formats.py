"""Chooses a format for each matrix: one for all of them, or the formats with the least loss under a byte budget."""

from collections.abc import Mapping, Sequence

from surefoot.evaluate.windows import Windows
from surefoot.weights import Checkpoint, GgufFile
from surefoot_compress.allocate import FormatOption, allocate
from surefoot_compress.errors import CompressError
from surefoot_compress.format_names import DEFAULT_CANDIDATES, fallback_format, parse_format, suitable_formats
from surefoot_compress.forward import MATRICES, check_family
from surefoot_compress.grids import Format
from surefoot_compress.loss_cache import CachePart, LossTable
from surefoot_compress.methods import METHODS, CompressOptions
from surefoot_compress.progress import ReportProgress, step_counter
from surefoot_compress.sensitivity import Candidates, measure_losses
from surefoot_compress.write_gguf import overhead_bytes

Shapes = Mapping[str, tuple[int, int]]  # rows and columns, by name of the matrix


def choose_formats(
    checkpoint: Checkpoint, options: CompressOptions, windows: Windows | None, report: ReportProgress, cache: CachePart
) -> tuple[dict[str, Format], Mapping[str, Sequence[FormatOption]]]:
    """The format of each matrix, and the loss table that it was chosen from (empty without a budget).

    Matrices whose rows no format divides are left out: they stay in half precision."""
    shapes = matrix_shapes(checkpoint)
    if options.output != "gguf":  # compressed-tensors leaves embeddings and head in half precision
        shapes = {name: shape for name, shape in shapes.items() if name.startswith("blk.")}
    if options.bits_per_weight is None and options.fits_bytes is None:
        formats: dict[str, Format] = _uniform_formats(shapes, options)
        table: Mapping[str, Sequence[FormatOption]] = {}
    elif windows is None:
        raise CompressError("a budget needs --calibration: losses are measured on that text")
    else:
        formats, table = _within_budget(checkpoint, shapes, options, windows, report, cache)
    if not formats:
        raise CompressError("no matrix has rows that the format's groups divide: choose another format or group size")
    return formats, table


def _uniform_formats(shapes: Shapes, options: CompressOptions) -> dict[str, Format]:
    """The format asked for, or its fallback where rows are no multiple of its blocks."""
    if options.format is None:
        raise CompressError("name a --format, or a --budget (or --fits) to choose formats by")
    inner, outer = parse_format(options.format), parse_format(options.embeddings or "Q8_0")
    formats = {name: fallback_format(inner if name.startswith("blk.") else outer, k) for name, (_, k) in shapes.items()}
    return {name: fmt for name, fmt in formats.items() if fmt is not None}


def _within_budget(
    checkpoint: Checkpoint,
    shapes: Shapes,
    options: CompressOptions,
    windows: Windows,
    report: ReportProgress,
    cache: CachePart,
) -> tuple[dict[str, Format], Mapping[str, Sequence[FormatOption]]]:
    inner = options.candidates or DEFAULT_CANDIDATES[options.output]
    outer = (options.embeddings,) if options.embeddings else inner
    sample = windows[:: max(1, len(windows) * options.context // options.sensitivity_tokens)]
    budget = budget_bytes(checkpoint, options, shapes)

    def candidates(name: str, _: int, k: int) -> Sequence[Format]:
        return suitable_formats(inner if name.startswith("blk.") else outer, k) if name in shapes else []

    def measured() -> LossTable:
        advance = step_counter(report, "measuring", len(check_family(checkpoint).layers))
        method = METHODS[options.method]
        return measure_losses(checkpoint, sample, candidates, method, advance, options.threads, cache)

    def least_loss(losses: LossTable) -> tuple[dict[str, str], LossTable]:
        """Matrices without options stay in half precision; their bytes come out of the budget."""
        table = {name: losses[name] for name in shapes if losses.get(name)}
        half_precision = sum(2 * n * k for name, (n, k) in shapes.items() if name not in table)
        return allocate(table, budget - half_precision).formats, table

    least_loss(_without_losses(shapes, candidates))  # refuses too small a budget before anything is measured
    chosen, table = least_loss(cache("all", measured))
    return {name: parse_format(fmt) for name, fmt in chosen.items()}, table


def _without_losses(shapes: Shapes, candidates: Candidates) -> LossTable:
    """Sizes alone: every loss is 0."""
    return {
        name: [FormatOption(fmt.name, fmt.nbytes(n, k), 0.0) for fmt in candidates(name, n, k)]
        for name, (n, k) in shapes.items()
    }


def matrix_shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, int]]:
    """The matrices that can be quantised, with their shapes."""
    inner = {f"{name}.weight" for name in MATRICES}
    shapes = {}
    for name, tensor in checkpoint.tensors.items():
        part = name.split(".", 2)[2] if name.startswith("blk.") else name
        if part in inner or name in ("token_embd.weight", "output.weight"):
            shapes[name] = (tensor.shape[0], tensor.shape[1])
    return shapes


def budget_bytes(checkpoint: Checkpoint, options: CompressOptions, shapes: Shapes) -> int:
    """Bytes that all matrices together may take."""
    if options.bits_per_weight is not None:
        return int(options.bits_per_weight * sum(n * k for n, k in shapes.values()) / 8)
    assert options.fits_bytes is not None
    overhead = overhead_bytes(checkpoint) if isinstance(checkpoint, GgufFile) else 1 << 20
    return options.fits_bytes - overhead
