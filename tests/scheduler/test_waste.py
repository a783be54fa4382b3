"""How much of the KV memory holds no token: blocks on demand beside rooms of a fixed size."""

import random

from surefoot.kv import KvUsage
from surefoot.scheduler import SchedulerConfig
from tests.scheduler.workloads import BLOCK, make_loop, request


def mixed(count: int) -> list[tuple[int, int]]:
    """Prompt and output lengths of the mixed workload."""
    rng = random.Random(777)
    return [(rng.randint(128, 256), rng.randint(16, 128)) for _ in range(count)]


def test_blocks_on_demand_waste_under_four_percent() -> None:
    config = SchedulerConfig(max_context=1024, max_running=32)
    loop = make_loop(config)
    for number, (num_prompt, num_new) in enumerate(mixed(96)):
        loop.scheduler.add(request(f"r{number}", num_prompt, num_new))
    allocated = unused = rooms = 0
    while loop.scheduler.has_work:
        loop.step()
        (usage,) = loop.scheduler.kv.usage()
        assert isinstance(usage, KvUsage)
        allocated += usage.num_held * BLOCK
        unused += usage.unused_slots
        rooms += loop.scheduler.num_running * config.max_context
    paged, preallocated = unused / allocated, 1 - (allocated - unused) / rooms
    print(f"slots without a token: {paged:.1%} in blocks of {BLOCK}, {preallocated:.1%} in rooms of 1,024 tokens")
    assert paged < 0.04
    assert preallocated > 0.6
