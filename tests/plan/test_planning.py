"""Plans: what fits, how fast, how many users."""

from dataclasses import replace

import pytest

from surefoot import LLM
from surefoot.api.opening import open_model
from surefoot.plan.planning import MAX_USERS, ModelPlanner, ServiceLevel, make_plan
from surefoot.plan.subject import find_subject, plan_model
from surefoot.weights.gguf import Host
from tests.plan.machines import GB, machine, model
from tests.smollm2 import find_file
from tests.stories import stories_gguf

SERVICE = ServiceLevel(prompt_tokens=60, answer_tokens=20, first_token_s=0.5, tokens_per_second=20.0, pause_s=0.5)


def test_weights_are_those_of_the_loaded_model() -> None:
    llm = LLM(stories_gguf(), max_context=128, max_running=2, speculate="off", threads=1)
    planned = model()
    assert sum(use.read_bytes for use in (*planned.work.matrices, *planned.work.head)) <= llm.read_bytes(0)
    assert planned.token_bytes == llm.read_bytes(1) - llm.read_bytes(0)


def test_decoding_is_stated_as_a_share_of_what_the_files_bytes_allow() -> None:
    """SmolLM2's file has its embeddings once: they are its head too. Of a file of floats no share is stated."""
    sized = plan_model(open_model(find_file()))
    alone = ModelPlanner(sized, machine(read=GB), SERVICE).one_user()
    assert sized.file_bytes is not None
    assert 0.95 * find_file().stat().st_size < sized.file_bytes < find_file().stat().st_size
    assert alone.of_file_limit == pytest.approx(alone.tokens_per_second * sized.file_bytes / GB)
    assert ModelPlanner(model(), machine(), SERVICE).one_user().of_file_limit is None


def test_weights_at_the_files_own_width_are_measured_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = find_subject("smollm2-135m").on(Host())
    monkeypatch.setattr("surefoot.weights.gguf.MAX_WIDE_SHARE", 0)
    narrow = find_subject("smollm2-135m").on(Host())
    assert narrow.weight_bytes < wide.weight_bytes
    assert narrow.linear_shapes == wide.linear_shapes


def test_a_size_is_that_on_the_machine_that_loads_the_model() -> None:
    """Whatever this machine is: codes keep their width where registers make them, scales where memory is short."""
    subject = find_subject("smollm2-135m:q4_k_m")
    wide, codes, narrow = (
        subject.on(host).weight_bytes for host in (Host("amx", 64 * GB), Host("avx512", 64 * GB), Host("amx", GB // 10))
    )
    assert narrow < codes < wide


def test_carried_users_are_served_and_many_more_are_not() -> None:
    planner = ModelPlanner(model(), machine(read=GB, operations=GB), SERVICE)
    carried = planner.num_users()
    assert 1 < carried < MAX_USERS
    assert planner.load(carried).meets_service
    assert not planner.load(2 * carried).meets_service
    assert planner.users_bound(carried)


def test_where_the_search_begins_does_not_matter_much() -> None:
    planner = ModelPlanner(model(), machine(read=GB, operations=GB), SERVICE)
    assert planner.num_users(20) == pytest.approx(planner.num_users(), rel=0.15)


def test_what_does_not_fit_is_told_what_to_cut() -> None:
    plan = make_plan(model(), machine(memory=1000), SERVICE)
    assert not plan.memory.fits
    assert plan.alone is None
    assert any("more memory" in cut for cut in plan.cuts)


def test_tokens_have_an_energy_and_a_price() -> None:
    plain = make_plan(model(), machine(), SERVICE, 2, search=False)
    assert plain.expense is None
    dear = make_plan(model(), replace(machine(), watts=100.0, price_per_hour=3.6), SERVICE, 2, search=False)
    assert dear.expense is not None
    assert dear.load is not None
    speed = dear.load.total_tokens_per_second
    assert dear.expense.joules_per_token == pytest.approx(100 / speed)
    assert dear.expense.price_per_million == pytest.approx(1000 / speed)
