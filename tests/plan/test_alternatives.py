"""What a change would give, by the same cost model."""

from dataclasses import replace

import pytest

from surefoot.plan.alternatives import drafted_speed, find_alternatives
from surefoot.plan.machines import SizedMachine, find_machine
from surefoot.plan.planning import ModelPlanner, ServiceLevel
from surefoot.plan.subject import find_subject
from surefoot.weights.gguf import Host
from tests.plan.machines import GB, machine, model

SERVICE = ServiceLevel(prompt_tokens=60, answer_tokens=20, first_token_s=0.5, tokens_per_second=20.0, pause_s=0.5)


def speeds(planned: SizedMachine, service: ServiceLevel = SERVICE) -> dict[str, float]:
    planner = ModelPlanner(model(), planned, service)
    return {other.change: other.tokens_per_second for other in find_alternatives(planner, None)}


def test_alternatives_name_what_limits() -> None:
    slow_memory = machine(read=GB / 10, operations=1000 * GB)
    by_change, planner = speeds(slow_memory), ModelPlanner(model(), slow_memory, SERVICE)
    assert planner.one_user().tokens_bound == "memory bandwidth"
    assert by_change["twice the bandwidth"] > 1.8 * by_change["twice the cores"]
    assert by_change["twice both"] >= by_change["twice the bandwidth"]
    assert by_change["4 instead of 8 bits"] > 1.3 * planner.one_user().tokens_per_second


def test_a_cached_half_of_the_prompt_halves_the_wait() -> None:
    planner = ModelPlanner(model(), machine(operations=GB), SERVICE)
    (cached,) = [other for other in find_alternatives(planner, None) if "cached" in other.change]
    assert cached.first_token_s == pytest.approx(planner.one_user().first_token_s / 2, rel=0.2)


def test_without_the_cache_shared_tokens_are_computed() -> None:
    planner = ModelPlanner(model(), machine(operations=GB), replace(SERVICE, shared_tokens=30))
    (uncached,) = [other for other in find_alternatives(planner, None) if other.change == "no prefix cache"]
    assert uncached.first_token_s == planner.one_user().first_token_s


def test_amx_shortens_prompts_and_leaves_reading_as_it_is() -> None:
    planner = ModelPlanner(find_subject("qwen3-8b:q8_0").on(Host()), find_machine("epyc-7763"), ServiceLevel())
    alone, by_change = planner.one_user(), {other.change: other for other in find_alternatives(planner, None)}
    amx = by_change["cores with amx"]
    assert amx.first_token_s < 0.5 * alone.first_token_s
    assert amx.tokens_per_second == pytest.approx(alone.tokens_per_second, rel=0.4)
    wide = ModelPlanner(find_subject("qwen3-8b:q8_0").on(Host()), find_machine("xeon-8480"), ServiceLevel())
    assert not any("amx" in other.change for other in find_alternatives(wide, None))


def test_drafts_that_are_accepted_pay_where_memory_limits() -> None:
    times = ModelPlanner(model(), machine(read=GB / 10, operations=1000 * GB), SERVICE).times
    plain, half, most = (drafted_speed(times, accepted, 60) for accepted in (0.0, 0.5, 0.8))
    assert plain < half < most < plain / (1 - 0.8)


def test_drafts_do_not_pay_where_arithmetic_limits() -> None:
    times = ModelPlanner(model(), machine(read=1000 * GB, operations=GB), SERVICE).times
    assert drafted_speed(times, 0.5, 60) == pytest.approx(drafted_speed(times, 0.0, 60))


def test_what_does_not_fit_has_no_alternatives() -> None:
    assert not find_alternatives(ModelPlanner(model(), machine(memory=1000), SERVICE), None)
