"""How much KV memory holds no token: paged blocks compared with preallocation of the whole context."""

import random

from surefoot.kv import KvUsage
from surefoot.scheduler import SchedulerConfig
from tests.scheduler.workloads import BLOCK, make_loop, request


def mixed_lengths(count: int) -> list[tuple[int, int]]:
    """Prompt and output lengths of the mixed workload."""
    rng = random.Random(777)
    return [(rng.randint(128, 256), rng.randint(16, 128)) for _ in range(count)]


def test_paged_blocks_waste_under_four_percent() -> None:
    config = SchedulerConfig(max_context=1024, max_running=32)
    loop = make_loop(config)
    for number, (num_prompt, num_new) in enumerate(mixed_lengths(96)):
        loop.scheduler.add(request(f"r{number}", num_prompt, num_new))
    allocated = unused = preallocated = 0
    while loop.scheduler.has_work:
        loop.step()
        (usage,) = loop.scheduler.kv.usage()
        assert isinstance(usage, KvUsage)
        allocated += usage.num_held * BLOCK
        unused += usage.unused_slots
        preallocated += loop.scheduler.num_running * config.max_context
    paged_waste, preallocated_waste = unused / allocated, 1 - (allocated - unused) / preallocated
    print(f"slots without a token: {paged_waste:.1%} in blocks of {BLOCK}, {preallocated_waste:.1%} preallocated")
    assert paged_waste < 0.04
    assert preallocated_waste > 0.6
