"""Paging and fragmentation: how much memory stays empty, by the size of a block. See fragmentation.md.

python docs/lessons/fragmentation.py [--quick] [--svg plot.svg]
"""

import random
from collections.abc import Sequence
from statistics import fmean

from lesson import arguments, draw, show

from surefoot.kv import KvGroup, KvLayout, KvManager, blocks_for

LONGEST = 2048  # tokens that a request could have
BLOCKS = (1, 4, 16, 64, 256)


def lengths(count: int) -> list[int]:
    """Of prompts with their answers: many short, few long."""
    rng = random.Random(1)
    return [min(LONGEST, max(8, round(rng.lognormvariate(5.5, 0.9)))) for _ in range(count)]


def unused_share(sizes: Sequence[int], block_size: int) -> float:
    """Of all slots that requests of these sizes hold, counted by the block manager."""
    kv = KvManager(KvLayout(block_size, (KvGroup(sum(blocks_for(size, block_size) for size in sizes)),)))
    for size in sizes:
        holding = kv.open()
        kv.extend(holding, size)
        kv.commit(holding, size, keys=[])
    usage = kv.usage()[0]
    kv.audit()
    return usage.unused_slots / (usage.num_held * block_size)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__, words, model=False)
    sizes = lengths(50 if asked.quick else 2000)
    mean = fmean(sizes)
    rows: list[tuple[object, float, float]] = []
    for block_size in BLOCKS:
        wasted = (block_size - 1) / 2  # the last block is half full on average
        rows.append((block_size, wasted / (mean + wasted), unused_share(sizes, block_size)))
    rows.append((f"{LONGEST}, reserved", 1 - mean / LONGEST, unused_share(sizes, LONGEST)))
    print(f"{len(sizes)} requests of {mean:.0f} tokens on average")
    show(("tokens of a block", "predicted unused", "measured unused"), rows)
    lines = {name: [(float(block), row[i]) for block, row in zip(BLOCKS, rows, strict=False)]
             for i, name in ((1, "predicted"), (2, "measured"))}  # fmt: skip
    draw(asked.svg, "Slots that stay empty", "tokens of a block", "share", lines)


if __name__ == "__main__":
    main()
