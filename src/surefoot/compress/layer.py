"""One layer's matrices replaced by codes: a method is levels, assignment and change of basis put together."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from surefoot.compress.assign import Carry, gptq, nearest
from surefoot.compress.forward import GROUPS, MATRICES
from surefoot.compress.grids import Format, Grid
from surefoot.compress.moments import Moments
from surefoot.compress.scaling import Choose, awq, scale, smooth
from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32, U8


@dataclass(frozen=True)
class Method:
    """searched: levels by the least error weighed by inputs, else from the ends of groups. carried: GPTQ.
    factors: of channels, folded into what makes them. activations_int8: the file asks for them."""

    name: str
    searched: bool
    carried: bool
    factors: Choose | None
    help: str
    activations_int8: bool = False


METHODS = {
    one.name: one
    for one in (
        Method("rtn", False, False, None, "round to nearest, scales from the ends of groups; no calibration"),
        Method("imatrix", True, False, None, "scales searched for with inputs as weights, then the nearest"),
        Method("gptq-ends", False, True, None, "GPTQ over scales from the ends of groups, as the paper has it"),
        Method("gptq", True, True, None, "GPTQ over searched scales"),
        Method("awq", True, False, awq, "AWQ: channels scaled by a search, searched scales (clipping), the nearest"),
        Method("awq-gptq", True, True, awq, "AWQ's scaled channels, then GPTQ"),
        Method(
            "smooth-gptq",
            True,
            True,
            smooth,
            "SmoothQuant's scaled channels, then GPTQ: for 8-bit activations (w8a8)",
            activations_int8=True,
        ),
    )
}


@dataclass(frozen=True)
class Quantised:
    """A matrix in codes."""

    format: Format
    grid: Grid
    codes: U8

    def floats(self) -> F32:
        return self.grid.floats(self.codes)

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(*self.codes.shape)


T = TypeVar("T")
Made = Quantised | F32
Arrays = Mapping[str, F32]


def quantise(
    weights: F32, moments: Moments | None, fmt: Format, method: Method, carry: Carry | None = None
) -> Quantised:
    """carry: of the moments, where the method has one."""
    grid = fmt.fit(weights, moments.importance + 1e-8 if method.searched and moments is not None else None)
    return Quantised(fmt, grid, nearest(grid, weights) if carry is None else gptq(grid, weights, carry))


def each_matrix(
    make: Callable[[str, Carry | None], T],
    wanted: Iterable[str],
    moments: Mapping[str, Moments],
    method: Method,
    threads: int,
) -> dict[str, T]:
    """What is made of each matrix with the carry of its inputs, which those of a group share, where the method has one.

    numpy lets go of Python's lock, and the matrices of a layer have nothing to do with each other. The carry of the
    widest inputs takes longest: it is begun first, and its matrices come last."""
    width = {name: len(one.second) for name, one in moments.items()}
    with ThreadPoolExecutor(threads) as pool:
        carry: dict[str, Future[Carry]] = {}
        for group in sorted(GROUPS, key=lambda group: -width[group[0]]) if method.carried else ():
            inputs = moments[group[0]]
            carry |= dict.fromkeys(group, pool.submit(Carry.of, inputs.second, inputs.num_rows))

        def with_carry(name: str) -> T:
            return make(name, carry[name].result() if name in carry else None)

        order = sorted(wanted, key=lambda name: width.get(name, 0))
        made = dict(zip(order, pool.map(with_carry, order), strict=True))
    return {name: made[name] for name in MATRICES if name in made}


def quantise_layer(
    config: ModelConfig,
    weights: Arrays,
    moments: Mapping[str, Moments],
    formats: Mapping[str, Format],
    method: Method,
    threads: int = 1,
) -> dict[str, Made]:
    """The layer's tensors, by GGUF names without "blk.N."; matrices that `formats` does not name stay in float."""
    if method.factors is not None:
        scaled = scale(config, weights, moments, formats, method.factors, threads)
        weights, moments = scaled.weights, scaled.moments

    def codes(name: str, carry: Carry | None) -> Quantised:
        return quantise(weights[f"{name}.weight"], moments.get(name), formats[name], method, carry)

    made = each_matrix(codes, formats, moments, method, threads)
    return {**weights, **{f"{name}.weight": one for name, one in made.items()}}


def floats_of(made: Made) -> F32:
    return made.floats() if isinstance(made, Quantised) else np.ascontiguousarray(made)
