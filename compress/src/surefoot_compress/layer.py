"""Quantises the matrices of one layer: fits levels, assigns codes and, if the method asks for it, scales channels."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from surefoot.models import ModelConfig
from surefoot.ops.arrays import F32, U8
from surefoot_compress.assign import HessianFactor, gptq, nearest
from surefoot_compress.forward import GROUPS, MATRICES
from surefoot_compress.grids import Format, QuantGrid
from surefoot_compress.methods import Method
from surefoot_compress.moments import Moments
from surefoot_compress.scaling import Arrays, scale_layer


@dataclass(frozen=True)
class Quantised:
    """A quantised matrix."""

    format: Format  # that it is stored in
    grid: QuantGrid  # the values of its codes
    codes: U8  # [n, k], indices of the grid's levels

    def floats(self) -> F32:
        return self.grid.floats(self.codes)

    @property
    def nbytes(self) -> int:
        return self.format.nbytes(*self.codes.shape)


T = TypeVar("T")
CompressedTensor = Quantised | F32  # F32: a tensor that is not quantised


def quantise(
    weights: F32, moments: Moments | None, fmt: Format, method: Method, hessian: HessianFactor | None = None
) -> Quantised:
    """The matrix in the format. `hessian` (of the moments) makes it GPTQ; without, weights are rounded to nearest."""
    grid = fmt.fit(weights, moments.importance + 1e-8 if method.search_scales and moments is not None else None)
    return Quantised(fmt, grid, nearest(grid, weights) if hessian is None else gptq(grid, weights, hessian))


def map_matrices(
    make: Callable[[str, HessianFactor | None], T],
    names: Iterable[str],
    moments: Mapping[str, Moments],
    method: Method,
    threads: int,
) -> dict[str, T]:
    """make(name, hessian) of each named matrix, in MATRICES' order. Without GPTQ the Hessian factor is None.

    numpy releases Python's lock, and the matrices of a layer are independent. The matrices of a group share their
    inputs, and so their Hessian factor. The factor of the widest inputs takes longest: it is submitted first, and its
    matrices come last."""
    width = {name: len(inputs.second) for name, inputs in moments.items()}
    with ThreadPoolExecutor(threads) as pool:
        hessians: dict[str, Future[HessianFactor]] = {}
        for group in sorted(GROUPS, key=lambda group: -width[group[0]]) if method.gptq else ():
            inputs = moments[group[0]]
            hessians |= dict.fromkeys(group, pool.submit(HessianFactor.of, inputs.second, inputs.num_rows))

        def with_hessian(name: str) -> T:
            return make(name, hessians[name].result() if name in hessians else None)

        ordered = sorted(names, key=lambda name: width.get(name, 0))
        results = dict(zip(ordered, pool.map(with_hessian, ordered), strict=True))
    return {name: results[name] for name in MATRICES if name in results}


def quantise_layer(
    config: ModelConfig,
    weights: Arrays,
    moments: Mapping[str, Moments],
    formats: Mapping[str, Format],
    method: Method,
    threads: int = 1,
) -> dict[str, CompressedTensor]:
    """The layer's tensors, by GGUF names without "blk.N."; matrices that `formats` does not name stay in float."""
    if method.factors is not None:
        scaled = scale_layer(config, weights, moments, formats, method.factors, threads)
        weights, moments = scaled.weights, scaled.moments

    def quantised(name: str, hessian: HessianFactor | None) -> Quantised:
        return quantise(weights[f"{name}.weight"], moments.get(name), formats[name], method, hessian)

    matrices = map_matrices(quantised, formats, moments, method, threads)
    return {**weights, **{f"{name}.weight": matrix for name, matrix in matrices.items()}}


def floats_of(tensor: CompressedTensor) -> F32:
    return tensor.floats() if isinstance(tensor, Quantised) else np.ascontiguousarray(tensor)
