"""Who goes before whom, and that nobody is left behind."""

import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from surefoot.core import ServiceClass
from surefoot.scheduler import SchedulerConfig
from surefoot.scheduler.users import Users
from tests.scheduler.fake_runner import Loop
from tests.scheduler.workloads import key, make_loop, request


def test_decoding_comes_before_prompts() -> None:
    loop = make_loop(SchedulerConfig())
    loop.scheduler.add(request("talks", 10, 50))
    loop.step()
    loop.scheduler.add(request("reads", 2000, 5))
    plan = loop.step()
    assert [chunk.key.request for chunk in plan.chunks] == ["talks", "reads"]
    assert [chunk.num_logits for chunk in plan.chunks] == [1, 0]


def test_a_short_request_overtakes_a_long_prompt_that_has_begun() -> None:
    loop = make_loop(SchedulerConfig(max_context=20_000))
    loop.scheduler.add(request("long", 8000, 1))
    for _ in range(3):
        loop.step()
    loop.scheduler.add(request("short", 50, 1))
    loop.drain(200)
    assert loop.first_step[key("short")] <= 5
    assert loop.first_step[key("long")] > 15


def test_larger_priorities_and_interactive_requests_go_first() -> None:
    loop = make_loop(SchedulerConfig(max_running=1))
    order = [
        ("batch", -1, ServiceClass.BATCH),
        ("low", -1, ServiceClass.INTERACTIVE),
        ("high", 2, ServiceClass.INTERACTIVE),
    ]
    for name, priority, service in order:
        loop.scheduler.add(request(name, 20, 2, priority=priority, service=service, user=name))
    loop.drain(100)
    assert sorted(loop.first_step, key=lambda one: loop.first_step[one]) == [key("high"), key("low"), key("batch")]


def test_of_equals_the_one_with_a_cached_prefix_goes_first() -> None:
    loop = make_loop(SchedulerConfig(max_running=1, first_chunk=400))
    loop.scheduler.add(request("before", 160, 1, text=1))
    loop.drain(10)
    loop.scheduler.add(request("new", 160, 1, text=2))
    loop.scheduler.add(request("known", 160, 1, text=1))
    loop.drain(10)
    assert loop.first_step[key("known")] < loop.first_step[key("new")]
    assert loop.ended[key("known")].num_cached == 144  # nine blocks of ten: its last token must be computed


# ---- fairness ----


def served(loop: Loop, user: str) -> float:
    """What the user's requests have cost, from what came out of them."""
    cost, num_prompt = loop.scheduler.config.output_cost, {"modest": 160, "greedy": 16}[user]
    return sum(num_prompt + cost * len(tokens) for one, tokens in loop.tokens.items() if one.request.startswith(user))


@pytest.mark.parametrize(("weight", "own", "share"), [(1.0, None, 1 / 2), (3.0, None, 3 / 4), (1.0, 3.0, 3 / 4)])
def test_users_get_shares_by_weight_however_much_they_ask_for(weight: float, own: float | None, share: float) -> None:
    """own: what the requests themselves say."""
    config = SchedulerConfig(max_running=8, user_weights={"modest": weight})
    loop = make_loop(config)
    for number in range(600):
        loop.scheduler.add(request(f"greedy{number}", 16, 92, user="greedy"))
    for number in range(300):
        loop.scheduler.add(request(f"modest{number}", 160, 20, user="modest", weight=own))
    for _ in range(1200):
        loop.step()
    modest, greedy = served(loop, "modest"), served(loop, "greedy")
    assert min(modest, greedy) > 0
    assert modest / (modest + greedy) == pytest.approx(share, abs=0.06)


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=15)
def test_backlogged_users_never_drift_apart(seed: int, num_users: int) -> None:
    """The bound of virtual token counters: what one step's company and one request can add, however long it goes on."""
    rng, config = random.Random(seed), SchedulerConfig(max_running=6, max_context=400)
    loop = make_loop(config)
    for number in range(120):
        for user in range(num_users):
            loop.scheduler.add(request(f"{user}:{number}", rng.randint(20, 200), rng.randint(5, 60), user=str(user)))
    most = 0.0
    for _ in range(300):
        loop.step()
        counters = [user.counter for user in loop.scheduler._users._present.values()]
        assert len(counters) == num_users
        most = max(most, max(counters) - min(counters))
    # Every running sample may be one user's, admitted when that user had least; equals may differ by the slack.
    request_cost = 200 + config.output_cost * 60
    assert most <= 2 * config.max_running * request_cost + config.slack_tokens


def test_a_newcomer_gets_a_row_of_who_holds_them_all() -> None:
    """In the next step; half of the newcomer's part is there at once, and who gave way is not sent to and fro."""
    loop = make_loop(SchedulerConfig(max_running=8))
    for number in range(20):
        loop.scheduler.add(request(f"many-{number}", 20, 200, user="many"))
    for _ in range(30):
        loop.step()
    assert loop.scheduler.num_running == 8
    loop.scheduler.add(request("few-0", 20, 5, user="few"))
    plan = loop.step()
    assert "few-0" in [chunk.key.request for chunk in plan.chunks]
    assert loop.scheduler.num_preemptions == 1
    for number in range(1, 20):
        loop.scheduler.add(request(f"few-{number}", 20, 200, user="few"))
    for _ in range(30):
        loop.step()
        loop.scheduler.audit()
    rows = [sample.user.name for sample in loop.scheduler._running.decoding]
    assert rows.count("few") >= 2
    loop.drain(20_000)
    assert loop.scheduler.num_preemptions <= 10, "one in four of forty requests"


@given(
    seed=st.integers(0, 2**32), num_before=st.integers(1, 80), num_prompt=st.integers(2, 300),
    base_ms=st.integers(2, 40), token_ms=st.floats(0.1, 5), max_running=st.sampled_from([8, 32, 64]),
)  # fmt: skip
# The last row is taken in turn, and one that decodes ends in the same step.
@example(seed=100782566, num_before=68, num_prompt=2, base_ms=34, token_ms=0.65625, max_running=32)
@settings(max_examples=40)
def test_who_has_nothing_else_overtakes_a_crowd_whose_prompts_are_read(
    seed: int, num_before: int, num_prompt: int, base_ms: int, token_ms: float, max_running: int
) -> None:
    """But for what goes by waiting alone (one admission, and one step in turn_every), every step until the first token
    reads this prompt, and no other; and of these each reads it too, unless they took its last row or budget."""
    config = SchedulerConfig(max_running=max_running, max_context=1024)
    rng, loop = random.Random(seed), make_loop(config, base_ms=base_ms, token_ms=token_ms)
    for number in range(50):
        loop.scheduler.add(request(f"many{number}", rng.randint(128, 256), rng.randint(16, 128), user="many"))
    for _ in range(num_before):
        loop.step()
    loop.scheduler.add(request("one", num_prompt, 1, user="one"))
    begin, num_in_turn = loop.num_steps, 0
    while key("one") not in loop.tokens:
        talking, num_ended = loop.tokens.keys() - loop.ended.keys(), len(loop.ended)
        read = {chunk.key: len(chunk.tokens) for chunk in loop.step().chunks if chunk.key not in talking}
        num_in_turn += read.keys() != {key("one")}
        num_planned = loop.scheduler.num_running + len(loop.ended) - num_ended
        assert key("one") in read or sum(read.values()) <= 2 * config.min_chunk or num_planned == max_running
    assert num_in_turn <= 1 + math.ceil((loop.num_steps - begin) / config.turn_every)


def test_a_short_prompt_of_who_has_nothing_else_is_read_whole() -> None:
    """However little of a prompt the step would take, by the gaps of those who decode."""
    config = SchedulerConfig()
    loop = make_loop(config, base_ms=300.0)
    for number in range(8):
        loop.scheduler.add(request(f"many{number}", 20, 200, user="many"))
    loop.scheduler.add(request("long", 2000, 1, user="many"))
    for _ in range(12):
        least = loop.step()
    assert max(len(chunk.tokens) for chunk in least.chunks) < 2 * config.min_chunk
    for name, num_prompt in (("short", config.full_chunk), ("longer", config.full_chunk + 1)):
        loop.scheduler.add(request(name, num_prompt, 1, user=name))
        begin = loop.num_steps
        while key(name) not in loop.tokens:
            loop.step()
        assert (loop.num_steps - begin == 1) == (name == "short")


def test_who_is_waited_for_gets_a_row_of_who_is_not() -> None:
    loop = make_loop(SchedulerConfig(max_running=4))
    for number in range(8):
        loop.scheduler.add(request(f"batch-{number}", 20, 300, service=ServiceClass.BATCH))
    for _ in range(20):
        loop.step()
    loop.scheduler.add(request("talks", 20, 5))
    assert "talks" in [chunk.key.request for chunk in loop.step().chunks]
    loop.drain(5000)


def test_time_away_earns_nothing_and_costs_nothing() -> None:
    users = Users({})
    busy = users.enter("busy")
    busy.counter = 1000.0
    assert users.enter("new").counter == 1000.0
    users.leave(users.enter("new"))
    users.leave(busy)
    assert users.enter("late").counter == 1000.0


def test_users_who_left_are_forgotten() -> None:
    loop = make_loop(SchedulerConfig())
    for number in range(300):
        loop.scheduler.add(request(f"r{number}", 20, 2, user=f"u{number}"))
        loop.step()
    loop.drain(100)
    assert len(loop.scheduler._users) < 30


# ---- no starvation ----


def steps_until_first_token(loop: Loop, name: str, num_rivals: int, rng: random.Random, most: int) -> int:
    """Rivals come in every step, all of them new users, short, urgent and preferred in every way."""
    start = loop.num_steps
    for number in range(most):
        for rival in range(num_rivals):
            num_prompt, num_new = rng.randint(1, 40), rng.randint(1, 12)
            rival_name = f"rival{number}.{rival}"
            loop.scheduler.add(request(rival_name, num_prompt, num_new, user=rival_name, priority=8))
        loop.step()
        if key(name) in loop.tokens:
            return loop.num_steps - start
    raise AssertionError(f"no token in {most} steps")


def test_a_prompt_that_has_begun_gets_its_share_of_steps() -> None:
    """Rivals are let in without end, each before it by priority, and would take every token there is."""
    config = SchedulerConfig(max_running=1000, gap_ms=20.0)
    rng, loop = random.Random(1), make_loop(config)
    loop.scheduler.add(request("long", 400, 1, user="poor", priority=-8))
    loop.step()
    most = config.turn_every * (400 // config.min_chunk + 1)
    assert steps_until_first_token(loop, "long", 4, rng, most)


@given(
    seed=st.integers(0, 2**32), num_before=st.integers(0, 6), num_prompt=st.integers(1, 600),
    num_rivals=st.integers(1, 6), max_running=st.integers(1, 6), num_blocks=st.integers(40, 200),
)  # fmt: skip
@settings(max_examples=25)
def test_nobody_starves(
    seed: int, num_before: int, num_prompt: int, num_rivals: int, max_running: int, num_blocks: int
) -> None:
    """The first token comes within a bound that knows those who were there before, and nothing of who comes later.

    Let m be the least budget of a step, k = turn_every, and let a request have at most P prompt and N new tokens. Once
    admitted, and the first of those who have begun, a prompt takes at most k P / m steps. Between two turns there are
    k - 1 other admissions. A turn that must wait for room waits at most for all R who run: their prompts one after the
    other, and N steps to decode. So a turn comes within k (k P / m + N) + R k P / m + N steps, and at most num_before
    turns come before this one's (each of the others is another user).
    """
    config = SchedulerConfig(max_running=max_running, max_context=700, min_chunk=16, gap_ms=20.0, headroom_tokens=16)
    rng, loop = random.Random(seed), make_loop(config, num_blocks)
    for number in range(num_before):
        loop.scheduler.add(request(f"before{number}", rng.randint(1, 40), rng.randint(1, 12), user=f"b{number}"))
    loop.scheduler.add(request("last", num_prompt, 1, user="poor", priority=-8, service=ServiceClass.BATCH))
    every, chunks, num_new = config.turn_every, max(num_prompt, 40) // config.min_chunk + 1, 12
    turn = every * (every * chunks + num_new) + max_running * every * chunks + num_new
    assert steps_until_first_token(loop, "last", num_rivals, rng, (num_before + 1) * turn)
