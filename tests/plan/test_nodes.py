"""One engine over all nodes beside one on each: what holds whatever the constants are."""

import math
from dataclasses import replace

import pytest

from surefoot.plan.machines import SizedMachine
from surefoot.plan.nodes import EACH, SPLIT, NodesPlan, better_way, nodes_plans, why
from surefoot.plan.planning import ModelPlanner, ServiceLevel
from surefoot.speed.rates import NodeLink
from tests.plan.machines import GB, machine, model

SERVICE = ServiceLevel(prompt_tokens=60, answer_tokens=20)


def two_nodes(link: float = math.inf, line_s: float = 0.0, memory: int = 8 * GB, read: float = 10 * GB) -> SizedMachine:
    one = machine(read, memory=memory)
    return replace(one, rates=replace(one.rates, link=NodeLink(2, link, line_s)))


def ways(on: SizedMachine, num_users: int) -> dict[str, NodesPlan]:
    return {plan.way: plan for plan in nodes_plans(model(), on, SERVICE, num_users)}


def test_a_machine_with_one_node_has_one_way() -> None:
    assert nodes_plans(model(), machine(), SERVICE, 1) == ()


def test_over_a_free_link_a_user_alone_has_the_speed_of_both_nodes() -> None:
    split, each = ways(two_nodes(), 1).values()
    assert (split.parts.link, split.parts.barriers) == (0.0, 0.0)
    assert each.parts.linear == pytest.approx(2 * split.parts.linear)
    assert each.parts.attention == pytest.approx(2 * split.parts.attention)


def test_an_engine_on_each_is_one_node_with_its_part_of_the_users() -> None:
    slow = two_nodes(GB / 100, 1e-3)
    node = ModelPlanner(model(), slow.one_node(), SERVICE)
    each, fewer = ways(slow, 3)[EACH], ways(slow, 4)[EACH]
    assert (each.parts.link, each.parts.barriers) == (0.0, 0.0)
    assert each.prompt_s == pytest.approx(node.times.prefill_seconds(60, 512))
    assert each.parts == fewer.parts  # two users at the busier engine


def test_the_link_decides() -> None:
    machines = (two_nodes(read=GB / 1000), two_nodes(GB / 1000, 1e-3, read=GB / 1000))
    free, slow = (nodes_plans(model(), on, SERVICE, 32) for on in machines)
    assert (better_way(free).way, better_way(slow).way) == (SPLIT, EACH)
    assert "matrices" in why(free)
    assert term_of(why(slow)) in ("link", "barriers")


def term_of(text: str) -> str:
    """The term that the sentence names."""
    return text.rpartition("of these, ")[2].partition(":")[0]


def test_where_fixed_costs_rule_two_engines_share_them() -> None:
    plans = nodes_plans(model(), two_nodes(), SERVICE, 32)
    assert better_way(plans).way == EACH
    assert term_of(why(plans)) == "sending"


def test_a_slower_link_never_helps() -> None:
    links = [NodeLink(2, read, line) for read, line in ((math.inf, 0.0), (GB, 0.0), (GB, 1e-6), (GB / 10, 1e-6))]
    times = [ways(two_nodes(link.bytes_per_second, link.line_s), 8)[SPLIT].answers_s for link in links]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_terms_are_all_of_the_time() -> None:
    for plan in ways(two_nodes(GB, 1e-6), 32).values():
        assert sum(plan.terms.values()) == pytest.approx(plan.answers_s)


def test_weights_that_fit_no_single_node_are_split() -> None:
    planner = ModelPlanner(model(), machine(), SERVICE)
    needed = planner.memory.used(2) / 0.8  # of which half is too little
    slow = two_nodes(GB / 100, 1e-3, memory=int(needed))
    plans = nodes_plans(model(), slow, SERVICE, 32)
    assert [plan.fits for plan in plans] == [True, False]
    assert better_way(plans).way == SPLIT
    assert "does not fit into the memory of one node" in why(plans)


def test_where_memory_is_short_users_take_turns() -> None:
    planner = ModelPlanner(model(), machine(), SERVICE)
    scarce = two_nodes(memory=planner.memory.used(0) + 4 * planner.memory.request)
    few, many = ways(scarce, 2)[SPLIT], ways(scarce, 32)[SPLIT]
    assert few.fits
    assert many.step_s < ways(two_nodes(), 32)[SPLIT].step_s
    assert many.answers_s > ways(two_nodes(), 32)[SPLIT].answers_s


def test_one_engine_is_taken_where_both_are_nearly_as_fast() -> None:
    split, each = nodes_plans(model(), two_nodes(), SERVICE, 32)
    near = (split, replace(each, answers_s=0.95 * split.answers_s))
    assert better_way(near).way == SPLIT
    assert "too near to tell" in why(near)
