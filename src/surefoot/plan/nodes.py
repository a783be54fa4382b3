"""Two ways to use a machine with several NUMA nodes: one engine over all of them, or an engine on each.

A model: no machine with two sockets was measured (docs/design/nodes.md).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.plan.machines import SizedMachine
from surefoot.plan.planning import MAX_CHUNK, MAX_RUNNING, SERVED_TOKEN_S, ModelPlanner, ServiceLevel
from surefoot.plan.subject import SizedModel
from surefoot.speed.step_time import ChunkLoad, StepParts, total_parts

SPLIT, EACH = "split", "each"
NUM_USERS = (1, MAX_RUNNING)
# An engine on each node must be predicted to be faster by this factor: less is within the error of a prediction, one
# engine answers few users sooner, and it caches prompts once.
MARGIN = 1.1


@dataclass(frozen=True)
class NodesPlan:
    """What users get who all ask at once, one way. A user is served by one engine."""

    way: str  # SPLIT: one engine, whose weights are divided among the nodes; EACH: an engine with all weights on each
    num_users: int
    num_engines: int
    fits: bool  # weights and a request into the memory of each engine
    prompt_s: float  # of one prompt alone
    step_s: float  # in which each user gets a token, sending it included
    answers_s: float  # until all have their answers
    parts: StepParts  # of `answers_s`, at the engine with most users
    sending_s: float  # of `answers_s`: the server's work for tokens

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of `answers_s`, by what takes them."""
        parts = self.parts
        return {
            "matrices": parts.linear, "attention": parts.attention, "link": parts.link, "barriers": parts.barriers,
            "overhead": parts.rest, "sending": self.sending_s,
        }  # fmt: skip


def nodes_plans(
    model: SizedModel, machine: SizedMachine, service: ServiceLevel, num_users: int
) -> tuple[NodesPlan, ...]:
    """Both ways; none of a machine with one node."""
    if machine.rates.link.num_nodes == 1:
        return ()
    return tuple(_nodes_plan(way, model, machine, service, num_users) for way in (SPLIT, EACH))


def better_way(plans: Sequence[NodesPlan]) -> NodesPlan:
    """The way that fits and answers all users sooner; one engine, if that is nearly as fast."""
    return min(plans, key=lambda plan: (not plan.fits, plan.answers_s * (MARGIN if plan.way == EACH else 1)))


def why(plans: Sequence[NodesPlan]) -> str:
    """Why the better way is better."""
    best = better_way(plans)
    other = next(plan for plan in plans if plan is not best)
    if not other.fits:
        return "the model does not fit into the memory of one node" if best.fits else "the model does not fit"
    if other.answers_s < best.answers_s:
        return f"{best.answers_s:.3g} s and {other.answers_s:.3g} until all have their answers are too near to tell"
    term = max(best.terms, key=lambda term: other.terms[term] - best.terms[term])
    return (
        f"{best.answers_s:.3g} s instead of {other.answers_s:.3g} until all have their answers; "
        f"of these, {term}: {best.terms[term]:.2g} s instead of {other.terms[term]:.2g}"
    )


def _nodes_plan(way: str, model: SizedModel, machine: SizedMachine, service: ServiceLevel, num_users: int) -> NodesPlan:
    num_engines = machine.rates.link.num_nodes if way == EACH else 1
    planner = ModelPlanner(model, machine.one_node() if way == EACH else machine, service)
    own_users = math.ceil(num_users / num_engines)
    running = max(1, min(own_users, planner.memory.num_requests))  # of an engine's users, at a time
    prompt = planner.times.prefill_parts(service.prompt_tokens, MAX_CHUNK)
    chunk = ChunkLoad(1, service.prompt_tokens + service.answer_tokens // 2)
    step = planner.times.parts([chunk] * running, running)
    num_steps = math.ceil(own_users / running) * service.answer_tokens
    parts = total_parts([(own_users, prompt), (num_steps, step)])
    sending_s = own_users * service.answer_tokens * SERVED_TOKEN_S
    return NodesPlan(
        way, num_users, num_engines, planner.memory.fits, prompt.total, step.total + running * SERVED_TOKEN_S,
        parts.total + sending_s, parts, sending_s,
    )  # fmt: skip
