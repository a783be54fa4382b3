"""The methods of quantisation that `surefoot compress --method` names."""

from dataclasses import dataclass

from surefoot.compress.scaling import ChooseFactors, awq, smoothquant


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
