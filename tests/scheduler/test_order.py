"""The order in which requests are served, fair shares, and that no request starves."""

import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from surefoot.core import ServiceClass
from surefoot.scheduler import SchedulerConfig
from surefoot.scheduler.sample import Users
from tests.scheduler.fake_runner import Loop
from tests.scheduler.workloads import key, make_loop, request


def test_decoding_comes_before_prompts() -> None:
    loop = make_loop(SchedulerConfig())
    loop.scheduler.add(request("decoding", 10, 50))
    loop.step()
    loop.scheduler.add(request("prefilling", 2000, 5))
    plan = loop.step()
    assert [chunk.key.request for chunk in plan.chunks] == ["decoding", "prefilling"]
    assert [chunk.num_logits for chunk in plan.chunks] == [1, 0]


def test_a_short_request_overtakes_a_long_prefill() -> None:
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
    assert sorted(loop.first_step, key=loop.first_step.__getitem__) == [key("high"), key("low"), key("batch")]


def test_of_equal_requests_the_one_with_a_cached_prefix_goes_first() -> None:
    loop = make_loop(SchedulerConfig(max_running=1, first_chunk=400))
    loop.scheduler.add(request("before", 160, 1, text=1))
    loop.drain(10)
    loop.scheduler.add(request("new", 160, 1, text=2))
    loop.scheduler.add(request("known", 160, 1, text=1))
    loop.drain(10)
    assert loop.first_step[key("known")] < loop.first_step[key("new")]
    assert loop.ended[key("known")].num_cached == 144  # nine blocks of ten: the last token must be computed


# ---- fairness ----


def served(loop: Loop, user: str) -> float:
    """Tokens charged to the user, from their requests' outputs."""
    cost, num_prompt = loop.scheduler.config.output_cost, {"modest": 160, "greedy": 16}[user]
    return sum(
        num_prompt + cost * len(tokens) for sample, tokens in loop.tokens.items() if sample.request.startswith(user)
    )


@pytest.mark.parametrize(
    ("weight", "request_weight", "share"), [(1.0, None, 1 / 2), (3.0, None, 3 / 4), (1.0, 3.0, 3 / 4)]
)
def test_users_get_shares_by_weight_however_much_they_ask_for(
    weight: float, request_weight: float | None, share: float
) -> None:
    config = SchedulerConfig(max_running=8, user_weights={"modest": weight})
    loop = make_loop(config)
    for number in range(600):
        loop.scheduler.add(request(f"greedy{number}", 16, 92, user="greedy"))
    for number in range(300):
        loop.scheduler.add(request(f"modest{number}", 160, 20, user="modest", weight=request_weight))
    for _ in range(1200):
        loop.step()
    modest, greedy = served(loop, "modest"), served(loop, "greedy")
    assert min(modest, greedy) > 0
    assert modest / (modest + greedy) == pytest.approx(share, abs=0.06)


def test_a_user_of_little_weight_with_one_row_does_not_hide_a_user_with_many() -> None:
    """The tiny user is furthest above their share, but has no row to give."""
    loop = make_loop(SchedulerConfig(max_running=4, max_context=4096))
    loop.scheduler.add(request("tiny", 16, 2000, user="tiny", weight=0.01))
    for number in range(10):
        loop.scheduler.add(request(f"greedy{number}", 16, 2000, user="greedy"))
    for _ in range(20):
        loop.step()
    loop.scheduler.add(request("light", 16, 1, user="light"))
    for _ in range(5):
        loop.step()
    assert loop.tokens[key("light")]


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=15)
def test_backlogged_users_never_drift_apart(seed: int, num_users: int) -> None:
    """Counters of users who always have work differ by a bound that does not grow with time."""
    rng, config = random.Random(seed), SchedulerConfig(max_running=6, max_context=400)
    loop = make_loop(config)
    for number in range(120):
        for user in range(num_users):
            loop.scheduler.add(request(f"{user}:{number}", rng.randint(20, 200), rng.randint(5, 60), user=str(user)))
    largest = 0.0
    for _ in range(300):
        loop.step()
        counters = [user.counter for user in loop.scheduler._users._present.values()]
        assert len(counters) == num_users
        largest = max(largest, max(counters) - min(counters))
    # All running samples may belong to one user, admitted when that user's counter was lowest. Equals may differ by
    # the slack.
    request_cost = 200 + config.output_cost * 60
    assert largest <= 2 * config.max_running * request_cost + config.slack_tokens


def test_a_new_user_takes_rows_from_a_user_who_holds_all() -> None:
    """The first row in the next step, half of the fair share soon. No sample is preempted again and again."""
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
    assert loop.scheduler.num_preemptions <= 10, "one for every four of forty requests"


@given(
    seed=st.integers(0, 2**32), num_before=st.integers(1, 80), num_prompt=st.integers(2, 300),
    base_ms=st.integers(2, 40), token_ms=st.floats(0.1, 5), max_running=st.sampled_from([8, 32, 64]),
)  # fmt: skip
# The last row goes to the longest wait, and a decoding sample ends in the same step.
@example(seed=100782566, num_before=68, num_prompt=2, base_ms=34, token_ms=0.65625, max_running=32)
@settings(max_examples=40)
def test_a_users_only_request_overtakes_prompts_of_a_busy_user(
    seed: int, num_before: int, num_prompt: int, base_ms: int, token_ms: float, max_running: int
) -> None:
    """Every step until the first token computes this prompt and no other, except for turns by waiting time: one
    admission, and one step in `turn_every`. These steps compute it too, unless they took the last row or budget."""
    config = SchedulerConfig(max_running=max_running, max_context=1024)
    rng, loop = random.Random(seed), make_loop(config, base_ms=base_ms, token_ms=token_ms)
    for number in range(50):
        loop.scheduler.add(request(f"many{number}", rng.randint(128, 256), rng.randint(16, 128), user="many"))
    for _ in range(num_before):
        loop.step()
    loop.scheduler.add(request("one", num_prompt, 1, user="one"))
    begin, num_by_waiting = loop.num_steps, 0
    while key("one") not in loop.tokens:
        decoding, num_ended = loop.tokens.keys() - loop.ended.keys(), len(loop.ended)
        prompts = {chunk.key: len(chunk.tokens) for chunk in loop.step().chunks if chunk.key not in decoding}
        num_by_waiting += prompts.keys() != {key("one")}
        num_planned = loop.scheduler.num_running + len(loop.ended) - num_ended
        assert key("one") in prompts or sum(prompts.values()) <= 2 * config.min_chunk or num_planned == max_running
    assert num_by_waiting <= 1 + math.ceil((loop.num_steps - begin) / config.turn_every)


def test_a_short_prompt_of_a_users_only_request_is_not_split() -> None:
    """Even if the budget of the step is smaller, because other requests decode."""
    config = SchedulerConfig()
    loop = make_loop(config, base_ms=300.0)
    for number in range(8):
        loop.scheduler.add(request(f"many{number}", 20, 200, user="many"))
    loop.scheduler.add(request("long", 2000, 1, user="many"))
    for _ in range(12):
        plan = loop.step()
    assert max(len(chunk.tokens) for chunk in plan.chunks) < 2 * config.min_chunk
    for name, num_prompt in (("short", config.full_chunk), ("longer", config.full_chunk + 1)):
        loop.scheduler.add(request(name, num_prompt, 1, user=name))
        begin = loop.num_steps
        while key(name) not in loop.tokens:
            loop.step()
        assert (loop.num_steps - begin == 1) == (name == "short")


def test_an_interactive_request_takes_a_row_from_a_batch_request() -> None:
    loop = make_loop(SchedulerConfig(max_running=4))
    for number in range(8):
        loop.scheduler.add(request(f"batch-{number}", 20, 300, service=ServiceClass.BATCH))
    for _ in range(20):
        loop.step()
    loop.scheduler.add(request("interactive", 20, 5))
    assert "interactive" in [chunk.key.request for chunk in loop.step().chunks]
    loop.drain(5000)


def test_absence_earns_no_credit() -> None:
    users = Users({})
    busy = users.enter("busy")
    busy.counter = 1000.0
    assert users.enter("new").counter == 1000.0
    users.leave(users.enter("new"))
    users.leave(busy)
    assert users.enter("late").counter == 1000.0


def test_absent_users_are_forgotten() -> None:
    loop = make_loop(SchedulerConfig())
    for number in range(300):
        loop.scheduler.add(request(f"r{number}", 20, 2, user=f"u{number}"))
        loop.step()
    loop.drain(100)
    assert len(loop.scheduler._users) < 30


# ---- no starvation ----


def steps_until_first_token(loop: Loop, name: str, num_rivals: int, rng: random.Random, max_steps: int) -> int:
    """Rivals arrive in every step. All of them are new users with short prompts and the highest priority."""
    start = loop.num_steps
    for number in range(max_steps):
        for rival in range(num_rivals):
            num_prompt, num_new = rng.randint(1, 40), rng.randint(1, 12)
            rival_name = f"rival{number}.{rival}"
            loop.scheduler.add(request(rival_name, num_prompt, num_new, user=rival_name, priority=8))
        loop.step()
        if key(name) in loop.tokens:
            return loop.num_steps - start
    raise AssertionError(f"no token in {max_steps} steps")


def test_a_prefilling_prompt_gets_its_share_of_steps() -> None:
    """Rivals of higher priority are admitted in every step, and would take the whole budget."""
    config = SchedulerConfig(max_running=1000, gap_ms=20.0)
    rng, loop = random.Random(1), make_loop(config)
    loop.scheduler.add(request("long", 400, 1, user="poor", priority=-8))
    loop.step()
    max_steps = config.turn_every * (400 // config.min_chunk + 1)
    assert steps_until_first_token(loop, "long", 4, rng, max_steps)


@given(
    seed=st.integers(0, 2**32), num_before=st.integers(0, 6), num_prompt=st.integers(1, 600),
    num_rivals=st.integers(1, 6), max_running=st.integers(1, 6), num_blocks=st.integers(40, 200),
)  # fmt: skip
@settings(max_examples=25)
def test_no_request_starves(
    seed: int, num_before: int, num_prompt: int, num_rivals: int, max_running: int, num_blocks: int
) -> None:
    """The first token comes within a bound that depends on earlier requests, and not on later ones.

    Let m be the minimum budget of a step, k = turn_every, and let a request have at most P prompt and N new tokens. A
    prompt that is the oldest prefilling one takes at most k P / m steps. Between two turns there are k - 1 other
    admissions. A turn that must wait for room waits at most for all R running requests: their prompts one after the
    other, and N steps to decode. So a turn comes within k (k P / m + N) + R k P / m + N steps, and at most num_before
    turns come before (each earlier request belongs to another user).
    """
    config = SchedulerConfig(max_running=max_running, max_context=700, min_chunk=16, gap_ms=20.0, headroom_tokens=16)
    rng, loop = random.Random(seed), make_loop(config, num_blocks)
    for number in range(num_before):
        loop.scheduler.add(request(f"before{number}", rng.randint(1, 40), rng.randint(1, 12), user=f"b{number}"))
    loop.scheduler.add(request("last", num_prompt, 1, user="poor", priority=-8, service=ServiceClass.BATCH))
    every, chunks, num_new = config.turn_every, max(num_prompt, 40) // config.min_chunk + 1, 12
    turn = every * (every * chunks + num_new) + max_running * every * chunks + num_new
    assert steps_until_first_token(loop, "last", num_rivals, rng, (num_before + 1) * turn)
