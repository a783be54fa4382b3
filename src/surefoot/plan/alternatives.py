"""What a change would give: more cores, more bandwidth, AMX, 4 bits, the prefix cache, speculation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from surefoot.plan.planning import MAX_USERS, ModelPlanner
from surefoot.speculate import MAX_DEPTH, MAX_STEP_DRAFTS, best_depths
from surefoot.speed.shipped_rates import OPERATIONS
from surefoot.speed.step_time import ChunkLoad, PredictedSteps

ACCEPTANCE = (0.5, 0.8)  # of drafts; docs/speculation.md says on which text which
WIDER = ("avx512", "amx")  # variants that a newer processor would have


@dataclass(frozen=True)
class Alternative:
    """What a change would give."""

    change: str
    first_token_s: float
    tokens_per_second: float  # of a user alone
    num_users: int | None = None  # that are carried; None: not asked for, or not known


def find_alternatives(planner: ModelPlanner, carried: int | None) -> list[Alternative]:
    """carried: users that are carried as it is; None: leave them out. A model that does not fit has none."""
    if not planner.memory.fits:
        return []
    guess = None if carried == MAX_USERS else carried
    changed = [_alternative(change, other, guess) for change, other in _changes(planner)]
    return changed + [_speculating(planner, accepted) for accepted in ACCEPTANCE]


def _changes(planner: ModelPlanner) -> Iterator[tuple[str, ModelPlanner]]:
    model, machine, service = planner.model, planner.machine, planner.service
    for change, faster in (
        ("twice the cores", machine.faster(operations=2)),
        ("twice the bandwidth", machine.faster(bandwidth=2)),
        ("twice both", machine.faster(operations=2, bandwidth=2)),
    ):
        yield change, ModelPlanner(model, faster, service)
    variant = machine.rates.variant
    for wider in WIDER:
        if OPERATIONS[wider] > OPERATIONS.get(variant, OPERATIONS[wider]):
            yield f"cores with {wider}", ModelPlanner(model, machine.with_variant(wider), service)
    if service.shared_tokens:
        yield "no prefix cache", ModelPlanner(model, machine, replace(service, shared_tokens=0))
    else:
        cached = replace(service, shared_tokens=service.prompt_tokens // 2)
        yield "half of each prompt cached", ModelPlanner(model, machine, cached)
    narrow = model.in_four_bits()
    if narrow.weight_bytes < model.weight_bytes:
        yield "4 instead of 8 bits", ModelPlanner(narrow, machine, service)


def _alternative(change: str, planner: ModelPlanner, guess: int | None) -> Alternative:
    alone = planner.one_user()
    users = None if guess is None else planner.num_users(guess)
    return Alternative(change, _first_token_s(planner), alone.tokens_per_second, users)


def _first_token_s(planner: ModelPlanner) -> float:
    """Without the tokens that the prefix cache holds."""
    shared = planner.service.shared_tokens
    return planner.one_user().first_token_s - (planner.prefill_seconds(shared) if shared else 0.0)


def _speculating(planner: ModelPlanner, acceptance: float) -> Alternative:
    """With drafts that cost nothing (prompt lookup), as deep as speculation itself would choose."""
    service = planner.service
    speed = drafted_speed(planner.times, acceptance, service.prompt_tokens + service.answer_tokens // 2)
    change = f"speculation, {acceptance:.0%} of drafts accepted"
    return Alternative(change, _first_token_s(planner), speed)


def drafted_speed(times: PredictedSteps, acceptance: float, context: int) -> float:
    """Tokens per second of one user, if each drafted token is accepted with this probability."""
    rows = range(1, MAX_STEP_DRAFTS + 2)
    step_s = [times.seconds([ChunkLoad(num_rows, context)], num_rows) for num_rows in rows]
    (depth,) = best_depths([acceptance], [MAX_DEPTH], 1, [1000 * seconds for seconds in step_s])
    return sum(acceptance**number for number in range(depth + 1)) / step_s[depth]
