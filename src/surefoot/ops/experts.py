"""Mixture of experts around the grouped matmul: routes rows to experts, sorts them by expert, combines the outputs."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from surefoot.ops import abi
from surefoot.ops.arrays import F32, I64, check, empty, pointer, row_stride
from surefoot.ops.backend import Backend


class Scoring(IntEnum):
    """How router logits become weights."""

    SOFTMAX_ALL = 0
    SOFTMAX_CHOSEN = 1
    SIGMOID = 2


@dataclass(frozen=True)
class Groups:
    """Groups of neighbouring experts, all of one size. A row's experts are chosen among its best groups."""

    count: int = 1  # 1: all experts are one group
    kept: int = 1  # groups that a row chooses among; ties to the lower group
    best: int = 1  # a group's score is the sum of its 1 or 2 best experts'


@dataclass(frozen=True)
class Router:
    """A model's routing rule."""

    top_k: int  # experts per row
    scoring: Scoring = Scoring.SOFTMAX_ALL
    normalise: bool = False  # weights of a row to a sum of 1
    scale: float = 1.0  # factor on the weights
    groups: Groups = Groups()


@dataclass(frozen=True)
class Routes:
    """The experts of each row."""

    ids: I64  # [rows, k], best first, ties to the lower id
    weights: F32  # [rows, k]


def route(
    backend: Backend,
    logits: F32,
    router: Router,
    bias: F32 | None = None,
    expert_scales: F32 | None = None,
    out: Routes | None = None,
) -> Routes:
    """The experts of each row. bias [experts]: added to the scores when choosing, not to the weights. expert_scales
    [experts]: factors on the weights only."""
    check("logits", logits, np.float32, None, None)
    rows, experts = logits.shape
    if not logits.flags.c_contiguous:
        raise ValueError("logits must be contiguous")
    for name, vector in (("bias", bias), ("expert_scales", expert_scales)):
        if vector is not None:
            check(name, vector, np.float32, experts)
    k, groups = router.top_k, router.groups
    if out is None:
        out = Routes(empty((rows, k), np.int64), empty((rows, k), np.float32))
    check_routes("out", out, rows, k)
    args = abi.RouteArgs(
        pointer(logits), pointer(bias), pointer(expert_scales), pointer(out.ids), pointer(out.weights),
        rows, experts, k, groups.count, groups.kept, router.scoring, router.normalise, router.scale, groups.best,
    )  # fmt: skip
    backend.run("route", args, logits, bias, expert_scales, out)
    return out


def check_routes(name: str, routes: Routes, rows: int, k: int) -> None:
    check(f"{name}.ids", routes.ids, np.int64, rows, k)
    check(f"{name}.weights", routes.weights, np.float32, rows, k)
    if not (routes.ids.flags.c_contiguous and routes.weights.flags.c_contiguous):
        raise ValueError(f"{name} must be contiguous")


@dataclass(frozen=True)
class ExpertRows:
    """Chosen (row, slot) pairs sorted by expert, for a matmul grouped over experts."""

    rows: I64  # input row of each sorted row
    starts: I64  # [experts + 1]; expert e has sorted rows starts[e] to starts[e + 1]
    places: I64  # [rows, k]; sorted row of each input row and slot


def empty_expert_rows(rows: int, k: int, num_experts: int) -> ExpertRows:
    return ExpertRows(empty((rows * k,), np.int64), empty((num_experts + 1,), np.int64), empty((rows, k), np.int64))


def group_by_expert(backend: Backend, ids: I64, num_experts: int, out: ExpertRows | None = None) -> ExpertRows:
    """Sorts the pairs of ids [rows, k] by expert, then by row and slot."""
    check("ids", ids, np.int64, None, None)
    rows, k = ids.shape
    out = empty_expert_rows(rows, k, num_experts) if out is None else out
    check("out.rows", out.rows, np.int64, rows * k)
    check("out.starts", out.starts, np.int64, num_experts + 1)
    check("out.places", out.places, np.int64, rows, k)
    if not (ids.flags.c_contiguous and out.places.flags.c_contiguous):
        raise ValueError("ids and places must be contiguous")
    args = abi.GroupExpertsArgs(
        pointer(ids), pointer(out.rows), pointer(out.starts), pointer(out.places), rows, k, num_experts
    )
    backend.run("group_experts", args, ids, out)
    return out


def combine(
    backend: Backend, x: F32, places: I64, weights: F32, residual: F32 | None = None, out: F32 | None = None
) -> F32:
    """Combines expert outputs into rows: the sum over ascending j of weights[r, j] * x[places[r, j]], plus the
    residual."""
    check("x", x, np.float32, None, None)
    x_rows, cols = x.shape
    check("places", places, np.int64, None, None)
    rows, k = places.shape
    check_routes("places and weights", Routes(places, weights), rows, k)
    if residual is not None:
        check("residual", residual, np.float32, rows, cols)
    if out is None:
        out = empty((rows, cols), np.float32)
    check("out", out, np.float32, rows, cols)
    args = abi.CombineArgs(
        pointer(x), pointer(places), pointer(weights), pointer(residual), pointer(out), rows, cols, k, x_rows,
        row_stride(x), 0 if residual is None else row_stride(residual), row_stride(out),
    )  # fmt: skip
    backend.run("combine", args, x, places, weights, residual, out)
    return out
