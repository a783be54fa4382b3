"""The scheduler alone, with far more requests than a machine would have."""

import random
import statistics
from time import thread_time

from surefoot.core import Chunk, Output, Request, SampleKey, SamplingParams, StepPlan, StepResult
from surefoot.kv import KvGroup, KvLayout, KvManager
from surefoot.scheduler import Scheduler, SchedulerConfig

MOST_MS = 2.0
REFERENCE_MS = 1.0  # what 2,000 chunks take on a core of this project's test machine that has nothing else to do


def make_request(rng: random.Random, number: int) -> Request:
    prompt = tuple(rng.randrange(30000) for _ in range(rng.randint(128, 256)))
    params = SamplingParams(max_tokens=rng.randint(400, 2000))
    return Request(f"r{number}", prompt, params, user=f"u{rng.randrange(200)}", priority=rng.randint(-1, 1))


def draw(plan: StepPlan) -> StepResult:
    return StepResult([Output(chunk.key, (7,)) for chunk in plan.chunks if chunk.samples], 50.0)


def loaded(num_running: int, num_waiting: int) -> Scheduler:
    """Everyone who can run decodes; the rest wait."""
    rng = random.Random(1)
    config = SchedulerConfig(max_running=num_running, max_step_tokens=50_000, first_chunk=50_000)
    scheduler = Scheduler(config, KvManager(KvLayout(16, (KvGroup(num_running * 160),))))
    for number in range(num_running + num_waiting):
        scheduler.add(make_request(rng, number))
    while scheduler.num_waiting > num_waiting or scheduler._prefilling:
        scheduler.commit(draw(scheduler.schedule()))
    return scheduler


def time_steps_ms(scheduler: Scheduler, rng: random.Random, num_steps: int) -> list[float]:
    """Schedule and commit, in the processor's time; in every other step a request ends and another comes, which is
    somewhat more often than these lengths would have it."""
    times = []
    for number in range(num_steps):
        if number % 2:
            scheduler.add(make_request(rng, rng.getrandbits(60)))
            scheduler.cancel(next(iter(scheduler._decoding)).request.id)
        start = thread_time()
        plan = scheduler.schedule()
        scheduled = thread_time()
        result = draw(plan)
        committing = thread_time()
        scheduler.commit(result)
        times.append((scheduled - start + thread_time() - committing) * 1000)
    return times


def slowness() -> float:
    """By how much whatever else runs on the machine slows Python down at this moment; never below 1."""
    start, key = thread_time(), SampleKey("r")
    for number in range(2000):
        Chunk(key, number, (number,), ((number,),), 1, (0,))
    return max(1.0, (thread_time() - start) * 1000 / REFERENCE_MS)


def median_ms(scheduler: Scheduler) -> float:
    """As it would be on a core at rest."""
    rng, times, slow = random.Random(2), [], []
    for _ in range(12):
        slow.append(slowness())
        times += time_steps_ms(scheduler, rng, 10)
    median, by = statistics.median(times), statistics.median(slow)
    print(f"{scheduler.num_running} running, {scheduler.num_waiting} waiting: {median:.2f} ms at slowness {by:.2f}")
    return median / by


def test_ten_thousand_wait_and_five_hundred_run() -> None:
    scheduler = loaded(512, 10_000)
    assert (scheduler.num_running, scheduler.num_waiting) == (512, 10_000)
    assert median_ms(scheduler) < MOST_MS
    assert scheduler.num_waiting >= 9_900


def test_cost_grows_no_faster_than_n_log_n() -> None:
    sizes = [(64, 1_250), (512, 10_000)]
    medians = [median_ms(loaded(*size)) for size in sizes]
    # n log n for eight times as many is a factor of 8 * 13.3 / 10.3; noise may add a half.
    assert medians[1] / medians[0] < 8 * 13.3 / 10.3 * 1.5
