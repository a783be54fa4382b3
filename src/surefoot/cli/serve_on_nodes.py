"""`surefoot serve` of one model on several NUMA nodes: one engine over all of them, or an engine on each behind a front
process."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import typer

from surefoot.api.footprint import Footprint, plan_footprint
from surefoot.api.opening import OpenModel
from surefoot.cli.serve_many import named_models, start_front
from surefoot.front.config import on_each_node
from surefoot.front.serve import memory_limit
from surefoot.machine import NodeShare
from surefoot.plan.machines import glance_at_machine
from surefoot.plan.nodes import EACH, SPLIT, better_way, nodes_plans, why
from surefoot.plan.planning import ServiceLevel
from surefoot.plan.subject import plan_model
from surefoot.server.access.keys import KeyStore
from surefoot.server.batch.state import StateFolder
from surefoot.server.settings import ServerSettings

OTHER = {SPLIT: EACH, EACH: SPLIT}


def runs_on_each(given: dict[str, Any], opened: OpenModel, tell: Callable[[str], None]) -> bool:
    """Whether each node gets an engine of its own: as --nodes says, or else what is predicted to be better, which is
    told with the reason. given: the command's parameters."""
    asked, is_of_fleet = given["nodes"], given["fleet_key"] is not None
    if asked is not None:
        if asked not in OTHER:
            raise ValueError(f"--nodes is {asked!r}: take {SPLIT} or {EACH}")
        if asked == EACH and is_of_fleet:
            raise ValueError("--nodes each does not go with --fleet-key: bind a server to each node with numactl")
        return bool(asked == EACH)
    if is_of_fleet or opened.pooling is not None:
        return False  # a fleet's server is one engine; an encoder gives no answers that could be predicted
    machine = glance_at_machine(given["variant"], given["threads"])
    model = plan_model(opened, given["float_format"])
    plans = nodes_plans(model, machine, ServiceLevel(), given["max_running"])
    needed, room = _footprint(given, opened).total, memory_limit(None)
    plans = tuple(replace(plan, fits=plan.fits and plan.num_engines * needed <= room) for plan in plans)
    best = better_way(plans)
    reason = f"{why(plans)} (--nodes {OTHER[best.way]})"
    tell(f"nodes    {best.way}, by prediction for {best.num_users} users at once: {reason}")
    return best.way == EACH and best.fits


def run_on_each(
    ctx: typer.Context,
    settings: ServerSettings,
    keys: KeyStore | None,
    open_state: Callable[[], StateFolder | None],
    sockets: list[socket.socket],
    opened: OpenModel,
    shares: Sequence[NodeShare],
) -> None:
    """An engine on each node, with an equal part of the memory."""
    config = named_models(ctx.params)
    (entry,) = config.models
    options = replace(entry.options, kv_bytes=_kv_bytes(ctx.params, opened, len(shares)))
    named = replace(entry, name=settings.model_name, aliases=settings.model_aliases, options=options)
    start_front(ctx, replace(config, models=on_each_node(named, shares)), settings, keys, open_state, sockets)


def _kv_bytes(given: dict[str, Any], opened: OpenModel, num_engines: int) -> int:
    """For keys and values of one engine: of those asked for, or of what weights and program leave."""
    if given["kv_memory"] is not None:
        return int(given["kv_memory"]) // num_engines
    footprint = _footprint(given, opened)
    return max(footprint.kv, memory_limit(None) // num_engines - footprint.total + footprint.kv)


def _footprint(given: dict[str, Any], opened: OpenModel) -> Footprint:
    """Of one engine."""
    (entry,) = named_models(given).models
    return plan_footprint(opened, entry.options, given["variant"])
