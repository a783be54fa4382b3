"""What would meet a service that no machine meets: fewer users, a slower service, a smaller model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from surefoot.plan.machines import SizedMachine
from surefoot.plan.planning import LoadPlan, ModelPlanner, Plan, ServiceLevel
from surefoot.plan.shapes import known_shapes, make_header
from surefoot.plan.subject import SizedModel, find_subject

SHARES = (0.7, 0.4, 0.2)  # of the weights' bytes, that a smaller model may have


def nearest_plan(plans: Sequence[Plan]) -> Plan | None:
    """The plan that misses the service by least; None if the model fits no machine."""
    loaded = [(plan, plan.load) for plan in plans if plan.load is not None]
    return min(loaded, key=lambda pair: _miss(pair[1], pair[0].service), default=(None,))[0]


def _miss(load: LoadPlan, service: ServiceLevel) -> float:
    """By what factor the service is missed."""
    late = load.first_token_p95_s / service.first_token_s
    return max(late, service.tokens_per_second / max(load.tokens_per_second_p5, 1e-9))


def find_passing(model: SizedModel, machine: SizedMachine, service: ServiceLevel, load: LoadPlan) -> Iterator[str]:
    """Changes with which the machine would meet the service, each alone. load: as asked for, which it does not meet."""
    planner = ModelPlanner(model, machine, service)
    if carried := planner.num_users(max(1, load.num_users // 2)):
        yield f"{carried} users"
    wait_s, speed = math.ceil(10 * load.first_token_p95_s) / 10, math.floor(10 * load.tokens_per_second_p5) / 10
    slower = replace(
        service,
        first_token_s=max(wait_s, service.first_token_s),
        tokens_per_second=min(speed, service.tokens_per_second),
    )
    if speed and ModelPlanner(model, machine, slower).load(load.num_users).meets_service:
        yield f"the first token in {slower.first_token_s:g} s and {slower.tokens_per_second:g} tokens/s"
    for change, other in _smaller(model, machine):
        if ModelPlanner(other, machine, service).load(load.num_users).meets_service:
            yield change
            return


def _smaller(model: SizedModel, machine: SizedMachine) -> Iterator[tuple[str, SizedModel]]:
    """The model in 4 bits, if that is less, then known models that read less a step."""
    narrow = model.in_four_bits()
    if narrow.weight_bytes < model.weight_bytes:
        yield "4 bits instead of 8", narrow
    headers = {shape.name: make_header(shape, shape.format) for shape in known_shapes().values() if shape.is_dense}
    sizes = {name: sum(info.nbytes for info in header.tensors.values()) for name, header in headers.items()}
    for share in SHARES:
        less = [name for name, num_bytes in sizes.items() if num_bytes <= share * model.weight_bytes]
        if less:
            other = find_subject(max(less, key=lambda name: sizes[name])).on(machine.host)
            yield other.name, other
