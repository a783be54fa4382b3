"""The methods of quantisation that `surefoot compress --method` names, and its other options."""

from dataclasses import dataclass
from pathlib import Path

from surefoot_compress.scaling import ChooseFactors, awq, smoothquant


@dataclass(frozen=True)
class Method:
    """How scales are fitted, how codes are assigned, and whether channels are scaled first."""

    name: str  # as users write it
    search_scales: bool  # by the least error weighted by inputs; otherwise scales come from the ends of groups
    gptq: bool  # assign codes by GPTQ; otherwise round to nearest
    factors: ChooseFactors | None  # of input channels, folded into the norm or matrix before; None: unscaled
    help: str  # for --help
    activations_int8: bool = False  # the written file asks for int8 activations


METHODS = {
    method.name: method
    for method in (
        Method("rtn", False, False, None, "round to nearest, scales from the ends of groups; no calibration"),
        Method("imatrix", True, False, None, "searched scales, errors weighted by the inputs, then round to nearest"),
        Method("gptq-ends", False, True, None, "GPTQ over scales from the ends of groups, as in the paper"),
        Method("gptq", True, True, None, "GPTQ over searched scales"),
        Method("awq", True, False, awq, "AWQ: searched channel factors, searched scales (clipping), round to nearest"),
        Method("awq-gptq", True, True, awq, "AWQ's scaled channels, then GPTQ"),
        Method(
            "smooth-gptq",
            True,
            True,
            smoothquant,
            "SmoothQuant's scaled channels, then GPTQ: for 8-bit activations (w8a8)",
            activations_int8=True,
        ),
    )
}


@dataclass(frozen=True)
class CompressOptions:
    """Either one format for all matrices, or a budget for all of them together (`bits_per_weight` or `fits_bytes`)."""

    method: str  # a key of METHODS
    output: str  # gguf or compressed-tensors
    format: str | None = None  # of all matrices in layers
    embeddings: str | None = None  # format of embeddings and head (GGUF only)
    bits_per_weight: float | None = None  # budget: the average over all matrices
    fits_bytes: int | None = None  # budget: the size of the file
    candidates: tuple[str, ...] = ()  # formats that a budget chooses from; empty: DEFAULT_CANDIDATES
    calibration: Path | None = None  # text, UTF-8
    calibration_tokens: int = 16384  # of the text, at most: what methods calibrate on
    sensitivity_tokens: int = 4096  # of these, at most: what a budget measures losses on
    context: int = 512  # tokens in a window of the text
    threads: int = 1  # that quantise matrices at once
